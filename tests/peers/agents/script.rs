//! What the policy is made to say.

use serde_json::{Value, json};

/// Does what the task asks for.
pub(super) const WRITE: &str = "echo hello from the policy > hello.txt";

/// Stands for answers that nobody asks for.
const NEVER: &str = "never asked for";

/// Answers to one episode of the task.
pub(super) struct Script {
    turns: Vec<Value>,
    side: Vec<Value>,
}

/// Text and tool calls.
pub(super) fn calls(text: &str, calls: &[(&str, Value)]) -> Value {
    let calls: Vec<Value> = calls
        .iter()
        .map(|(name, arguments)| json!({"name": name, "arguments": arguments}))
        .collect();
    json!({"content": text, "tool_calls": calls})
}

/// Text alone.
pub(super) fn says(text: &str) -> Value {
    json!({"content": text})
}

/// As the policy writes it.
pub(super) fn raw(text: &str) -> Value {
    json!({"raw": text})
}

impl Script {
    pub(super) fn new(turns: impl IntoIterator<Item = Value>) -> Self {
        Self {
            turns: turns.into_iter().collect(),
            side: Vec::new(),
        }
    }

    /// Answers to the conversation whose messages hold `when`.
    pub(super) fn side(mut self, when: &str, turns: impl IntoIterator<Item = Value>) -> Self {
        let turns: Vec<Value> = turns.into_iter().collect();
        self.side.push(json!({"when": when, "turns": turns}));
        self
    }

    /// The same, where `kept` answers of before are in the history already.
    pub(super) fn side_behind(mut self, when: &str, kept: usize, turns: impl IntoIterator<Item = Value>) -> Self {
        let before = std::iter::repeat_n(json!({"content": NEVER}), kept);
        let turns: Vec<Value> = before.chain(turns).collect();
        self.side.push(json!({"when": when, "turns": turns}));
        self
    }

    /// The line of a recording.
    pub(super) fn line(&self, task: &str) -> String {
        json!({"instance_id": task, "turns": self.turns, "side": self.side}).to_string() + "\n"
    }

    /// Every answer that is to be sampled, the main conversation's first.
    pub(super) fn answers(&self) -> impl Iterator<Item = &Value> {
        let side = self.side.iter().flat_map(|script| script["turns"].as_array().unwrap());
        self.turns
            .iter()
            .chain(side)
            .filter(|answer| answer["content"] != NEVER)
    }
}
