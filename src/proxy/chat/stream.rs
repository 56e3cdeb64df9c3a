//! The events of one answer: role, content and call deltas, finish, usage, `[DONE]`.

use serde_json::{Value, json};

use super::response::{self, Envelope, call_object, finish_reason, logprobs_object, usage_object};
use super::{ErrorShape, Presentation, Session};
use crate::prompt::AnswerEvent;
use crate::proxy::dialect::{Answered, Writer, unnamed_event};
use crate::proxy::flight::{FlightEnd, FlightState, News};
use crate::trajectory::SessionKey;

/// Writes one answer.
pub(super) struct ChatWriter {
    envelope: Envelope,
    calls: usize,
}

impl ChatWriter {
    pub(super) fn new(session: &SessionKey, call: u32, presentation: Presentation) -> Self {
        Self {
            envelope: Envelope::new(session, call, presentation),
            calls: 0,
        }
    }

    fn add_tokens(&self, session: &Session, choice: &mut Value, news: &News) {
        if self.envelope.presentation.return_token_ids {
            choice["token_ids"] = news.ids.as_slice().into();
        }
        if self.envelope.presentation.logprobs {
            choice["logprobs"] = logprobs_object(session.proxy.prompt.tokenizer(), &news.ids, &news.logprobs);
        }
    }

    fn chunk(&self, delta: Value, finish_reason: Option<&str>) -> Value {
        let mut choice = json!({ "index": 0, "delta": null, "logprobs": null, "finish_reason": finish_reason });
        choice["delta"] = delta;
        let mut chunk = json!({
            "id": self.envelope.id,
            "object": "chat.completion.chunk",
            "created": self.envelope.created,
            "model": self.envelope.presentation.model,
        });
        chunk["choices"] = Value::Array(vec![choice]);
        chunk
    }
}

impl Writer for ChatWriter {
    const ERRORS: ErrorShape = ErrorShape::OpenAi;

    fn whole(&self, session: &Session, answered: &Answered<'_>) -> Value {
        response::completion(&self.envelope, session.proxy.prompt.tokenizer(), answered)
    }

    fn begin(&mut self, out: &mut Vec<u8>, state: &FlightState) {
        let mut chunk = self.chunk(json!({ "role": "assistant", "content": "" }), None);
        if self.envelope.presentation.return_token_ids {
            chunk["prompt_token_ids"] = state.prompt.as_ref().into();
        }
        unnamed_event(out, &chunk);
    }

    fn news(&mut self, out: &mut Vec<u8>, session: &Session, news: &News) {
        let mut deltas: Vec<Value> = Vec::with_capacity(news.events.len());
        for event in &news.events {
            match event {
                AnswerEvent::Text(text) => deltas.push(json!({ "content": text })),
                AnswerEvent::Thinking(text) => deltas.push(json!({ "reasoning_content": text })),
                AnswerEvent::Call { id, call } => {
                    let mut object = call_object(id, call);
                    object["index"] = self.calls.into();
                    self.calls += 1;
                    deltas.push(json!({ "tool_calls": [object] }));
                }
                AnswerEvent::Malformed { .. } => {}
            }
        }
        let presentation = &self.envelope.presentation;
        let wants_tokens = presentation.logprobs || presentation.return_token_ids;
        if wants_tokens && deltas.is_empty() && !news.ids.is_empty() {
            deltas.push(json!({}));
        }
        for (index, delta) in deltas.into_iter().enumerate() {
            let mut chunk = self.chunk(delta, None);
            if wants_tokens && index == 0 {
                self.add_tokens(session, &mut chunk["choices"][0], news);
            }
            unnamed_event(out, &chunk);
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, _: &FlightState, end: &FlightEnd) {
        match end {
            FlightEnd::Answered { finish, usage, .. } => {
                unnamed_event(
                    out,
                    &self.chunk(json!({}), Some(finish_reason(*finish, self.calls > 0))),
                );
                if self.envelope.presentation.include_usage {
                    let mut chunk = self.chunk(json!({}), None);
                    chunk["choices"] = Value::Array(Vec::new());
                    chunk["usage"] = usage_object(*usage);
                    unnamed_event(out, &chunk);
                }
            }
            FlightEnd::Failed(error) => unnamed_event(out, &Self::ERRORS.body(error)),
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }
}
