//! One answer's text, split into thinking, text and calls while it is being sampled.

use super::message::{Message, Role, ToolCall};
use super::thinking::{Part, Thinking, ThinkingSplitter};
use super::tool_parser::{ParseEvent, ParsedCall, ToolFormat, ToolParser, ToolSchemas};

/// A piece of an answer, in the order in which it became certain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerEvent {
    /// More thinking.
    Thinking(String),
    /// More text.
    Text(String),
    /// One whole call, under the id that its result will refer to.
    Call {
        /// Names the call.
        id: String,
        /// Name and arguments.
        call: ParsedCall,
    },
    /// Text that was meant as a call and is none; it was given out as `Text`.
    Malformed {
        /// Why.
        reason: String,
    },
}

/// A running parser of one answer.
#[derive(Debug)]
pub struct AnswerParser {
    thinking: ThinkingSplitter,
    tools: ToolParser,
    new_id: fn() -> String,
    message: Message,
    malformed: u32,
}

impl AnswerParser {
    /// `format`: `None` if the request offers no tools or the policy knows none. `thinking`: whether the
    /// template knows thinking, and whether its prompt has already opened it. `new_id` names calls that the
    /// policy has not named.
    pub fn new(format: Option<ToolFormat>, thinking: Thinking, new_id: fn() -> String) -> Self {
        Self {
            thinking: ThinkingSplitter::new(thinking),
            tools: format.map_or_else(ToolParser::plain, ToolFormat::parser),
            new_id,
            message: Message::text(Role::Assistant, ""),
            malformed: 0,
        }
    }

    /// With the schemas of the tools that the request offers: some formats write arguments as plain text.
    #[must_use]
    pub fn with_schemas(mut self, schemas: ToolSchemas) -> Self {
        self.tools = self.tools.with_schemas(schemas);
        self
    }

    /// Takes more text and gives what is certain by now.
    pub fn push(&mut self, text: &str) -> Vec<AnswerEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let parts = self.thinking.push(text);
        self.take(parts)
    }

    /// The answer is over.
    pub fn finish(&mut self) -> Vec<AnswerEvent> {
        let parts = self.thinking.finish();
        let mut events = self.take(parts);
        let last = self.tools.finish();
        events.extend(last.into_iter().map(|event| self.convert(event)));
        events
    }

    /// The answer so far, as a message.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Malformed calls so far.
    pub fn malformed(&self) -> u32 {
        self.malformed
    }

    fn take(&mut self, parts: Vec<Part>) -> Vec<AnswerEvent> {
        let mut events = Vec::new();
        for part in parts {
            match part {
                Part::Thinking(text) => {
                    self.message.reasoning_content.get_or_insert_default().push_str(&text);
                    events.push(AnswerEvent::Thinking(text));
                }
                Part::Text(text) => {
                    let parsed = self.tools.push(&text);
                    events.extend(parsed.into_iter().map(|event| self.convert(event)));
                }
            }
        }
        events
    }

    /// The policy's own id where it gives one that names no other call of this answer: templates show it again.
    fn id_of(&self, call: &ParsedCall) -> String {
        let taken = |id: &String| self.message.tool_calls.iter().any(|call| call.id.as_ref() == Some(id));
        let own = call.id.clone().filter(|id| !id.is_empty() && !taken(id));
        own.unwrap_or_else(self.new_id)
    }

    fn convert(&mut self, event: ParseEvent) -> AnswerEvent {
        match event {
            ParseEvent::Text(text) => {
                self.message.content.push_str(&text);
                AnswerEvent::Text(text)
            }
            ParseEvent::Call(call) => {
                let id = self.id_of(&call);
                let arguments = ToolCall::parse_arguments(&call.arguments);
                self.message
                    .tool_calls
                    .push(ToolCall::new(Some(id.clone()), call.name.clone(), arguments));
                AnswerEvent::Call { id, call }
            }
            ParseEvent::Malformed { reason } => {
                self.malformed += 1;
                AnswerEvent::Malformed { reason }
            }
        }
    }
}

/// A name for a call that nobody has named.
pub fn new_call_id() -> String {
    format!("call_{}", uuid::Uuid::new_v4().simple())
}
