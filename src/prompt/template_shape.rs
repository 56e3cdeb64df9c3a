//! What a template expects of messages with tool calls, found by trying.
//!
//! Most take arguments as an object and an absent text as empty. Some want the arguments' JSON text, some take
//! calls only where the text is null, some only ids of nine letters; and some lose calls without a word.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::template_functions::python_json;
use super::{Message, Role, ToolCall};

/// The form in which messages are given to a template.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Shape {
    /// Arguments as JSON text.
    text_arguments: bool,
    /// `content` is null where there are calls and no text.
    null_content: bool,
    /// Ids are cut to nine letters and digits.
    short_ids: bool,
}

impl Shape {
    /// Every shape, the usual one first.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [false, true].into_iter().flat_map(|short_ids| {
            [(false, false), (true, false), (false, true), (true, true)].map(|(text_arguments, null_content)| Self {
                text_arguments,
                null_content,
                short_ids,
            })
        })
    }

    /// Messages in this shape.
    pub(super) fn apply(self, messages: &[Message]) -> Result<Value, serde_json::Error> {
        let shaped: Result<Vec<Value>, _> = messages.iter().map(|message| self.message(message)).collect();
        shaped.map(Value::Array)
    }

    fn message(self, message: &Message) -> Result<Value, serde_json::Error> {
        let mut value = serde_json::to_value(message)?;
        if self.null_content && !message.tool_calls.is_empty() && message.content.is_empty() {
            value["content"] = Value::Null;
        }
        if let Some(calls) = value.get_mut("tool_calls").and_then(Value::as_array_mut) {
            for call in calls {
                let arguments = &mut call["function"]["arguments"];
                if self.text_arguments && !arguments.is_string() {
                    *arguments = Value::String(python_json(arguments));
                }
                if self.short_ids {
                    call["id"] = Value::String(nine(call["id"].as_str().unwrap_or_default()));
                }
            }
        }
        if self.short_ids
            && let Some(id) = &message.tool_call_id
        {
            value["tool_call_id"] = Value::String(nine(id));
        }
        Ok(value)
    }
}

/// The last nine letters and digits of an id, with zeros before them where there are fewer.
fn nine(id: &str) -> String {
    let kept: Vec<char> = id.chars().filter(char::is_ascii_alphanumeric).collect();
    let tail: String = kept[kept.len().saturating_sub(9)..].iter().collect();
    format!("{tail:0>9}")
}

/// A conversation with a call and its result, and the texts that a rendering must hold.
pub(super) fn probe() -> (Vec<Message>, [&'static str; 3]) {
    // Kimi's template shows the id and never the name, which its ids hold.
    const ID: &str = "functions.probe_tool:0";
    const WORDS: [&str; 3] = ["probe_tool", "probe-argument", "probe-result"];
    let [name, argument, result] = WORDS;
    let call = ToolCall::new(Some(ID.to_owned()), name, json!({ "x": argument }));
    let messages = vec![
        Message::text(Role::User, "a"),
        Message {
            tool_calls: vec![call],
            ..Message::text(Role::Assistant, "")
        },
        Message::tool_result(ID, result),
    ];
    (messages, WORDS)
}

/// Which of the probe's texts a rendering lacks.
pub(super) fn lost<'w>(text: &str, words: &[&'w str]) -> Option<Cow<'w, str>> {
    let lacking: Vec<&str> = words.iter().copied().filter(|word| !text.contains(word)).collect();
    match lacking.as_slice() {
        [] => None,
        [one] => Some(Cow::Borrowed(*one)),
        several => Some(Cow::Owned(several.join("`, `"))),
    }
}
