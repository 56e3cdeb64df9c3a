//! Runs a recorded session through today's parsers, template and capture, and tells what changes. No engine.

use std::path::Path;

use serde_json::Value;

use super::call_log::{Begin, End};
use super::recording::Recording;
use super::recover::RecoveredSession;
use super::turns::Place;
use super::{ProxyError, SessionCapture};
use crate::config::{BuilderName, CaptureScope};
use crate::prompt::{AnswerParser, Message, PromptBuilder, Thinking, ToolFormat, ToolSchemas};
use crate::trajectory::{FinishReason, TokenId};

/// What differs in one call.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ReplayChange {
    /// The call, counted from 0 within its session.
    pub call: u32,
    /// `parent`, `prompt`, `text`, `thinking`, `tool_calls` or `parse_errors`.
    pub what: &'static str,
    /// As recorded.
    pub recorded: String,
    /// As it would be today.
    pub today: String,
}

/// A session, run again.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Calls that have ended.
    pub calls: u32,
    /// What differs, in the order of the calls.
    pub changes: Vec<ReplayChange>,
    /// What was recorded, exported today.
    pub recorded: SessionCapture,
    /// What today's parsers and capture make of it.
    pub today: SessionCapture,
}

/// Reads a call log and runs it again.
pub fn replay(
    path: &Path,
    prompt: &PromptBuilder,
    tool_format: Option<ToolFormat>,
    scope: CaptureScope,
    builder: BuilderName,
) -> Result<Replay, ProxyError> {
    let mut recorded = RecoveredSession::default();
    let mut run = Run {
        prompt,
        tool_format,
        today: Recording::default(),
        calls: 0,
        changes: Vec::new(),
        failure: None,
    };
    recorded.read(path, |before, begin, ids, end| run.call(before, begin, ids, end))?;
    run.today.note_seen_as(&recorded.recording);
    match run.failure {
        Some(error) => Err(error),
        None => Ok(Replay {
            calls: run.calls,
            changes: run.changes,
            recorded: recorded.capture(scope, builder),
            today: run.today.capture(scope, builder),
        }),
    }
}

struct Run<'a> {
    prompt: &'a PromptBuilder,
    tool_format: Option<ToolFormat>,
    today: Recording,
    calls: u32,
    changes: Vec<ReplayChange>,
    failure: Option<ProxyError>,
}

impl Run<'_> {
    fn call(&mut self, before: &Recording, begin: &Begin, ids: &[TokenId], end: &End) {
        self.calls += 1;
        let mut begin = begin.clone();
        let mut schemas = begin.tools.as_deref().map(ToolSchemas::of);
        if let Some((messages, tools)) = before.request_of(&begin) {
            schemas = tools.as_deref().map(ToolSchemas::of);
            let place = self.today.place(&messages, tools.as_deref());
            let parent = place.parent.map(|turn| self.today.call_of(turn));
            self.note(begin.call, "parent", named(begin.parent), named(parent));
            if !begin.raw && !end.without_ids {
                self.render(&begin, &place, &messages, tools.as_deref(), ids);
            }
            begin.parent = parent;
            begin.conversation = place.conversation;
            begin.new = messages[place.recorded..].to_vec();
        }
        if end.without_ids {
            // There are no tokens to parse again.
            if let Err(error) = self.today.record(ids, begin, end) {
                self.failure.get_or_insert(error);
            }
            return;
        }
        let (answer, parse_errors) = self.parse(end, schemas, begin.raw);
        self.compare(begin.call, end, &answer, parse_errors);
        let mut end = end.clone();
        // Ids are random: the recorded ones are what later requests refer to.
        for (call, recorded) in answer.tool_calls.iter().zip(&mut end.answer.tool_calls) {
            recorded.function.clone_from(&call.function);
        }
        let mut calls = end.answer.tool_calls;
        calls.truncate(answer.tool_calls.len());
        calls.extend(answer.tool_calls.iter().skip(calls.len()).cloned());
        end.answer = Message {
            tool_calls: calls,
            ..answer
        };
        end.parse_errors = parse_errors;
        if matches!(end.finish, FinishReason::Stop | FinishReason::Length) && !begin.raw {
            end.tail = self.prompt.tail(&end.answer).to_vec();
        }
        if let Err(error) = self.today.record(ids, begin, &end) {
            self.failure.get_or_insert(error);
        }
    }

    /// Builds the prompt as today and notes where it differs.
    fn render(&mut self, begin: &Begin, place: &Place, messages: &[Message], tools: Option<&[Value]>, ids: &[TokenId]) {
        let continued = place.parent.and_then(|turn| {
            let recorded = self.today.recorded(turn)?;
            recorded.prompt(self.prompt, &messages[place.recorded..], tools)
        });
        let rendered = continued.map_or_else(|| self.prompt.first(messages, tools), Ok);
        match rendered {
            Ok(today) if today != ids => {
                let at = today.iter().zip(ids).take_while(|(left, right)| left == right).count();
                let from = |ids: &[TokenId]| {
                    let shown = ids.get(at..).unwrap_or_default();
                    let text = self.prompt.tokenizer().decode(&shown[..shown.len().min(12)]);
                    format!("{} tokens, from {at} on: {text:?}", ids.len())
                };
                let (recorded, today) = (from(ids), from(&today));
                self.note(begin.call, "prompt", recorded, today);
            }
            Ok(_) => {}
            Err(error) => self.note(begin.call, "prompt", format!("{} tokens", ids.len()), error.to_string()),
        }
    }

    fn parse(&self, end: &End, schemas: Option<ToolSchemas>, raw: bool) -> (Message, u32) {
        let tokenizer = self.prompt.tokenizer();
        let thinking = if raw { Thinking::None } else { self.prompt.thinking() };
        let format = self.tool_format.filter(|_| schemas.is_some());
        let mut parser =
            AnswerParser::new(format, thinking, || "today".to_owned()).with_schemas(schemas.unwrap_or_default());
        let mut decoder = tokenizer.decode_stream();
        for &id in end.ids.iter().filter(|&&id| !tokenizer.is_stop(id)) {
            parser.push(&decoder.push(id));
        }
        parser.push(&decoder.finish());
        parser.finish();
        (parser.message().clone(), parser.malformed())
    }

    fn compare(&mut self, call: u32, end: &End, answer: &Message, parse_errors: u32) {
        let recorded = &end.answer;
        let thinking = |message: &Message| message.reasoning_content.clone().unwrap_or_default();
        let calls = |message: &Message| {
            let shown: Vec<String> = message
                .tool_calls
                .iter()
                .map(|call| format!("{}({})", call.function.name, call.function.arguments))
                .collect();
            shown.join(" ")
        };
        // An answer that a stop text cut has more tokens than text.
        if !answer.content.starts_with(&recorded.content) || end.beyond == 0 {
            self.note(call, "text", recorded.content.clone(), answer.content.clone());
        }
        self.note(call, "thinking", thinking(recorded), thinking(answer));
        self.note(call, "tool_calls", calls(recorded), calls(answer));
        self.note(
            call,
            "parse_errors",
            end.parse_errors.to_string(),
            parse_errors.to_string(),
        );
    }

    fn note(&mut self, call: u32, what: &'static str, recorded: String, today: String) {
        if recorded != today {
            self.changes.push(ReplayChange {
                call,
                what,
                recorded,
                today,
            });
        }
    }
}

fn named(call: Option<u32>) -> String {
    call.map_or_else(|| "none".to_owned(), |call| format!("call {call}"))
}
