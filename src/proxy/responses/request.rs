//! Reads a Responses request. Unknown fields are ignored; wrong ones are named.

use serde_json::{Map, Value, json};

use super::{ApiError, ModelRequest, Repeated, Session, items};
use crate::prompt::{Message, Role};
use crate::proxy::caller::Caller;
use crate::proxy::dialect::fields::{self, expected};

/// Fields that a response repeats.
const REPEATED: [&str; 14] = [
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
];

/// A request, read.
#[derive(Debug)]
pub(super) struct ResponsesRequest {
    pub(super) request: ModelRequest,
    pub(super) stream: bool,
    pub(super) repeated: Repeated,
}

pub(super) fn parse(body: &[u8], caller: &Caller<'_>) -> Result<ResponsesRequest, ApiError> {
    let mut fields = fields::object(body)?;
    let digest = fields::digest(&fields);
    let repeated = Repeated {
        model: fields::model(&fields, &caller.proxy().model),
        encrypted: fields
            .get("include")
            .and_then(Value::as_array)
            .is_some_and(|wanted| wanted.iter().any(|name| name == "reasoning.encrypted_content")),
        fields: REPEATED
            .iter()
            .filter_map(|&name| Some((name.to_owned(), fields.get(name)?.clone())))
            .collect(),
    };
    let mut messages = match fields.get("previous_response_id") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(id)) => before(caller, id)?,
        Some(other) => return Err(expected("previous_response_id", "a string", other)),
    };
    match fields.remove("instructions") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => instruct(&mut messages, text),
        Some(other) => return Err(expected("instructions", "a string", &other)),
    }
    match fields.remove("input") {
        Some(Value::String(text)) => messages.push(Message::text(Role::User, text)),
        Some(Value::Array(list)) => items::read(&mut messages, list)?,
        None | Some(Value::Null) if messages.is_empty() => {
            return Err(ApiError::field("input", "is missing"));
        }
        None | Some(Value::Null) => {}
        Some(other) => return Err(expected("input", "a string or a list of items", &other)),
    }
    if messages.iter().all(|message| message.role == Role::System) {
        return Err(ApiError::field("input", "expected at least one item"));
    }
    let tools = fields::list(&mut fields, "tools", "a list of tools")?.unwrap_or_default();
    let tools: Vec<Value> = tools
        .into_iter()
        .enumerate()
        .map(|(index, tool)| function(tool, &format!("tools[{index}]")))
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let calls_allowed = tools.is_some() && fields.get("tool_choice").is_none_or(|choice| choice != "none");
    Ok(ResponsesRequest {
        request: ModelRequest {
            endpoint: "openai_responses",
            digest,
            messages,
            tools,
            calls_allowed,
            max_tokens: fields::limit(&fields, "max_output_tokens")?,
            temperature: fields::temperature(&fields)?,
            top_p: fields::top_p(&fields)?,
            top_k: None,
            stops: Vec::new(),
            share: None,
            raw: None,
        },
        stream: fields::flag(&fields, "stream")?,
        repeated,
    })
}

/// Everything said up to and with an earlier response of this session.
fn before(caller: &Caller<'_>, id: &str) -> Result<Vec<Message>, ApiError> {
    let said = |session: &Session| {
        let (name, call) = id.strip_prefix("resp_")?.rsplit_once('-')?;
        let is_own = session.key.0.starts_with(name) && !name.is_empty();
        let call = call.parse().ok().filter(|_| is_own)?;
        session.state().recording.said_up_to(call)
    };
    caller
        .known_session()
        .and_then(|session| said(session))
        .ok_or_else(|| ApiError {
            code: Some("previous_response_not_found"),
            ..ApiError::field(
                "previous_response_id",
                &format!("no response `{id}` has been completed in this session"),
            )
        })
}

/// Instructions stand first, and take the place of earlier ones.
fn instruct(messages: &mut Vec<Message>, text: String) {
    match messages.first_mut() {
        Some(first) if first.role == Role::System => first.content = text,
        _ if text.is_empty() => {}
        _ => messages.insert(0, Message::text(Role::System, text)),
    }
}

/// A function as templates know it; none of a tool that is not one (a search, a namespace, a grammar).
fn function(tool: Value, at: &str) -> Result<Option<Value>, ApiError> {
    let Value::Object(mut fields) = tool else {
        return Err(expected(at, "a tool", &tool));
    };
    if fields.get("type").and_then(Value::as_str) != Some("function") {
        return Ok(None);
    }
    if let Some(Value::Object(nested)) = fields.remove("function") {
        fields::name(nested.get("name"), &format!("{at}.function.name"))?;
        return Ok(Some(json!({ "type": "function", "function": nested })));
    }
    fields::name(fields.get("name"), &format!("{at}.name"))?;
    let mut function = Map::new();
    for name in ["name", "description", "parameters"] {
        if let Some(value) = fields.remove(name).filter(|value| !value.is_null()) {
            function.insert(name.to_owned(), value);
        }
    }
    Ok(Some(json!({ "type": "function", "function": function })))
}
