//! Writes an answer: whole, or as the numbered events of a response and its items.
//!
//! The whole answer is made by the same steps as the stream, with its events thrown away: they cannot differ.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::output::Status;
use super::{ErrorShape, Repeated, Session, output};
use crate::inference::EngineUsage;
use crate::prompt::{AnswerEvent, ParsedCall};
use crate::proxy::dialect::{Answered, Writer, answer_id, event};
use crate::proxy::flight::{FlightEnd, FlightState, News};
use crate::trajectory::{FinishReason, SessionKey};

/// Writes one answer.
#[derive(Clone)]
pub(super) struct ResponsesWriter {
    id: String,
    created: i64,
    repeated: Repeated,
    sequence: u64,
    /// Items that are complete.
    items: Vec<Value>,
    open: Option<Open>,
}

/// The item that is being written, and its text so far.
#[derive(Debug, Clone)]
struct Open {
    thinking: bool,
    id: String,
    text: String,
}

impl ResponsesWriter {
    pub(super) fn new(session: &SessionKey, call: u32, repeated: Repeated) -> Self {
        Self {
            id: answer_id("resp_", session, call),
            created: Timestamp::now().as_second(),
            repeated,
            sequence: 0,
            items: Vec::new(),
            open: None,
        }
    }

    fn send(&mut self, out: &mut Vec<u8>, kind: &str, fields: Value) {
        let mut data = json!({ "type": kind, "sequence_number": self.sequence });
        self.sequence += 1;
        if let (Value::Object(data), Value::Object(fields)) = (&mut data, fields) {
            data.extend(fields);
        }
        event(out, &data);
    }

    /// An id for the next item.
    fn item_id(&self, prefix: &str) -> String {
        let own = self.id.strip_prefix("resp_").unwrap_or(&self.id);
        format!("{prefix}_{own}-{}", self.items.len())
    }

