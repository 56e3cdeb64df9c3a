//! Reads a Messages request. Unknown fields are ignored; wrong ones are named.

use serde_json::{Map, Value, json};

use super::content;
use super::{ApiError, ModelRequest};
use crate::prompt::{Message, Role};
use crate::proxy::dialect::fields::{self, expected};

/// A request, read.
#[derive(Debug)]
pub(super) struct MessagesRequest {
    pub(super) request: ModelRequest,
    /// Model name as the client wrote it.
    pub(super) model: String,
    pub(super) stream: bool,
}

pub(super) fn parse(body: &[u8], served: &str) -> Result<MessagesRequest, ApiError> {
    let mut fields = fields::object(body)?;
    let digest = fields::digest(&fields);
    let mut messages = Vec::new();
    if let Some(system) = fields.remove("system").filter(|system| !system.is_null()) {
        let text = content::system(system)?;
        if !text.is_empty() {
            messages.push(Message::text(Role::System, text));
        }
    }
    for (index, value) in fields::messages(&mut fields)?.into_iter().enumerate() {
        message(&mut messages, value, &format!("messages.{index}"))?;
    }
    let tools = fields::list(&mut fields, "tools", "a list of tools")?.unwrap_or_default();
    let tools: Vec<Value> = tools
        .into_iter()
        .enumerate()
        .map(|(index, tool)| function(tool, &format!("tools.{index}")))
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let calls_allowed = tools.is_some()
        && fields
            .get("tool_choice")
            .is_none_or(|choice| choice["type"].as_str() != Some("none"));
    Ok(MessagesRequest {
        request: ModelRequest {
            endpoint: "anthropic_messages",
            digest,
            messages,
            tools,
            calls_allowed,
            max_tokens: fields::limit(&fields, "max_tokens")?,
            temperature: fields::temperature(&fields)?,
            top_p: fields::top_p(&fields)?,
            top_k: fields::top_k(&fields)?,
            stops: fields::stops(&fields, "stop_sequences")?,
            share: None,
            raw: None,
        },
        model: fields::model(&fields, served),
        stream: fields::flag(&fields, "stream")?,
    })
}

fn message(messages: &mut Vec<Message>, value: Value, at: &str) -> Result<(), ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(expected(at, "a message", &value));
    };
    let role = fields
        .get("role")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    let content = fields.remove("content").unwrap_or_default();
    let at_content = format!("{at}.content");
    match role.as_str() {
        "user" => content::user(messages, content, &at_content),
        "assistant" => {
            messages.push(content::assistant(content, &at_content)?);
            Ok(())
        }
        "system" | "developer" => {
            let text = content::plain(content, &at_content)?;
            messages.push(Message::text(Role::System, text));
            Ok(())
        }
        other => Err(ApiError::field(
            format!("{at}.role"),
            &format!("expected `user`, `assistant` or `system`, found `{other}`"),
        )),
    }
}

/// A tool as templates know it; none of a tool that the server is to run itself.
fn function(tool: Value, at: &str) -> Result<Option<Value>, ApiError> {
    let Value::Object(mut fields) = tool else {
        return Err(expected(at, "a tool", &tool));
    };
    let custom = fields
        .get("type")
        .and_then(Value::as_str)
        .is_none_or(|kind| kind == "custom");
    if !custom {
        return Ok(None);
    }
    let name = fields::name(fields.get("name"), &format!("{at}.name"))?;
    let parameters = fields
        .remove("input_schema")
        .unwrap_or_else(|| json!({ "type": "object", "properties": {} }));
    let mut function = Map::new();
    function.insert("name".to_owned(), name.into());
    if let Some(description) = fields::text(fields.remove("description")) {
        function.insert("description".to_owned(), description.into());
    }
    function.insert("parameters".to_owned(), parameters);
    Ok(Some(json!({ "type": "function", "function": function })))
}
