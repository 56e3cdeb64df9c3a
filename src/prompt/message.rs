//! Messages in one form, whatever dialect they came in, and when two of them say the same.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions; also where they stand in mid-conversation. `developer` is read as this.
    #[serde(alias = "developer")]
    System,
    /// The person, or the agent on their behalf.
    User,
    /// The policy.
    Assistant,
    /// The result of a tool call.
    #[serde(alias = "function")]
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// Its text; several text blocks are joined by newlines. Absent and empty mean the same.
    #[serde(default)]
    pub content: String,
    /// Thinking that came before the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls that the assistant makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Name of the speaker or of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A call that the assistant makes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Names the call; its result refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`, as templates expect it.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// What is called.
    pub function: FunctionCall,
}

/// A function and its arguments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// Its name.
    pub name: String,
    /// A JSON object; a text that is none stays a string.
    pub arguments: Value,
}

fn function_type() -> String {
    "function".to_owned()
}

impl ToolCall {
    /// A call of a function.
    pub fn new(id: Option<String>, name: impl Into<String>, arguments: Value) -> Self {
        Self {
            id,
            kind: function_type(),
            function: FunctionCall {
                name: name.into(),
                arguments,
            },
        }
    }

    /// Arguments as templates want them: the object that a JSON text holds, else the text as it is.
    pub fn parse_arguments(text: &str) -> Value {
        match serde_json::from_str(text) {
            Ok(object @ Value::Object(_)) => object,
            _ if text.trim().is_empty() => Value::Object(serde_json::Map::new()),
            _ => Value::String(text.to_owned()),
        }
    }
}

impl Message {
    /// A message of text alone.
    pub fn text(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            reasoning_content: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// The result of a call.
    pub fn tool_result(tool_call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            ..Self::text(Role::Tool, content)
        }
    }

    /// Whether an agent that sends `self` back means the recorded message `other`.
    ///
    /// Agents trim text, drop thinking, re-serialise arguments and re-key objects. Calls are the same if
    /// their ids are, in sequence; else if names and arguments are equal as JSON values.
    pub fn says_the_same_as(&self, other: &Self) -> bool {
        self.role == other.role
            && self.content.trim() == other.content.trim()
            && (self.role != Role::Tool || same_reference(self.tool_call_id.as_deref(), other.tool_call_id.as_deref()))
            && same_calls(&self.tool_calls, &other.tool_calls)
    }
}

fn same_reference(left: Option<&str>, right: Option<&str>) -> bool {
    left.is_none() || right.is_none() || left == right
}

fn same_calls(left: &[ToolCall], right: &[ToolCall]) -> bool {
    if left.len() != right.len() {
        return false;
    }
    let same_ids = left
        .iter()
        .zip(right)
        .all(|(left, right)| left.id.is_some() && left.id == right.id);
    same_ids
        || left.iter().zip(right).all(|(left, right)| {
            left.function.name == right.function.name && same_value(&left.function.arguments, &right.function.arguments)
        })
}

/// Equality of JSON values that ignores the order of keys and the form of numbers.
pub fn same_value(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => {
            left == right || (left.is_f64() || right.is_f64()) && left.as_f64() == right.as_f64()
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| same_value(left, right))
        }
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left
                    .iter()
                    .all(|(key, value)| right.get(key).is_some_and(|other| same_value(value, other)))
        }
        _ => left == right,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calling(id: Option<&str>, arguments: Value) -> Message {
        let call = ToolCall::new(id.map(str::to_owned), "bash", arguments);
        Message {
            tool_calls: vec![call],
            ..Message::text(Role::Assistant, "Look.")
        }
    }

    #[test]
    fn arguments_are_compared_as_values() {
        let recorded = calling(Some("call_1"), json!({"command": "ls", "timeout": 1}));
        assert!(calling(Some("x"), json!({"timeout": 1.0, "command": "ls"})).says_the_same_as(&recorded));
        assert!(calling(None, json!({"timeout": 1, "command": "ls"})).says_the_same_as(&recorded));
        assert!(!calling(Some("x"), json!({"command": "ls -a", "timeout": 1})).says_the_same_as(&recorded));
    }

    #[test]
    fn a_sequence_of_ids_identifies_calls_that_the_agent_rewrote() {
        let recorded = calling(Some("call_1"), json!("{\"command\": \"ls"));
        let rewritten = calling(Some("call_1"), json!({"error": "invalid"}));
        assert!(rewritten.says_the_same_as(&recorded));
    }

    #[test]
    fn space_around_text_and_removed_thinking_do_not_matter() {
        let recorded = Message {
            reasoning_content: Some("hm".into()),
            ..Message::text(Role::Assistant, "\n\nDone. ")
        };
        assert!(Message::text(Role::Assistant, "Done.").says_the_same_as(&recorded));
        assert!(!Message::text(Role::Assistant, "Done!").says_the_same_as(&recorded));
        assert!(!Message::text(Role::User, "Done.").says_the_same_as(&recorded));
    }

    #[test]
    fn arguments_become_objects_before_rendering() {
        assert_eq!(ToolCall::parse_arguments("{\"a\": 1}"), json!({"a": 1}));
        assert_eq!(ToolCall::parse_arguments(""), json!({}));
        assert_eq!(ToolCall::parse_arguments("{\"a\": "), json!("{\"a\": "));
    }
}
