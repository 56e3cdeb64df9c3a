//! Answers as content blocks, and what stands around them.

use serde_json::{Value, json};

use crate::inference::EngineUsage;
use crate::prompt::{AnswerEvent, ToolCall};
use crate::proxy::dialect::signature;
use crate::proxy::flight::FlightState;
use crate::trajectory::FinishReason;

/// A whole answer's blocks. There is always one, since clients take an answer without any for a failure.
pub(super) fn blocks(events: &[AnswerEvent]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let extend = |blocks: &mut Vec<Value>, kind: &str, more: &str| match blocks.last_mut() {
        Some(block) if block["type"] == kind => {
            if let Value::String(text) = &mut block[kind] {
                text.push_str(more);
            }
        }
        _ => {
            let mut block = json!({ "type": kind });
            block[kind] = more.into();
            blocks.push(block);
        }
    };
    for event in events {
        match event {
            AnswerEvent::Thinking(text) => extend(&mut blocks, "thinking", text),
            AnswerEvent::Text(text) => extend(&mut blocks, "text", text),
            AnswerEvent::Call { id, call } => blocks.push(json!({
                "type": "tool_use", "id": id, "name": call.name, "input": input(&call.arguments),
            })),
            AnswerEvent::Malformed { .. } => {}
        }
    }
    for block in blocks.iter_mut().filter(|block| block["type"] == "thinking") {
        let signature = signature(block["thinking"].as_str().unwrap_or_default());
        block["signature"] = signature.into();
    }
    if blocks.is_empty() {
        blocks.push(json!({ "type": "text", "text": "" }));
    }
    blocks
}

/// Arguments as an object, which clients insist on.
fn input(arguments: &str) -> Value {
    match ToolCall::parse_arguments(arguments) {
        object @ Value::Object(_) => object,
        other => json!({ "input": other }),
    }
}

pub(super) fn usage(usage: EngineUsage) -> Value {
    json!({
        "input_tokens": usage.prompt.saturating_sub(usage.cached),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

pub(super) fn stop_reason(state: &FlightState, finish: FinishReason, has_calls: bool) -> &'static str {
    match finish {
        _ if state.filtered => "refusal",
        FinishReason::Length => "max_tokens",
        _ if state.stop_text.is_some() => "stop_sequence",
        _ if has_calls => "tool_use",
        _ => "end_turn",
    }
}
