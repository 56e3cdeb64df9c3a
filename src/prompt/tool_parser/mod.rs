//! Tool calls in sampled text, found while it is being sampled.
//!
//! Every format is an incremental parser whose result does not depend on where the text was cut. What looks
//! like a call and is none stays text and is reported: nothing is dropped and nothing is an error.

mod hermes;
mod lenient_json;
#[cfg(test)]
mod tests;

use hermes::Hermes;

/// How a policy writes tool calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>`
    Hermes,
}

impl ToolFormat {
    /// The format of this name in run.toml; `auto` is not one, see [`detect`](Self::detect).
    pub fn from_name(name: &str) -> Option<Self> {
        (name == "hermes").then_some(Self::Hermes)
    }

    /// The name in run.toml and in shards.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hermes => "hermes",
        }
    }

    /// Reads the format off a chat template, which renders earlier calls as the policy writes them.
    pub fn detect(template: &str) -> Option<Self> {
        // `<function=` inside the same tags is another format, which JSON parsing would refuse throughout.
        (template.contains("<tool_call>") && !template.contains("<function=")).then_some(Self::Hermes)
    }

    /// A parser for one answer.
    pub fn parser(self) -> ToolParser {
        match self {
            Self::Hermes => ToolParser::Hermes(Hermes::default()),
        }
    }
}

/// A call, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedCall {
    /// What is called.
    pub name: String,
    /// JSON text of an object, as the policy wrote it (control characters escaped).
    pub arguments: String,
}

/// What a parser found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseEvent {
    /// Text outside calls.
    Text(String),
    /// One whole call.
    Call(ParsedCall),
    /// The text before it was meant as a call and is none; it was also given out as `Text`.
    Malformed {
        /// Why.
        reason: String,
    },
}

/// A running parser.
#[derive(Debug, Clone)]
pub enum ToolParser {
    /// `<tool_call>` tags around JSON.
    Hermes(Hermes),
    /// The policy has no tools: all is text.
    Plain,
}

impl ToolParser {
    /// Takes more text and gives what is certain by now.
    pub fn push(&mut self, text: &str) -> Vec<ParseEvent> {
        match self {
            Self::Hermes(parser) => parser.push(text),
            Self::Plain if text.is_empty() => Vec::new(),
            Self::Plain => vec![ParseEvent::Text(text.to_owned())],
        }
    }

    /// The answer is over.
    pub fn finish(&mut self) -> Vec<ParseEvent> {
        match self {
            Self::Hermes(parser) => parser.finish(),
            Self::Plain => Vec::new(),
        }
    }
}
