//! Formats whose arguments are JSON: `hermes`, `llama3_json`, `mistral`, `kimi_k2`, `deepseek_v3`.

use serde_json::value::RawValue;

use super::ParsedCall;
use super::lenient_json::{escape_control_characters, object_text};

#[derive(serde::Deserialize)]
struct WireCall<'a> {
    name: String,
    #[serde(borrow, alias = "parameters", default)]
    arguments: Option<&'a RawValue>,
    #[serde(default)]
    id: Option<String>,
}

impl WireCall<'_> {
    fn parsed(self) -> Result<ParsedCall, String> {
        let arguments = match self.arguments {
            None => "{}".to_owned(),
            Some(raw) => object_text(raw.get()).ok_or("`arguments` is no JSON object")?,
        };
        Ok(ParsedCall {
            name: self.name,
            arguments,
            id: self.id,
        })
    }
}

/// `{"name": …, "arguments": {…}}`
pub(super) fn named(body: &str) -> Result<ParsedCall, String> {
    let json = escape_control_characters(body.trim());
    let call: WireCall<'_> = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    // An id inside the JSON is the policy's invention: these templates never show one.
    Ok(ParsedCall {
        id: None,
        ..call.parsed()?
    })
}

/// As [`named`], one or several joined by `;`; also wrapped as `{"type": "function", "function": {…}}`.
pub(super) fn llama(body: &str) -> Result<Vec<ParsedCall>, String> {
    #[derive(serde::Deserialize)]
    struct Wrapped<'a> {
        #[serde(borrow)]
        function: &'a RawValue,
    }
    let json = escape_control_characters(body.trim());
    let call = match serde_json::from_str::<Wrapped<'_>>(&json) {
        Ok(wrapped) if wrapped.function.get().starts_with('{') => named(wrapped.function.get()),
        _ => named(&json),
    };
    call.map(|call| vec![call])
}

/// Whether an answer that starts like this is a call and not a JSON object meant as text: its first key tells.
pub(super) fn begins_call(text: &str) -> Option<bool> {
    const KEYS: [&str; 6] = ["name", "parameters", "arguments", "function", "type", "id"];
    let Some(inner) = text.strip_prefix('{') else {
        return Some(false);
    };
    let inner = inner.trim_start();
    if inner.is_empty() {
        return None;
    }
    let Some(key) = inner.strip_prefix('"') else {
        return Some(false);
    };
    match key.split_once('"') {
        Some((key, _)) => Some(KEYS.contains(&key)),
        None if KEYS.iter().any(|known| known.starts_with(key)) => None,
        None => Some(false),
    }
}

/// Where the JSON of a mistral call begins; `None` while it has not.
pub(super) fn mistral_value(body: &str) -> Option<usize> {
    let bare = body.trim_start();
    let Some(inner) = bare.strip_prefix('[') else {
        return body.find('{');
    };
    match inner.trim_start().chars().next()? {
        '{' | ']' => Some(body.len() - bare.len()),
        _ => body.find('{'),
    }
}

/// A list of calls, or one `NAME[ARGS]{…}`, also with `[CALL_ID]` before `[ARGS]` or with neither.
pub(super) fn mistral(body: &str) -> Result<Vec<ParsedCall>, String> {
    let body = body.trim();
    let json = escape_control_characters(body);
    if body.starts_with('[') {
        let calls: Vec<WireCall<'_>> = serde_json::from_str(&json).map_err(|error| error.to_string())?;
        if calls.is_empty() {
            return Err("the list of calls is empty".to_owned());
        }
        return calls.into_iter().map(WireCall::parsed).collect();
    }
    let at = json.find('{').ok_or("there are no arguments")?;
    let (head, arguments) = json.split_at(at);
    let head = head.trim_end().trim_end_matches("[ARGS]");
    let (name, id) = match head.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_owned())),
        None => (head, None),
    };
    let call = with_arguments(name, arguments)?;
    Ok(vec![ParsedCall { id, ..call }])
}

/// `functions.NAME:0<|tool_call_argument_begin|>{…}`; what stands before the mark is the call's id.
pub(super) fn kimi(body: &str) -> Result<ParsedCall, String> {
    const MARK: &str = "<|tool_call_argument_begin|>";
    let (id, arguments) = body.split_once(MARK).ok_or_else(|| format!("there is no `{MARK}`"))?;
    let id = id.trim();
    let name = id.strip_prefix("functions.").unwrap_or(id);
    let name = match name.rsplit_once(':') {
        Some((name, index)) if index.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => name,
    };
    let call = with_arguments(name, arguments)?;
    Ok(ParsedCall {
        id: Some(id.to_owned()),
        ..call
    })
}

/// `function<｜tool▁sep｜>NAME` and fenced JSON (V3, R1), or `NAME<｜tool▁sep｜>{…}` (V3.1).
pub(super) fn deepseek(body: &str) -> Result<ParsedCall, String> {
    const MARK: &str = "<｜tool▁sep｜>";
    let (left, right) = body.split_once(MARK).ok_or_else(|| format!("there is no `{MARK}`"))?;
    let right = right.trim();
    if left.contains('<') {
        return Err(format!("`{left}` is no name"));
    }
    if right.starts_with('{') {
        return with_arguments(left, right);
    }
    let (name, fenced) = right.split_once("```").ok_or("there are no arguments")?;
    let fenced = fenced.strip_prefix("json").unwrap_or(fenced).trim_end();
    with_arguments(name, fenced.strip_suffix("```").unwrap_or(fenced))
}

fn with_arguments(name: &str, arguments: &str) -> Result<ParsedCall, String> {
    let name = name.trim();
    if name.is_empty() || name.contains(['<', '\n', '{']) {
        return Err(format!("`{name}` is no name"));
    }
    let json = escape_control_characters(arguments.trim());
    let raw: &RawValue = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    Ok(ParsedCall {
        name: name.to_owned(),
        arguments: object_text(raw.get()).ok_or("the arguments are no JSON object")?,
        id: None,
    })
}
