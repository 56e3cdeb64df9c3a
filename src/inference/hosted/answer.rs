//! One answer of a hosted API as it comes: text and thinking at once, each tool call once it is whole.

use std::time::Duration;

use reqwest::Response;
use serde_json::Value;

use super::HostedError;
use crate::inference::remote::{Payload, ServerEvents, said};
use crate::inference::{EngineError, EngineUsage};
use crate::prompt::{AnswerEvent, Message, ParsedCall, Role, ToolCall, new_call_id};
use crate::trajectory::FinishReason;

/// Bytes of an answer that is not streamed, at most.
const LONGEST: usize = 64 << 20;

/// An answer that is being read.
pub struct HostedAnswer {
    /// None once everything has been read.
    source: Option<Source>,
    patience: Duration,
    read: Read,
}

enum Source {
    Events(Box<ServerEvents>),
    /// A server that does not stream.
    Whole(Response),
}

impl HostedAnswer {
    pub(super) fn of(response: Response, streamed: bool, patience: Duration) -> Self {
        let source = if streamed {
            Source::Events(Box::new(ServerEvents::of(response)))
        } else {
            Source::Whole(response)
        };
        Self {
            source: Some(source),
            patience,
            read: Read::new(),
        }
    }

    /// What has come since the last look; `None` behind the end.
    ///
    /// # Errors
    /// The stream broke, ended too soon, or says that the server failed.
    pub async fn next(&mut self) -> Result<Option<Vec<AnswerEvent>>, HostedError> {
        let Some(source) = &mut self.source else {
            return Ok(None);
        };
        let whole = matches!(source, Source::Whole(_));
        let next = async {
            match source {
                Source::Events(events) => match events.next().await? {
                    Payload::Event(event) => json(&event).map(Some),
                    Payload::Done => Ok(None),
                },
                Source::Whole(response) => match response.chunk().await {
                    Ok(chunk) => {
                        let mut body = chunk.map(Vec::from).unwrap_or_default();
                        while let Ok(Some(more)) = response.chunk().await {
                            body.extend_from_slice(&more);
                            if body.len() > LONGEST {
                                return Err(format!("the answer is longer than {LONGEST} bytes"));
                            }
                        }
                        json(&body).map(Some)
                    }
                    Err(error) => Err(error.to_string()),
                },
            }
        };
        let chunk = match tokio::time::timeout(self.patience, next).await {
            Ok(chunk) => chunk.map_err(|reason| lost(&reason))?,
            Err(_) => return Err(lost(&format!("nothing came within {:?}", self.patience))),
        };
        if whole || chunk.is_none() {
            self.source = None;
        }
        let mut events = match &chunk {
            Some(chunk) => self.read.take(chunk).map_err(|reason| lost(&reason))?,
            None => Vec::new(),
        };
        if self.source.is_none() {
            events.extend(self.read.end_calls());
            if self.read.finish.is_none() {
                return Err(lost("the answer ended without a finish reason"));
            }
        }
        Ok(Some(events))
    }

    /// The answer so far.
    pub fn message(&self) -> &Message {
        &self.read.message
    }

    /// Why it ended, once it has.
    pub fn finish(&self) -> Option<FinishReason> {
        self.read.finish
    }

    /// Whether the API's filter ended it.
    pub fn was_filtered(&self) -> bool {
        self.read.filtered
    }

    /// What the API counted, where it says so.
    pub fn usage(&self) -> EngineUsage {
        self.read.usage
    }

    /// Calls whose arguments are no JSON object.
    pub fn malformed(&self) -> u32 {
        let calls = self.read.message.tool_calls.iter();
        calls.filter(|call| !call.function.arguments.is_object()).count() as u32
    }
}

fn lost(reason: &str) -> HostedError {
    HostedError::Lost(EngineError::Unavailable {
        reason: reason.to_owned(),
        retry_after: None,
    })
}

/// What the chunks so far have said.
struct Read {
    message: Message,
    /// The calls that have begun and not ended, by their index.
    open: Vec<(u64, ParsedCall)>,
    finish: Option<FinishReason>,
    filtered: bool,
    usage: EngineUsage,
}

impl Read {
    fn new() -> Self {
        Self {
            message: Message::text(Role::Assistant, ""),
            open: Vec::new(),
            finish: None,
            filtered: false,
            usage: EngineUsage::default(),
        }
    }

    /// Reads a chunk, or a whole answer: they differ by `delta` and `message`.
    fn take(&mut self, chunk: &Value) -> Result<Vec<AnswerEvent>, String> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(said(error));
        }
        let count = |value: &Value| value.as_u64().unwrap_or(0) as u32;
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = EngineUsage {
                prompt: count(&usage["prompt_tokens"]),
                cached: count(&usage["prompt_tokens_details"]["cached_tokens"]),
                completion: count(&usage["completion_tokens"]),
            };
        }
        let choice = &chunk["choices"][0];
        let new = choice.get("delta").unwrap_or(&choice["message"]);
        let mut events = Vec::new();
        let text = |key: &str| new[key].as_str().filter(|text| !text.is_empty());
        // Two names for the same are in use.
        if let Some(thinking) = text("reasoning_content").or_else(|| text("reasoning")) {
            self.message
                .reasoning_content
                .get_or_insert_default()
                .push_str(thinking);
            events.push(AnswerEvent::Thinking(thinking.to_owned()));
        }
        for key in ["content", "refusal"] {
            if let Some(text) = text(key) {
                self.message.content.push_str(text);
                events.push(AnswerEvent::Text(text.to_owned()));
            }
        }
        for (place, call) in new["tool_calls"].as_array().into_iter().flatten().enumerate() {
            let index = call["index"].as_u64().unwrap_or(place as u64);
            if self.open.last().is_some_and(|(open, _)| *open != index) {
                events.extend(self.end_calls());
            }
            if self.open.is_empty() {
                self.open.push((index, ParsedCall::default()));
            }
            if let Some((_, open)) = self.open.last_mut() {
                let function = &call["function"];
                open.name += function["name"].as_str().unwrap_or_default();
                open.arguments += function["arguments"].as_str().unwrap_or_default();
                let id = call["id"].as_str().filter(|id| !id.is_empty());
                open.id = open.id.take().or_else(|| id.map(str::to_owned));
            }
        }
        if let Some(reason) = choice["finish_reason"].as_str() {
            self.filtered = reason == "content_filter";
            self.finish = Some(match reason {
                "length" => FinishReason::Length,
                _ => FinishReason::Stop,
            });
            events.extend(self.end_calls());
        }
        Ok(events)
    }

    /// The calls that were open are whole now.
    fn end_calls(&mut self) -> Vec<AnswerEvent> {
        let message = &mut self.message;
        let ended = self.open.drain(..).map(|(_, mut call)| {
            let id = call.id.get_or_insert_with(new_call_id).clone();
            if call.arguments.trim().is_empty() {
                "{}".clone_into(&mut call.arguments);
            }
            let arguments = ToolCall::parse_arguments(&call.arguments);
            let recorded = ToolCall::new(Some(id.clone()), call.name.clone(), arguments);
            message.tool_calls.push(recorded);
            AnswerEvent::Call { id, call }
        });
        ended.collect()
    }
}

fn json(text: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(text).map_err(|error| format!("what came is not JSON: {error}"))
}
