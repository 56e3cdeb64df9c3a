//! Answers as output items, and the object that holds them.

use serde_json::{Value, json};

use crate::inference::EngineUsage;
use crate::prompt::ParsedCall;
use crate::proxy::dialect::signature;

/// Thinking, as a summary; its encrypted form is what clients must give back.
pub(super) fn reasoning(id: &str, thinking: &str, encrypted: bool) -> Value {
    let summary: Vec<Value> = if thinking.is_empty() {
        Vec::new()
    } else {
        vec![summary_part(thinking)]
    };
    let mut item = json!({ "type": "reasoning", "id": id, "summary": summary });
    if encrypted {
        item["encrypted_content"] = signature(thinking).into();
    }
    item
}

pub(super) fn summary_part(text: &str) -> Value {
    json!({ "type": "summary_text", "text": text })
}

/// Text; `done` is false while it is being written.
pub(super) fn message(id: &str, text: &str, done: bool) -> Value {
    let (status, content) = if done {
        ("completed", vec![text_part(text)])
    } else {
        ("in_progress", Vec::new())
    };
    json!({ "type": "message", "id": id, "status": status, "role": "assistant", "content": content })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [], "logprobs": [] })
}

/// A call; without its arguments while they are being written.
pub(super) fn function_call(item_id: &str, call_id: &str, call: &ParsedCall, done: bool) -> Value {
    let (status, arguments) = if done {
        ("completed", call.arguments.as_str())
    } else {
        ("in_progress", "")
    };
    json!({
        "type": "function_call", "id": item_id, "call_id": call_id, "status": status,
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
