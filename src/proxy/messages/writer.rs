//! Writes an answer: whole, or as `message_start`, blocks, `message_delta` and `message_stop`.

use serde_json::{Value, json};

use super::{ErrorShape, Session, blocks};
use crate::inference::EngineUsage;
use crate::prompt::AnswerEvent;
use crate::proxy::dialect::{Answered, Writer, answer_id, event, signature};
use crate::proxy::flight::{FlightEnd, FlightState, News};
use crate::trajectory::SessionKey;

/// Writes one answer.
pub(super) struct MessagesWriter {
    id: String,
    model: String,
    /// Blocks begun so far.
    blocks: usize,
    open: Option<Open>,
    calls: usize,
}

/// The block that is being written.
#[derive(Debug, PartialEq, Eq)]
enum Open {
    Text,
    /// And the thinking so far, which its signature is made of.
    Thinking(String),
}

impl MessagesWriter {
    pub(super) fn new(session: &SessionKey, call: u32, model: String) -> Self {
        Self {
            id: answer_id("msg_", session, call),
            model,
            blocks: 0,
            open: None,
            calls: 0,
        }
    }

    fn message(&self, content: Vec<Value>, stop_reason: Option<&str>, stop: Option<&str>, usage: Value) -> Value {
        let mut message = json!({
            "id": self.id, "type": "message", "role": "assistant", "model": self.model,
        });
        message["content"] = content.into();
        message["stop_reason"] = stop_reason.into();
        message["stop_sequence"] = stop.into();
        message["usage"] = usage;
        message
    }

    fn start(&mut self, out: &mut Vec<u8>, block: &Value) {
        let index = self.blocks;
        self.blocks += 1;
        event(
            out,
            &json!({ "type": "content_block_start", "index": index, "content_block": block }),
        );
    }

    fn delta(&self, out: &mut Vec<u8>, delta: &Value) {
        let index = self.blocks.saturating_sub(1);
        event(
            out,
            &json!({ "type": "content_block_delta", "index": index, "delta": delta }),
        );
    }

    fn stop(&mut self, out: &mut Vec<u8>) {
        if let Some(Open::Thinking(thinking)) = &self.open {
            let signature = signature(thinking);
            self.delta(out, &json!({ "type": "signature_delta", "signature": signature }));
        }
        self.open = None;
        let index = self.blocks.saturating_sub(1);
        event(out, &json!({ "type": "content_block_stop", "index": index }));
    }

    fn close(&mut self, out: &mut Vec<u8>) {
        if self.open.is_some() {
            self.stop(out);
        }
    }

    fn text(&mut self, out: &mut Vec<u8>, text: &str) {
        if self.open != Some(Open::Text) {
            self.close(out);
            self.start(out, &json!({ "type": "text", "text": "" }));
            self.open = Some(Open::Text);
        }
        self.delta(out, &json!({ "type": "text_delta", "text": text }));
    }

    fn thinking(&mut self, out: &mut Vec<u8>, text: &str) {
        if !matches!(self.open, Some(Open::Thinking(_))) {
            self.close(out);
            self.start(out, &json!({ "type": "thinking", "thinking": "", "signature": "" }));
            self.open = Some(Open::Thinking(String::new()));
        }
        if let Some(Open::Thinking(so_far)) = &mut self.open {
            so_far.push_str(text);
        }
        self.delta(out, &json!({ "type": "thinking_delta", "thinking": text }));
    }
}

impl Writer for MessagesWriter {
    const ERRORS: ErrorShape = ErrorShape::Anthropic;

    fn whole(&self, _: &Session, answered: &Answered<'_>) -> Value {
        let stop = answered.state.stop_text.as_deref();
        let reason = blocks::stop_reason(answered.state, answered.finish, !answered.message.tool_calls.is_empty());
        let content = blocks::blocks(&answered.state.events);
        self.message(content, Some(reason), stop, blocks::usage(answered.usage))
    }

    fn begin(&mut self, out: &mut Vec<u8>, state: &FlightState) {
        let usage = EngineUsage {
            prompt: state.prompt.len() as u32,
            ..EngineUsage::default()
        };
        let message = self.message(Vec::new(), None, None, blocks::usage(usage));
        event(out, &json!({ "type": "message_start", "message": message }));
        self.keep_alive(out);
    }

    fn news(&mut self, out: &mut Vec<u8>, _: &Session, news: &News) {
        for piece in &news.events {
            match piece {
                AnswerEvent::Text(text) => self.text(out, text),
                AnswerEvent::Thinking(text) => self.thinking(out, text),
                AnswerEvent::Call { id, call } => {
                    self.close(out);
                    self.calls += 1;
                    self.start(
                        out,
                        &json!({ "type": "tool_use", "id": id, "name": call.name, "input": {} }),
                    );
                    self.delta(
                        out,
                        &json!({ "type": "input_json_delta", "partial_json": call.arguments }),
                    );
                    self.stop(out);
                }
                AnswerEvent::Malformed { .. } => {}
            }
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, state: &FlightState, end: &FlightEnd) {
        match end {
            FlightEnd::Answered { finish, usage, .. } => {
                if self.blocks == 0 {
                    self.start(out, &json!({ "type": "text", "text": "" }));
                    self.open = Some(Open::Text);
                }
                self.close(out);
                let stop = state.stop_text.as_deref();
                let reason = blocks::stop_reason(state, *finish, self.calls > 0);
                event(
                    out,
                    &json!({
                        "type": "message_delta",
                        "delta": { "stop_reason": reason, "stop_sequence": stop },
                        "usage": blocks::usage(*usage),
                    }),
                );
                event(out, &json!({ "type": "message_stop" }));
            }
            FlightEnd::Failed(error) => event(out, &Self::ERRORS.body(error)),
        }
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        event(out, &json!({ "type": "ping" }));
    }
}
