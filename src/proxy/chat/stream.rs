//! The events of one answer: role, content and call deltas, finish, usage, `[DONE]`.

use serde::Serialize;
use serde_json::Value;

use super::response::{self, Envelope, call_object, finish_reason, logprobs_object, usage_object};
use super::{ErrorShape, Presentation, Session};
use crate::prompt::AnswerEvent;
use crate::proxy::dialect::{Answered, Writer, unnamed_event};
use crate::proxy::flight::{FlightEnd, FlightState, News};
use crate::trajectory::{SessionKey, TokenId};

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

    /// Writes one chunk; the last one, with the usage, has no choice.
    fn write(&self, out: &mut Vec<u8>, choices: &[Choice<'_>], more: More<'_>) {
        let Envelope {
            id,
            created,
            presentation,
        } = &self.envelope;
        let chunk = Chunk {
            id,
            object: "chat.completion.chunk",
            created: *created,
            model: &presentation.model,
            choices,
            prompt_token_ids: more.prompt_token_ids,
            usage: more.usage,
        };
        unnamed_event(out, &chunk);
    }
}

/// A chunk, as it goes out. There may be one for every token, so nothing is built before it is written.
#[derive(Serialize)]
struct Chunk<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: &'a [Choice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [TokenId]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Value>,
}

/// What some chunks have besides.
#[derive(Default)]
struct More<'a> {
    prompt_token_ids: Option<&'a [TokenId]>,
    usage: Option<Value>,
}

#[derive(Default, Serialize)]
struct Choice<'a> {
    index: u32,
    delta: Delta<'a>,
    logprobs: Value,
    finish_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_ids: Option<&'a [TokenId]>,
}

#[derive(Default, Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<[Value; 1]>,
}

impl Writer for ChatWriter {
    const ERRORS: ErrorShape = ErrorShape::OpenAi;

    fn whole(&self, session: &Session, answered: &Answered<'_>) -> Value {
        response::completion(&self.envelope, session.proxy.tokenizer(), answered)
    }

    fn begin(&mut self, out: &mut Vec<u8>, state: &FlightState) {
        let delta = Delta {
            role: Some("assistant"),
            content: Some(""),
            ..Delta::default()
        };
        let wants_ids = self.envelope.presentation.return_token_ids;
        let more = More {
            prompt_token_ids: wants_ids.then_some(&state.prompt[..]),
            usage: None,
        };
        let choice = Choice {
            delta,
            ..Choice::default()
        };
        self.write(out, &[choice], more);
    }

    fn news(&mut self, out: &mut Vec<u8>, session: &Session, news: &News) {
        let mut deltas: Vec<Delta<'_>> = Vec::with_capacity(news.events.len());
        for event in &news.events {
            let mut delta = Delta::default();
            match event {
                AnswerEvent::Text(text) => delta.content = Some(text),
                AnswerEvent::Thinking(text) => delta.reasoning_content = Some(text),
                AnswerEvent::Call { id, call } => {
                    let mut object = call_object(id, call);
                    object["index"] = self.calls.into();
                    self.calls += 1;
                    delta.tool_calls = Some([object]);
                }
                AnswerEvent::Malformed { .. } => continue,
            }
            deltas.push(delta);
        }
        let Presentation {
            logprobs,
            return_token_ids,
            ..
        } = self.envelope.presentation;
        if (logprobs || return_token_ids) && deltas.is_empty() && !news.ids.is_empty() {
            deltas.push(Delta::default());
        }
        for (index, delta) in deltas.into_iter().enumerate() {
            let mut choice = Choice {
                delta,
                ..Choice::default()
            };
            // The first chunk tells of all the tokens.
            if index == 0 && return_token_ids {
                choice.token_ids = Some(&news.ids);
            }
            if index == 0 && logprobs {
                choice.logprobs = logprobs_object(session.proxy.tokenizer(), &news.ids, &news.logprobs);
            }
            self.write(out, &[choice], More::default());
        }
    }

    fn end(&mut self, out: &mut Vec<u8>, state: &FlightState, end: &FlightEnd) {
        match end {
            FlightEnd::Answered { finish, usage, .. } => {
                let choice = Choice {
                    finish_reason: Some(finish_reason(state, *finish, self.calls > 0)),
                    ..Choice::default()
                };
                self.write(out, &[choice], More::default());
                if self.envelope.presentation.include_usage {
                    let usage = Some(usage_object(*usage));
                    self.write(
                        out,
                        &[],
                        More {
                            usage,
                            ..More::default()
                        },
                    );
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
