//! The parser that runs beside an answer, whatever its format.

use super::balance::Balance;
use super::format::{Ending, ToolFormat};
use super::opening::Next;
use super::schema::ToolSchemas;
use super::{ParseEvent, json_calls};

/// A running parser.
///
/// White space before a call, and between or behind calls, belongs to the format and not to the text.
#[derive(Debug, Clone)]
pub struct ToolParser {
    /// `None`: the policy has no tools, all is text.
    format: Option<ToolFormat>,
    schemas: ToolSchemas,
    /// Not given out yet: white space, the beginning of a mark, or the inside of a call.
    held: String,
    /// The call that has begun.
    open: Option<Open>,
    /// Nothing but space and calls so far.
    start: bool,
    seen_call: bool,
}

/// A call that has begun.
#[derive(Debug, Clone)]
struct Open {
    mark: &'static str,
    /// White space that stood before the call; text again if the call is none.
    space: String,
    /// Where to go on looking for the closing mark.
    searched: usize,
    balance: Balance,
}

impl ToolParser {
    pub(super) fn new(format: ToolFormat) -> Self {
        Self {
            format: Some(format),
            ..Self::plain()
        }
    }

    /// With what parameters that are written as plain text are cast by.
    #[must_use]
    pub fn with_schemas(self, schemas: ToolSchemas) -> Self {
        Self { schemas, ..self }
    }

    /// A parser for policies without tools: all is text.
    pub fn plain() -> Self {
        Self {
            format: None,
            schemas: ToolSchemas::default(),
            held: String::new(),
            open: None,
            start: true,
            seen_call: false,
        }
    }

    /// Takes more text and gives what is certain by now.
    pub fn push(&mut self, text: &str) -> Vec<ParseEvent> {
        let mut events = Vec::new();
        match self.format {
            None => push_text(&mut events, text),
            Some(format) => {
                self.held.push_str(text);
                while self.step(format, &mut events) {}
            }
        }
        events
    }

    /// The answer is over.
    pub fn finish(&mut self) -> Vec<ParseEvent> {
        let rest = std::mem::take(&mut self.held);
        let mut events = Vec::new();
        let Some(format) = self.format else {
            return events;
        };
        if let Some(open) = self.open.take() {
            // The closing mark was never sampled. A complete call is one all the same.
            self.close(format, &open, &rest, "", &mut events);
        } else if !(self.seen_call && rest.trim_matches(|char| is_space(format, char)).is_empty()) {
            push_text(&mut events, &rest);
        }
        events
    }

    /// Makes one move; false when more text is needed.
    fn step(&mut self, format: ToolFormat, events: &mut Vec<ParseEvent>) -> bool {
        if let Some(mut open) = self.open.take() {
            let Some((end, close)) = open.end(format, &self.held) else {
                self.open = Some(open);
                return false;
            };
            let body = self.held[..end].to_owned();
            self.held.drain(..end + close.len());
            self.close(format, &open, &body, close, events);
            return true;
        }
        // Separators are only space behind a call; an answer that begins with one is text.
        let seen_call = self.seen_call;
        let space = move |char: char| char.is_whitespace() || (seen_call && format.separator() == Some(char));
        match format.opening().next(&self.held, self.start, space) {
            Next::Call { at, mark } => {
                let before = self.held[..at].trim_end_matches(space).len();
                self.give(before, events);
                let space = self.held[..at - before].to_owned();
                self.held.drain(..at - before + mark.len());
                self.open = Some(Open {
                    mark,
                    space,
                    searched: 0,
                    balance: Balance::default(),
                });
                true
            }
            Next::Noise { at, length } => {
                let before = self.held[..at].trim_end_matches(space).len();
                self.held.drain(before..at + length);
                self.give(before, events);
                true
            }
            Next::Text { until } => {
                let certain = self.held[..until].trim_end_matches(space).len();
                self.give(certain, events);
                false
            }
        }
    }

    /// Gives out the first `length` bytes as text.
    fn give(&mut self, length: usize, events: &mut Vec<ParseEvent>) {
        let text: String = self.held.drain(..length).collect();
        self.start &= text.is_empty();
        push_text(events, &text);
    }

    /// Ends a call: `body` stood between its marks.
    fn close(&mut self, format: ToolFormat, open: &Open, body: &str, close: &str, events: &mut Vec<ParseEvent>) {
        match format.calls(open.mark, body, &self.schemas) {
            Ok(calls) => {
                self.seen_call = true;
                self.start = true;
                events.extend(calls.into_iter().map(ParseEvent::Call));
            }
            Err(reason) => {
                self.start = false;
                push_text(events, &format!("{}{}{body}{close}", open.space, open.mark));
                events.push(ParseEvent::Malformed { reason });
            }
        }
    }
}

impl Open {
    /// Where the body is over, and the mark that closes it.
    fn end(&mut self, format: ToolFormat, held: &str) -> Option<(usize, &'static str)> {
        match format.ending(self.mark) {
            Ending::Mark(close, values) => loop {
                let Some(at) = held[self.searched..].find(close).map(|at| at + self.searched) else {
                    let keep = held.len().saturating_sub(close.len() - 1);
                    self.searched = self.searched.max(held.floor_char_boundary(keep));
                    return None;
                };
                // A value may hold the closing mark itself.
                let before = &held[..at];
                let waiting = values.is_some_and(|values| {
                    let ended = values.before_end.iter().any(|end| before.trim_end().ends_with(end));
                    before.contains(values.open) && !ended
                });
                if !waiting {
                    return Some((at, close));
                }
                self.searched = at + close.len();
            },
            Ending::Brackets => {
                let from = match format {
                    ToolFormat::Mistral => json_calls::mistral_value(held)?,
                    _ => held.find(['{', '['])?,
                };
                let single = format == ToolFormat::Pythonic;
                let end = self.balance.advance(held, from, single)?;
                Some((end, ""))
            }
        }
    }
}

fn is_space(format: ToolFormat, char: char) -> bool {
    char.is_whitespace() || format.separator() == Some(char)
}

fn push_text(events: &mut Vec<ParseEvent>, text: &str) {
    if !text.is_empty() {
        events.push(ParseEvent::Text(text.to_owned()));
    }
}
