//! Server-sent events of one answer: role, content and call deltas, finish, usage, `[DONE]`.
//!
//! Tokens leave as they are sampled. While nothing comes, comments keep the connection alive; and whatever
//! happens, the stream does not end without its final event.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde_json::{Value, json};

use super::error_body;
use super::response::{Envelope, call_object, finish_reason, logprobs_object, usage_object};
use crate::prompt::AnswerEvent;
use crate::proxy::flight::{FlightEnd, News, Viewer};
use crate::proxy::session::Session;

/// Until then the status is open: an error still has its own, afterwards it is an event of the stream.
pub(super) const FIRST_BYTE_PATIENCE: Duration = Duration::from_secs(5);

struct State {
    session: Arc<Session>,
    viewer: Viewer,
    envelope: Envelope,
    calls: usize,
    begun: bool,
    done: bool,
}

/// Streams the answer that `viewer` watches.
pub(super) fn respond(session: &Arc<Session>, viewer: Viewer, envelope: Envelope) -> Response<Body> {
    let state = State {
        session: Arc::clone(session),
        viewer,
        envelope,
        calls: 0,
        begun: false,
        done: false,
    };
    let chunks = stream::unfold(state, |mut state| async move {
        if state.done {
            return None;
        }
        let bytes = state.next().await;
        Some((Ok::<_, std::convert::Infallible>(bytes), state))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl State {
    /// The next bytes of the stream: everything that is new, or a comment.
    async fn next(&mut self) -> Bytes {
        let mut out = Vec::new();
        if !self.begun {
            self.begun = true;
            let mut chunk = self.chunk(json!({ "role": "assistant", "content": "" }), None);
            if self.envelope.presentation.return_token_ids {
                chunk["prompt_token_ids"] = self.viewer.flight().state().prompt.as_ref().into();
            }
            write(&mut out, &chunk);
            return out.into();
        }
        match self.viewer.next(self.session.proxy.keep_alive).await {
            None => out.extend_from_slice(b": keep-alive\n\n"),
            Some(news) => self.write_news(&mut out, &news),
        }
        out.into()
    }

    fn write_news(&mut self, out: &mut Vec<u8>, news: &News) {
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
                self.add_tokens(&mut chunk["choices"][0], news);
            }
            write(out, &chunk);
        }
        if let Some(end) = &news.end {
            self.write_end(out, end);
        }
    }

    fn add_tokens(&self, choice: &mut Value, news: &News) {
        if self.envelope.presentation.return_token_ids {
            choice["token_ids"] = news.ids.as_slice().into();
        }
        if self.envelope.presentation.logprobs {
            choice["logprobs"] = logprobs_object(self.session.proxy.prompt.tokenizer(), &news.ids, &news.logprobs);
        }
    }

    fn write_end(&mut self, out: &mut Vec<u8>, end: &FlightEnd) {
        match end {
            FlightEnd::Answered { finish, usage, .. } => {
                write(
                    out,
                    &self.chunk(json!({}), Some(finish_reason(*finish, self.calls > 0))),
                );
                if self.envelope.presentation.include_usage {
                    let mut chunk = self.chunk(json!({}), None);
                    chunk["choices"] = Value::Array(Vec::new());
                    chunk["usage"] = usage_object(*usage);
                    write(out, &chunk);
                }
            }
            FlightEnd::Failed(error) => write(out, &error_body(error)),
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
        self.done = true;
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

fn write(out: &mut Vec<u8>, value: &Value) {
    out.extend_from_slice(b"data: ");
    // Values of ours always serialise.
    let _ = serde_json::to_writer(&mut *out, value);
    out.extend_from_slice(b"\n\n");
}
