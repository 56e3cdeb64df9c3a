//! Content blocks of Messages requests, and what they are as messages.

use serde_json::{Map, Value};

use super::ApiError;
use crate::prompt::{Message, Role, ToolCall};
use crate::proxy::dialect::fields::{expected, text};

/// The blocks of a content that is a string, a list of blocks, or absent.
fn blocks(content: Value, at: &str) -> Result<Vec<Map<String, Value>>, ApiError> {
    let list = match content {
        Value::Null => return Ok(Vec::new()),
        Value::String(text) => {
            let block = [("type", "text".into()), ("text", Value::String(text))];
            return Ok(vec![
                block.map(|(key, value)| (key.to_owned(), value)).into_iter().collect(),
            ]);
        }
        Value::Array(list) => list,
        other => return Err(expected(at, "a string or a list of blocks", &other)),
    };
    list.into_iter()
        .enumerate()
        .map(|(index, block)| match block {
            Value::Object(block) => Ok(block),
            other => Err(expected(&format!("{at}.{index}"), "a block", &other)),
        })
        .collect()
}

fn kind(block: &Map<String, Value>) -> String {
    block.get("type").and_then(Value::as_str).unwrap_or("text").to_owned()
}

/// The text of a block that has one; what cannot be shown to the policy is refused.
fn block_text(kind: &str, mut block: Map<String, Value>, at: &str) -> Result<String, ApiError> {
    match kind {
        "text" => match block.remove("text") {
            Some(Value::String(text)) => Ok(text),
            other => Err(expected(&format!("{at}.text"), "a string", &other.unwrap_or_default())),
        },
        "image" => Err(ApiError::field(at, "images are not supported by this model")),
        "tool_reference" => Ok(text(block.remove("tool_name")).unwrap_or_default()),
        other => Err(ApiError::field(
            at,
            &format!("blocks of type `{other}` are not supported"),
        )),
    }
}

/// A content that is text and nothing else; blocks are joined by newlines.
pub(super) fn plain(content: Value, at: &str) -> Result<String, ApiError> {
    let texts = blocks(content, at)?
        .into_iter()
        .enumerate()
        .map(|(index, block)| block_text(&kind(&block), block, &format!("{at}.{index}")))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(texts.join("\n"))
}

/// The instructions. A client's note to its vendor's accounts is none of them, and differs with every request.
pub(super) fn system(content: Value) -> Result<String, ApiError> {
    const NOTE: &str = "x-anthropic-billing-header:";
    let content = match content {
        Value::Array(list) => list
            .into_iter()
            .filter(|block| !block["text"].as_str().is_some_and(|text| text.starts_with(NOTE)))
            .collect(),
        other => other,
    };
    plain(content, "system")
}

/// A user's content: results of tool calls are messages of their own, in the order in which they come.
pub(super) fn user(messages: &mut Vec<Message>, content: Value, at: &str) -> Result<(), ApiError> {
    let before = messages.len();
    let mut texts: Vec<String> = Vec::new();
    let flush = |messages: &mut Vec<Message>, texts: &mut Vec<String>| {
        if !texts.is_empty() {
            messages.push(Message::text(Role::User, texts.join("\n")));
            texts.clear();
        }
    };
    for (index, mut block) in blocks(content, at)?.into_iter().enumerate() {
        let here = format!("{at}.{index}");
        let kind = kind(&block);
        if kind != "tool_result" {
            texts.push(block_text(&kind, block, &here)?);
            continue;
        }
        flush(messages, &mut texts);
        let Some(id) = text(block.remove("tool_use_id")) else {
            return Err(ApiError::field(format!("{here}.tool_use_id"), "expected a string"));
        };
        let failed = block.get("is_error") == Some(&Value::Bool(true));
        let mut result = plain(block.remove("content").unwrap_or_default(), &format!("{here}.content"))?;
        if failed && result.trim().is_empty() {
            "Error".clone_into(&mut result);
        }
        messages.push(Message::tool_result(id, result));
    }
    flush(messages, &mut texts);
    if messages.len() == before {
        messages.push(Message::text(Role::User, ""));
    }
    Ok(())
}

/// An assistant's content. Its texts are pieces of one answer, so that nothing stands between them.
pub(super) fn assistant(content: Value, at: &str) -> Result<Message, ApiError> {
    let mut message = Message::text(Role::Assistant, "");
    for (index, mut block) in blocks(content, at)?.into_iter().enumerate() {
        let here = format!("{at}.{index}");
        match kind(&block).as_str() {
            "thinking" => {
                let thinking = text(block.remove("thinking")).unwrap_or_default();
                if !thinking.is_empty() {
                    message.reasoning_content.get_or_insert_default().push_str(&thinking);
                }
            }
            "redacted_thinking" => {}
            "tool_use" => {
                let Some(name) = text(block.remove("name")) else {
                    return Err(ApiError::field(format!("{here}.name"), "expected a string"));
                };
                let arguments = match block.remove("input") {
                    None | Some(Value::Null) => Value::Object(Map::new()),
                    Some(Value::String(text)) => ToolCall::parse_arguments(&text),
                    Some(input) => input,
                };
                let id = text(block.remove("id"));
                message.tool_calls.push(ToolCall::new(id, name, arguments));
            }
            other => message.content.push_str(&block_text(other, block, &here)?),
        }
    }
    Ok(message)
}
