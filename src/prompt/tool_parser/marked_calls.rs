//! Formats whose arguments are plain text between marks: `qwen3_coder` and `glm`.

use serde_json::{Map, Value};

use super::ParsedCall;
use super::schema::ToolSchemas;

/// `<function=NAME><parameter=KEY>value</parameter></function>`; one line break at either end of a value
/// belongs to the format. Behind the opener `<function=` the name comes first.
pub(super) fn qwen3_coder(opener: &str, body: &str, schemas: &ToolSchemas) -> Result<ParsedCall, String> {
    let body = if opener == "<function=" {
        body
    } else {
        body.trim_start()
            .strip_prefix("<function=")
            .ok_or("there is no `<function=`")?
    };
    let (name, rest) = body.split_once('>').ok_or("`<function=` is not closed")?;
    let name = checked_name(name)?;
    let mut rest = rest.trim();
    rest = rest.strip_suffix("</tool_call>").unwrap_or(rest).trim_end();
    rest = rest.strip_suffix("</function>").unwrap_or(rest).trim_end();
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, behind) = rest
            .strip_prefix("<parameter=")
            .and_then(|rest| rest.split_once('>'))
            .ok_or_else(|| unexpected(rest, "<parameter="))?;
        let (value, next) = parameter(behind).ok_or_else(|| format!("`<parameter={key}>` is not closed"))?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        let key = key.trim();
        arguments.insert(key.to_owned(), schemas.cast(name, key, value));
        rest = next.trim_start();
    }
    Ok(call(name, arguments))
}

/// A value and what comes behind its closing mark: the first one behind which the next parameter or the end
/// comes, so that a value may hold the mark itself. A forgotten mark is made up for by the next parameter.
fn parameter(text: &str) -> Option<(&str, &str)> {
    const CLOSE: &str = "</parameter>";
    let closed = text.match_indices(CLOSE).find_map(|(at, _)| {
        let behind = text[at + CLOSE.len()..].trim_start();
        let ends = behind.is_empty() || behind.starts_with("<parameter=") || behind.starts_with("</function>");
        ends.then_some((at, behind))
    });
    let forgotten = text.find("\n<parameter=");
    match (closed, forgotten) {
        (Some((at, _)), Some(next)) if next < at && !text[..next].contains(CLOSE) => {
            Some((&text[..next], &text[next..]))
        }
        (Some((at, behind)), _) => Some((&text[..at], behind)),
        (None, Some(next)) => Some((&text[..next], &text[next..])),
        (None, None) => None,
    }
}

/// `NAME<arg_key>KEY</arg_key><arg_value>value</arg_value>`, line breaks between them or not.
pub(super) fn glm(body: &str, schemas: &ToolSchemas) -> Result<ParsedCall, String> {
    const KEY: &str = "<arg_key>";
    let at = body.find(KEY).unwrap_or(body.len());
    let name = checked_name(&body[..at])?;
    let mut rest = body[at..].trim();
    let mut arguments = Map::new();
    while !rest.is_empty() {
        let (key, behind) = rest
            .strip_prefix(KEY)
            .and_then(|rest| rest.split_once("</arg_key>"))
            .ok_or_else(|| unexpected(rest, KEY))?;
        let (value, next) = behind
            .trim_start()
            .strip_prefix("<arg_value>")
            .and_then(glm_value)
            .ok_or_else(|| format!("`{key}` has no closed `<arg_value>`"))?;
        let key = key.trim();
        arguments.insert(key.to_owned(), schemas.cast(name, key, value));
        rest = next.trim_start();
    }
    Ok(call(name, arguments))
}

fn glm_value(text: &str) -> Option<(&str, &str)> {
    const CLOSE: &str = "</arg_value>";
    text.match_indices(CLOSE).find_map(|(at, _)| {
        let behind = text[at + CLOSE.len()..].trim_start();
        (behind.is_empty() || behind.starts_with("<arg_key>")).then_some((&text[..at], behind))
    })
}

fn checked_name(name: &str) -> Result<&str, String> {
    let name = name.trim();
    if name.is_empty() || name.contains(|char: char| char.is_whitespace() || "<>{}\"".contains(char)) {
        return Err(format!("`{name}` is no name"));
    }
    Ok(name)
}

fn unexpected(found: &str, expected: &str) -> String {
    let found: String = found.chars().take(24).collect();
    format!("expected `{expected}`, found `{found}`")
}

fn call(name: &str, arguments: Map<String, Value>) -> ParsedCall {
    ParsedCall {
        name: name.to_owned(),
        arguments: Value::Object(arguments).to_string(),
        id: None,
    }
}
