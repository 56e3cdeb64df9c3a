//! Items of a Responses request, and what they are as messages.

use serde_json::{Map, Value};

use super::ApiError;
use crate::prompt::{Message, Role, ToolCall};
use crate::proxy::dialect::fields::{expected, text};

/// References, and what only the vendor's own servers and clients make: they say nothing to a policy.
const SILENT: [&str; 22] = [
    "apply_patch_call",
    "apply_patch_call_output",
    "code_interpreter_call",
    "compaction",
    "compaction_summary",
    "computer_call",
    "computer_call_output",
    "file_search_call",
    "ghost_snapshot",
    "image_generation_call",
    "item_reference",
    "local_shell_call",
    "local_shell_call_output",
    "mcp_approval_request",
    "mcp_approval_response",
    "mcp_call",
    "mcp_list_tools",
    "shell_call",
    "shell_call_output",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];

/// Appends items. What an assistant thought, said and called without anyone between is one message, unless it had said
/// all of it: who says something twice in a row was cut off, and answered anew.
pub(super) fn read(messages: &mut Vec<Message>, items: Vec<Value>) -> Result<(), ApiError> {
    // An answer of before is complete: what follows it is another message.
    let (mut open, mut has_spoken) = (false, false);
    for (index, item) in items.into_iter().enumerate() {
        let at = format!("input[{index}]");
        let mut item = match item {
            Value::Object(item) => item,
            other => return Err(expected(&at, "an item", &other)),
        };
        let kind = match item.get("type") {
            None | Some(Value::Null) => "message".to_owned(),
            Some(Value::String(kind)) => kind.clone(),
            Some(other) => return Err(expected(&format!("{at}.type"), "a string", other)),
        };
        open &= !(has_spoken && matches!(kind.as_str(), "message" | "reasoning"));
        has_spoken = false;
        match kind.as_str() {
            "message" => {
                open = message(messages, item, &at, open)?;
                has_spoken = open;
            }
            "function_call" | "custom_tool_call" => {
                let call = call(item, &at)?;
                assistant(messages, open).tool_calls.push(call);
                open = true;
            }
            "reasoning" => {
                let thinking = thinking(&item);
                if !thinking.is_empty() {
                    assistant(messages, open)
                        .reasoning_content
                        .get_or_insert_default()
                        .push_str(&thinking);
                    open = true;
                }
            }
            "function_call_output" | "custom_tool_call_output" => {
                let Some(id) = text(item.remove("call_id")) else {
                    return Err(ApiError::field(format!("{at}.call_id"), "expected a string"));
                };
                let output = content(item.remove("output"), &format!("{at}.output"))?;
                messages.push(Message::tool_result(id, output));
                open = false;
            }
            silent if SILENT.contains(&silent) => {}
            other => {
                let problem = format!("items of type `{other}` are not known");
                return Err(ApiError::field(format!("{at}.type"), &problem));
            }
        }
    }
    Ok(())
}

/// The assistant's message that is being read, or a new one.
fn assistant(messages: &mut Vec<Message>, open: bool) -> &mut Message {
    if !open || messages.is_empty() {
        messages.push(Message::text(Role::Assistant, ""));
    }
    let last = messages.len() - 1;
    &mut messages[last]
}

/// Reads a message; true if an assistant's may go on.
fn message(messages: &mut Vec<Message>, mut item: Map<String, Value>, at: &str, open: bool) -> Result<bool, ApiError> {
    let role = match item.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some(other) => {
            return Err(ApiError::field(
                format!("{at}.role"),
                &format!("unknown role `{other}`"),
            ));
        }
        None => return Err(ApiError::field(format!("{at}.role"), "expected a string")),
    };
    let said = content(item.remove("content"), &format!("{at}.content"))?;
    if role == Role::Assistant {
        assistant(messages, open).content.push_str(&said);
        return Ok(true);
    }
    messages.push(Message::text(role, said));
    Ok(false)
}

fn call(mut item: Map<String, Value>, at: &str) -> Result<ToolCall, ApiError> {
    let Some(name) = text(item.remove("name")) else {
        return Err(ApiError::field(format!("{at}.name"), "expected a string"));
    };
    let arguments = match item.remove("arguments").or_else(|| item.remove("input")) {
        Some(Value::String(text)) => ToolCall::parse_arguments(&text),
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(object) => object,
    };
    Ok(ToolCall::new(text(item.remove("call_id")), name, arguments))
}

/// Thinking that came back readable: the summary is what was sent, or else the content.
fn thinking(item: &Map<String, Value>) -> String {
    ["summary", "content"]
        .iter()
        .find_map(|&key| {
            let parts = item.get(key)?.as_array()?;
            let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            Some(text).filter(|text| !text.is_empty())
        })
        .unwrap_or_default()
}

/// The text of a content that is a string or a list of parts, joined by newlines.
fn content(value: Option<Value>, at: &str) -> Result<String, ApiError> {
    let parts = match value {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text),
        Some(Value::Array(parts)) => parts,
        Some(object @ Value::Object(_)) => return Ok(object.to_string()),
        Some(other) => return Err(expected(at, "a string or a list of parts", &other)),
    };
    let mut texts = Vec::with_capacity(parts.len());
    for (index, mut part) in parts.into_iter().enumerate() {
        let here = || format!("{at}[{index}]");
        let kind = part["type"].as_str().unwrap_or("text").to_owned();
        match (kind.as_str(), part.get_mut("text").map(Value::take)) {
            ("input_image" | "image", _) => {
                return Err(ApiError::field(here(), "images are not supported by this model"));
            }
            (_, Some(Value::String(text))) => texts.push(text),
            ("refusal", _) => texts.extend(part["refusal"].as_str().map(str::to_owned)),
            (other, _) => {
                return Err(ApiError::field(
                    here(),
                    &format!("parts of type `{other}` are not supported"),
                ));
            }
        }
    }
    Ok(texts.join("\n"))
}