    /// The response as it is by now.
    fn response(&self, status: &str, usage: Option<EngineUsage>, error: &Value, incomplete: &Value) -> Value {
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.created, "status": status,
            "error": error, "incomplete_details": incomplete, "model": self.repeated.model,
            "output": self.items, "instructions": null, "max_output_tokens": null, "metadata": {},
            "parallel_tool_calls": true, "previous_response_id": null, "reasoning": null, "store": true,
            "temperature": null, "text": { "format": { "type": "text" } }, "tool_choice": "auto", "tools": [],
            "top_p": null, "truncation": "disabled", "usage": usage.map(output::usage),
        });
        for (name, value) in &self.repeated.fields {
            response[name] = value.clone();
        }
        response
    }

    fn write(&mut self, out: &mut Vec<u8>, thinking: bool, more: &str) {
        if self.open.as_ref().is_none_or(|open| open.thinking != thinking) {
            self.close(out, Status::Completed);
            self.begin_item(out, thinking);
        }
        let index = self.items.len();
        let Some(open) = &mut self.open else { return };
        open.text.push_str(more);
        let id = open.id.clone();
        if thinking {
            let fields = json!({ "item_id": id, "output_index": index, "summary_index": 0, "delta": more });
            self.send(out, "response.reasoning_summary_text.delta", fields);
        } else {
            let fields = json!({
                "item_id": id, "output_index": index, "content_index": 0, "delta": more, "logprobs": [],
            });
            self.send(out, "response.output_text.delta", fields);
        }
    }

    fn begin_item(&mut self, out: &mut Vec<u8>, thinking: bool) {
        let index = self.items.len();
        let id = self.item_id(if thinking { "rs" } else { "msg" });
        let item = if thinking {
            output::reasoning(&id, "", false, Status::InProgress)
        } else {
            output::message(&id, "", Status::InProgress)
        };
        let added = json!({ "output_index": index, "item": item });
        self.send(out, "response.output_item.added", added);
        if thinking {
            let part = output::summary_part("");
            let fields = json!({ "item_id": id, "output_index": index, "summary_index": 0, "part": part });
            self.send(out, "response.reasoning_summary_part.added", fields);
        } else {
            let part = output::text_part("");
            let fields = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
            self.send(out, "response.content_part.added", fields);
        }
        self.open = Some(Open {
            thinking,
            id,
            text: String::new(),
        });
    }

    fn close(&mut self, out: &mut Vec<u8>, status: Status) {
        let Some(Open { thinking, id, text }) = self.open.take() else {
            return;
        };
        let index = self.items.len();
        let item = if thinking {
            let place = json!({ "item_id": id, "output_index": index, "summary_index": 0 });
            let with = |key: &str, value: Value| {
                let mut fields = place.clone();
                fields[key] = value;
                fields
            };
            self.send(
                out,
                "response.reasoning_summary_text.done",
                with("text", text.clone().into()),
            );
            let part = with("part", output::summary_part(&text));
            self.send(out, "response.reasoning_summary_part.done", part);
            output::reasoning(&id, &text, self.repeated.encrypted, status)
        } else {
            let done = json!({
                "item_id": id, "output_index": index, "content_index": 0, "text": text, "logprobs": [],
            });
            self.send(out, "response.output_text.done", done);
            let part = output::text_part(&text);
            let fields = json!({ "item_id": id, "output_index": index, "content_index": 0, "part": part });
            self.send(out, "response.content_part.done", fields);
            output::message(&id, &text, status)
        };
        self.finish_item(out, item);
    }

    fn finish_item(&mut self, out: &mut Vec<u8>, item: Value) {
        let fields = json!({ "output_index": self.items.len(), "item": item });
        self.send(out, "response.output_item.done", fields);
        self.items.push(item);
    }

    fn call(&mut self, out: &mut Vec<u8>, call_id: &str, call: &ParsedCall) {
        self.close(out, Status::Completed);
        let (index, id) = (self.items.len(), self.item_id("fc"));
        let item = output::function_call(&id, call_id, call, false);
        self.send(
            out,
            "response.output_item.added",
            json!({ "output_index": index, "item": item }),
        );
        let delta = json!({ "item_id": id, "output_index": index, "delta": call.arguments });
        self.send(out, "response.function_call_arguments.delta", delta);
        let done = json!({
            "item_id": id, "output_index": index, "name": call.name, "arguments": call.arguments,
        });
        self.send(out, "response.function_call_arguments.done", done);
        self.finish_item(out, output::function_call(&id, call_id, call, true));
    }

    fn take(&mut self, out: &mut Vec<u8>, events: &[AnswerEvent]) {
        for piece in events {
            match piece {
                AnswerEvent::Text(text) => self.write(out, false, text),
                AnswerEvent::Thinking(text) => self.write(out, true, text),
                AnswerEvent::Call { id, call } => self.call(out, id, call),
                AnswerEvent::Malformed { .. } => {}
            }
        }
    }

    /// Completes the items and gives the response as it ends.
    fn ended(
        &mut self,
        out: &mut Vec<u8>,
        state: &FlightState,
        finish: FinishReason,
        usage: EngineUsage,
    ) -> (&'static str, Value) {
        if self.items.is_empty() && self.open.is_none() {
            self.begin_item(out, false);
        }
        let cut = match finish {
            _ if state.filtered => Some("content_filter"),
            FinishReason::Length => Some("max_output_tokens"),
            _ => None,
        };
        if let Some(reason) = cut {
            self.close(out, Status::Incomplete);
            let why = json!({ "reason": reason });
            (
                "incomplete",
                self.response("incomplete", Some(usage), &Value::Null, &why),
            )
        } else {
            self.close(out, Status::Completed);
            (
                "completed",
                self.response("completed", Some(usage), &Value::Null, &Value::Null),
            )
        }
    }
}

impl Writer for ResponsesWriter {
    const ERRORS: ErrorShape = ErrorShape::Responses;

    fn whole(&self, _: &Session, answered: &Answered<'_>) -> Value {
        let (mut writer, mut unread) = (self.clone(), Vec::new());
        writer.take(&mut unread, &answered.state.events);
        writer
            .ended(&mut unread, answered.state, answered.finish, answered.usage)
            .1
    }

    fn begin(&mut self, out: &mut Vec<u8>, _: &FlightState) {
        let response = self.response("in_progress", None, &Value::Null, &Value::Null);
        self.send(out, "response.created", json!({ "response": response }));
        self.keep_alive(out);
    }

    fn news(&mut self, out: &mut Vec<u8>, _: &Session, news: &News) {
        self.take(out, &news.events);
    }

    fn end(&mut self, out: &mut Vec<u8>, state: &FlightState, end: &FlightEnd) {
        let (status, response) = match end {
            FlightEnd::Answered { finish, usage, .. } => self.ended(out, state, *finish, *usage),
            FlightEnd::Failed(error) => {
                let error = json!({ "code": error.code.unwrap_or("server_error"), "message": error.message });
                ("failed", self.response("failed", None, &error, &Value::Null))
            }
        };
        self.send(out, &format!("response.{status}"), json!({ "response": response }));
    }

    /// Comments are no events, and clients that wait for events would give up.
    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        let response = self.response("in_progress", None, &Value::Null, &Value::Null);
        self.send(out, "response.in_progress", json!({ "response": response }));
    }
}
