//! `[scaffold]`

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaffoldSection {
    /// Which agent: the built-in loop, the task's own solution, or nothing at all.
    #[schemars(extend("enum" = ["builtin", "oracle", "nop"]))]
    pub name: String,
    /// Model calls of an episode at most.
    #[schemars(range(min = 1))]
    pub max_turns: u32,
    /// Answers without a tool call, in sequence, that end an episode.
    #[schemars(range(min = 1))]
    pub max_consecutive_no_tool: u32,
    /// Environment of the agent's commands.
    pub env: BTreeMap<String, String>,
}

impl Default for ScaffoldSection {
    fn default() -> Self {
        Self {
            name: "builtin".to_owned(),
            max_turns: 200,
            max_consecutive_no_tool: 3,
            env: BTreeMap::new(),
        }
    }
}
