//! Reads a Chat Completions request. Unknown fields are ignored; wrong ones are named.

use serde_json::{Map, Value};

use super::{ApiError, ModelRequest, Presentation};
use crate::prompt::{Message, Role, ToolCall};
use crate::proxy::dialect::fields::{self, expected, flag};

/// A request, read.
#[derive(Debug)]
pub(super) struct ChatRequest {
    pub(super) request: ModelRequest,
    pub(super) presentation: Presentation,
}

pub(super) fn parse(body: &[u8], default_model: &str) -> Result<ChatRequest, ApiError> {
    let mut fields = fields::object(body)?;
    let digest = fields::digest(&fields);
    if let Some(n) = fields.get("n").filter(|n| !n.is_null())
        && n.as_u64() != Some(1)
    {
        return Err(ApiError::field("n", &format!("only 1 is supported, found {n}")));
    }
    let messages = fields::messages(&mut fields)?;
    let messages = messages
        .into_iter()
        .enumerate()
        .map(|(index, value)| message(value, &format!("messages[{index}]")))
        .collect::<Result<_, _>>()?;
    let tools = fields::list(&mut fields, "tools", "a list of tools")?.unwrap_or_default();
    let tools: Vec<Value> = tools
        .into_iter()
        .enumerate()
        .map(|(index, value)| tool(value, &format!("tools[{index}]")))
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let tools = Some(tools).filter(|tools| !tools.is_empty());
    let max_tokens = match fields::limit(&fields, "max_completion_tokens")? {
        Some(limit) => Some(limit),
        None => fields::limit(&fields, "max_tokens")?,
    };
    let include_usage = fields
        .get("stream_options")
        .is_some_and(|options| options["include_usage"] == true);
    Ok(ChatRequest {
        request: ModelRequest {
            endpoint: "openai_chat_completions",
            digest,
            messages,
            calls_allowed: tools.is_some() && fields.get("tool_choice").is_none_or(|choice| choice != "none"),
            tools,
            max_tokens,
            temperature: fields::temperature(&fields)?,
            top_p: fields::top_p(&fields)?,
            top_k: fields::top_k(&fields)?,
            stops: fields::stops(&fields, "stop")?,
            share: None,
            raw: None,
        },
        presentation: Presentation {
            model: fields::model(&fields, default_model),
            stream: flag(&fields, "stream")?,
            include_usage,
            logprobs: flag(&fields, "logprobs")?,
            return_token_ids: flag(&fields, "return_token_ids")?,
        },
    })
}

/// A function as it came; none of a tool of another type, which the policy could not call.
fn tool(value: Value, at: &str) -> Result<Option<Value>, ApiError> {
    let Value::Object(fields) = &value else {
        return Err(expected(at, "a tool", &value));
    };
    match fields.get("type") {
        None | Some(Value::Null) => {}
        Some(kind) if kind == "function" => {}
        Some(_) => return Ok(None),
    }
    match fields.get("function") {
        // Some clients send the function alone.
        None if fields.contains_key("name") => fields::name(fields.get("name"), &format!("{at}.name"))?,
        None => return Err(ApiError::field(format!("{at}.function"), "is missing")),
        Some(Value::Object(function)) => fields::name(function.get("name"), &format!("{at}.function.name"))?,
        Some(other) => return Err(expected(&format!("{at}.function"), "a function", other)),
    };
    Ok(Some(value))
}

fn message(value: Value, at: &str) -> Result<Message, ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(expected(at, "a message", &value));
    };
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool" | "function") => Role::Tool,
        Some(other) => {
            return Err(ApiError::field(
                format!("{at}.role"),
                &format!("unknown role `{other}`"),
            ));
        }
        None => return Err(ApiError::field(format!("{at}.role"), "expected a string")),
    };
    let (content, thinking) = content(fields.remove("content"), &format!("{at}.content"))?;
    let text = |value: Option<Value>| value.as_ref().and_then(Value::as_str).map(str::to_owned);
    let reasoning = text(fields.remove("reasoning_content"))
        .or_else(|| text(fields.remove("reasoning")))
        .or(thinking);
    let tool_calls = match (fields.remove("tool_calls"), fields.remove("function_call")) {
        (Some(Value::Array(calls)), _) => calls
            .into_iter()
            .enumerate()
            .map(|(index, call)| tool_call(call, &format!("{at}.tool_calls[{index}]")))
            .collect::<Result<_, _>>()?,
        (None | Some(Value::Null), Some(call @ Value::Object(_))) => {
            vec![function(None, call, &format!("{at}.function_call"))?]
        }
        (None | Some(Value::Null), _) => Vec::new(),
        (Some(other), _) => return Err(expected(&format!("{at}.tool_calls"), "a list of calls", &other)),
    };
    Ok(Message {
        role,
        content,
        reasoning_content: reasoning.filter(|text| !text.is_empty()),
        tool_calls,
        tool_call_id: text(fields.remove("tool_call_id")),
        name: text(fields.remove("name")),
    })
}

/// Text and thinking of a content that is a string, a list of blocks, or absent.
fn content(value: Option<Value>, at: &str) -> Result<(String, Option<String>), ApiError> {
    let blocks = match value {
        None | Some(Value::Null) => return Ok((String::new(), None)),
        Some(Value::String(text)) => return Ok((text, None)),
        Some(Value::Array(blocks)) => blocks,
        Some(other) => return Err(expected(at, "a string or a list of blocks", &other)),
    };
    let mut texts: Vec<String> = Vec::with_capacity(blocks.len());
    let mut thinking: Option<String> = None;
    for (index, mut block) in blocks.into_iter().enumerate() {
        let here = || format!("{at}[{index}]");
        let block_type = block["type"].as_str().unwrap_or("text").to_owned();
        match (
            block_type.as_str(),
            block.get_mut("text").map(Value::take),
            block.get("thinking"),
        ) {
            ("image_url" | "image" | "input_image", ..) => {
                return Err(ApiError::field(here(), "images are not supported by this model"));
            }
            ("thinking" | "reasoning", text, inner) => {
                let text = inner.cloned().or(text);
                thinking
                    .get_or_insert_default()
                    .push_str(text.as_ref().and_then(Value::as_str).unwrap_or_default());
            }
            (_, Some(Value::String(text)), _) => texts.push(text),
            _ if block.is_string() => texts.extend(block.as_str().map(str::to_owned)),
            ("refusal", ..) => texts.extend(block["refusal"].as_str().map(str::to_owned)),
            (other, ..) => {
                return Err(ApiError::field(
                    here(),
                    &format!("blocks of type `{other}` are not supported"),
                ));
            }
        }
    }
    Ok((texts.join("\n"), thinking))
}

fn tool_call(value: Value, at: &str) -> Result<ToolCall, ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(expected(at, "a call", &value));
    };
    let id = fields.get("id").and_then(Value::as_str).map(str::to_owned);
    match fields.remove("function") {
        Some(call) => function(id, call, &format!("{at}.function")),
        None => Err(ApiError::field(format!("{at}.function"), "is missing")),
    }
}

fn function(id: Option<String>, value: Value, at: &str) -> Result<ToolCall, ApiError> {
    let Value::Object(mut fields) = value else {
        return Err(expected(at, "a function", &value));
    };
    let Some(name) = fields.get("name").and_then(Value::as_str).map(str::to_owned) else {
        return Err(ApiError::field(format!("{at}.name"), "expected a string"));
    };
    let arguments = match fields.remove("arguments") {
        Some(Value::String(text)) => ToolCall::parse_arguments(&text),
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(object) => object,
    };
    Ok(ToolCall::new(id, name, arguments))
}
