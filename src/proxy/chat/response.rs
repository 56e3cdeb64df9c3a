//! Writes a whole Chat Completions answer, and the pieces that streams share with it.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::Presentation;
use crate::inference::EngineUsage;
use crate::prompt::{AnswerEvent, ParsedCall, Tokenizer};
use crate::proxy::dialect::{Answered, answer_id};
use crate::proxy::flight::FlightState;
use crate::trajectory::{FinishReason, SessionKey, TokenId};

/// What every object of one answer repeats.
pub(super) struct Envelope {
    pub(super) id: String,
    pub(super) created: i64,
    pub(super) presentation: Presentation,
}

impl Envelope {
    pub(super) fn new(session: &SessionKey, call: u32, presentation: Presentation) -> Self {
        let id = answer_id("chatcmpl-", session, call);
        Self {
            id,
            created: Timestamp::now().as_second(),
            presentation,
        }
    }
}

/// A whole answer.
pub(super) fn completion(envelope: &Envelope, tokenizer: Option<&Tokenizer>, answered: &Answered<'_>) -> Value {
    let Answered {
        state,
        finish,
        message,
        usage,
    } = *answered;
    let calls: Vec<Value> = state
        .events
        .iter()
        .filter_map(|event| match event {
            AnswerEvent::Call { id, call } => Some(call_object(id, call)),
            _ => None,
        })
        .collect();
    let mut answer = json!({ "role": "assistant", "content": message.content });
    if !calls.is_empty() {
        if message.content.is_empty() {
            answer["content"] = Value::Null;
        }
        answer["tool_calls"] = calls.into();
    }
    if let Some(thinking) = &message.reasoning_content {
        answer["reasoning_content"] = thinking.as_str().into();
    }
    let Presentation {
        model,
        logprobs,
        return_token_ids,
        ..
    } = &envelope.presentation;
    let mut choice = json!({
        "index": 0,
        "message": answer,
        "logprobs": null,
        "finish_reason": finish_reason(state, finish, !message.tool_calls.is_empty()),
    });
    if *logprobs {
        choice["logprobs"] = logprobs_object(tokenizer, &state.ids, &state.logprobs);
    }
    let mut whole = json!({
        "id": envelope.id,
        "object": "chat.completion",
        "created": envelope.created,
        "model": model,
        "usage": usage_object(usage),
    });
    if *return_token_ids {
        choice["token_ids"] = state.ids.as_slice().into();
        whole["prompt_token_ids"] = state.prompt.as_ref().into();
    }
    whole["choices"] = Value::Array(vec![choice]);
    whole
}

/// One tool call as clients read it.
pub(super) fn call_object(id: &str, call: &ParsedCall) -> Value {
    json!({ "id": id, "type": "function", "function": { "name": call.name, "arguments": call.arguments } })
}

/// Log-probs, one object a token; `null` if the engine gives none.
pub(super) fn logprobs_object(tokenizer: Option<&Tokenizer>, ids: &[TokenId], logprobs: &[f32]) -> Value {
    let Some(tokenizer) = tokenizer.filter(|_| logprobs.len() == ids.len()) else {
        return Value::Null;
    };
    let content: Vec<Value> = ids
        .iter()
        .zip(logprobs)
        .map(|(&id, logprob)| {
            let bytes = tokenizer.token_bytes(id);
            let token = String::from_utf8_lossy(&bytes);
            json!({ "token": token, "logprob": logprob, "bytes": bytes, "top_logprobs": [] })
        })
        .collect();
    json!({ "content": content })
}

pub(super) fn usage_object(usage: EngineUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": { "cached_tokens": usage.cached },
    })
}

pub(super) fn finish_reason(state: &FlightState, finish: FinishReason, has_calls: bool) -> &'static str {
    match finish {
        _ if state.filtered => "content_filter",
        FinishReason::Length => "length",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}
