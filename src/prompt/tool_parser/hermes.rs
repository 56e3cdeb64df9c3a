//! `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, any number of times, text between them.

use super::lenient_json::{escape_control_characters, object_text};
use super::{ParseEvent, ParsedCall};

const OPEN: &str = "<tool_call>";
const CLOSE: &str = "</tool_call>";

/// A running parser.
///
/// White space before a call, and between or behind calls, belongs to the format and not to the text.
#[derive(Debug, Clone, Default)]
pub struct Hermes {
    /// Not given out yet: white space, the beginning of a tag, or the inside of a call.
    held: String,
    inside: bool,
    /// White space that stood before the call; text again if the call is none.
    space: String,
    /// Where to go on looking for the closing tag in `held`.
    searched: usize,
    seen_call: bool,
}

impl Hermes {
    pub(super) fn push(&mut self, text: &str) -> Vec<ParseEvent> {
        self.held.push_str(text);
        let mut events = Vec::new();
        while self.step(&mut events) {}
        events
    }

    pub(super) fn finish(&mut self) -> Vec<ParseEvent> {
        let rest = std::mem::take(&mut self.held);
        let mut events = Vec::new();
        if std::mem::take(&mut self.inside) {
            // The closing tag was never sampled. A complete object is a call all the same.
            self.close(&rest, "", &mut events);
        } else if !(self.seen_call && rest.trim().is_empty()) {
            push_text(&mut events, &rest);
        }
        events
    }

    /// Makes one move; false when more text is needed.
    fn step(&mut self, events: &mut Vec<ParseEvent>) -> bool {
        if self.inside {
            let Some(at) = self.held[self.searched..].find(CLOSE).map(|at| at + self.searched) else {
                let keep = self.held.len().saturating_sub(CLOSE.len() - 1);
                self.searched = floor_boundary(&self.held, keep);
                return false;
            };
            let body = self.held[..at].to_owned();
            self.held.drain(..at + CLOSE.len());
            self.inside = false;
            self.close(&body, CLOSE, events);
            return true;
        }
        if let Some(at) = self.held.find(OPEN) {
            let before = self.held[..at].trim_end();
            push_text(events, before);
            self.space = self.held[before.len()..at].to_owned();
            self.held.drain(..at + OPEN.len());
            self.inside = true;
            self.searched = 0;
            return true;
        }
        // Hold back white space at the end and what may become a tag.
        let partial = (1..OPEN.len())
            .rev()
            .find(|&length| self.held.ends_with(&OPEN[..length]))
            .unwrap_or(0);
        let certain = self.held[..self.held.len() - partial].trim_end().len();
        let text: String = self.held.drain(..certain).collect();
        push_text(events, &text);
        false
    }

    /// Ends a call: `body` stood between the tags.
    fn close(&mut self, body: &str, close: &str, events: &mut Vec<ParseEvent>) {
        match parse_call(body) {
            Ok(call) => {
                self.seen_call = true;
                events.push(ParseEvent::Call(call));
            }
            Err(reason) => {
                push_text(events, &format!("{}{OPEN}{body}{close}", self.space));
                events.push(ParseEvent::Malformed { reason });
            }
        }
    }
}

fn push_text(events: &mut Vec<ParseEvent>, text: &str) {
    if !text.is_empty() {
        events.push(ParseEvent::Text(text.to_owned()));
    }
}

fn floor_boundary(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[derive(serde::Deserialize)]
struct WireCall<'a> {
    name: String,
    #[serde(borrow, alias = "parameters", default)]
    arguments: Option<&'a serde_json::value::RawValue>,
}

fn parse_call(body: &str) -> Result<ParsedCall, String> {
    let json = escape_control_characters(body.trim());
    let call: WireCall<'_> = serde_json::from_str(&json).map_err(|error| error.to_string())?;
    let arguments = match call.arguments {
        None => "{}".to_owned(),
        Some(raw) => object_text(raw.get()).ok_or("`arguments` is no JSON object")?,
    };
    Ok(ParsedCall {
        name: call.name,
        arguments,
    })
}
