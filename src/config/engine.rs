//! `[engine]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ByteSize;

/// What serves the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSection {
    /// Which server.
    pub kind: EngineKind,
    /// Name under which the policy is served; empty: `policy`.
    pub served_model: String,
    /// How tool calls are written; `auto` reads it off the chat template.
    #[schemars(extend("enum" = [
        "auto", "hermes", "qwen3_coder", "qwen3_xml", "llama3_json", "mistral", "glm", "glm45", "kimi_k2",
        "deepseek_v3", "pythonic"
    ]))]
    pub tool_parser: String,
    /// Memory for keys and values (`embedded`).
    pub kv_memory: ByteSize,
    /// Generations that sample together (`embedded`).
    #[schemars(range(min = 1))]
    pub max_running: u32,
    /// Recorded answers, one JSON object an episode (`replay`); `instance_id = "*"` answers every task.
    #[schemars(extend("format" = "path"))]
    pub recording: Option<PathBuf>,
}

impl Default for EngineSection {
    fn default() -> Self {
        Self {
            kind: EngineKind::Embedded,
            served_model: String::new(),
            tool_parser: "auto".to_owned(),
            kv_memory: ByteSize(1 << 30),
            max_running: 64,
            recording: None,
        }
    }
}

/// Which server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    /// The policy in this process.
    #[default]
    Embedded,
    /// Recorded answers, without log-probs: for demonstrations.
    Replay,
}
