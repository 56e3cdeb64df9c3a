//! `[scaffold]`

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ScaffoldSection {
    /// Which agent: the built-in loop, one of the agents that are programs of their own, any other program
    /// (`custom`), the task's own solution (`oracle`), nothing at all (`nop`), or the changes that the trials in the folder of
    /// `args` left (`patch`).
    #[schemars(extend("enum" = [
        "builtin", "claude-code", "opencode", "codex", "mini-swe-agent", "openhands", "terminus-2", "custom", "oracle", "nop",
        "patch"
    ]))]
    pub name: String,
    /// Version that the agent must have; absent: whichever is installed.
    pub version: Option<String>,
    /// Folders of this machine that hold the agent's program and what it runs on, visible to it at their own paths,
    /// read-only; their `bin` and `node_modules/.bin` come first in its PATH.
    #[schemars(extend("format" = "path"))]
    pub runtime_mount: Vec<PathBuf>,
    /// API that the agent speaks, where it knows several (`opencode`; `openhands`, not Responses); absent: Chat
    /// Completions.
    pub dialect: Option<Dialect>,
    /// Program and arguments of `custom`. `{model}`, `{base_url}` (without `/v1`), `{token}`, `{workdir}` and
    /// `{instruction}` are filled in; the instruction also comes on standard input.
    pub command: Vec<String>,
    /// Further arguments of the agent.
    pub args: Vec<String>,
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
            version: None,
            runtime_mount: Vec::new(),
            dialect: None,
            command: Vec::new(),
            args: Vec::new(),
            max_turns: 200,
            max_consecutive_no_tool: 3,
            env: BTreeMap::new(),
        }
    }
}

/// An API of the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI Chat Completions.
    Chat,
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Responses.
    Responses,
}
