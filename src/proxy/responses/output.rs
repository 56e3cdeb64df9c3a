//! Answers as output items, and the object that holds them.

use serde_json::{Value, json};

use crate::inference::EngineUsage;
use crate::prompt::ParsedCall;
use crate::proxy::dialect::signature;

/// How far an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Status {
    InProgress,
    Completed,
    /// Cut by the limit of tokens.
    Incomplete,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::InProgress => "in_progress",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
        }
    }
}

/// Thinking, as a summary; its encrypted form is what clients must give back.
pub(super) fn reasoning(id: &str, thinking: &str, encrypted: bool, status: Status) -> Value {
    let summary: Vec<Value> = if thinking.is_empty() {
        Vec::new()
    } else {
        vec![summary_part(thinking)]
    };
    let mut item = json!({ "type": "reasoning", "id": id, "summary": summary });
    // The only one that says something: a summary is there or not.
    if status == Status::Incomplete {
        item["status"] = status.name().into();
    }
    if encrypted {
        item["encrypted_content"] = signature(thinking).into();
    }
    item
}

pub(super) fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// Text; none while it is being written.
pub(super) fn message(id: &str, text: &str, status: Status) -> Value {
    let content = if status == Status::InProgress {
        Vec::new()
    } else {
        vec![text_part(text)]
    };
    json!({ "type": "message", "id": id, "status": status.name(), "role": "assistant", "content": content })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call; without its arguments while they are being written.
pub(super) fn function_call(item_id: &str, call_id: &str, call: &ParsedCall, done: bool) -> Value {
    let (status, arguments) = if done {
        (Status::Completed, call.arguments.as_str())
    } else {
        (Status::InProgress, "")
    };
    json!({
        "type": "function_call", "id": item_id, "call_id": call_id, "status": status.name(),
        "name": call.name, "arguments": arguments,
    })
}

pub(super) fn usage(usage: EngineUsage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": { "cached_tokens": usage.cached },
        "output_tokens": usage.completion,
        "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": usage.prompt + usage.completion,
    })
}
