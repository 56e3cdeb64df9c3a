//! `[engine]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ByteSize;

/// What serves the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EngineSection {
    /// What answers. The client of `vllm` was tested against vLLM 0.32.0 on a processor, and on no GPU; that of `sglang`
    /// against a local server that answers with the shapes of `SGLang` 0.5 (from its source), not against the program.
    pub kind: EngineKind,
    /// The servers, such as `http://host:8000`; several are replicas of the same policy (`vllm`, `sglang`). Of `openai` one,
    /// such as `http://host:8000/v1`.
    pub endpoints: Vec<String>,
    /// Environment variable that holds the servers' key, sent as `Authorization: Bearer` (`vllm`, `sglang`,
    /// `openai`).
    pub api_key_env: Option<String>,
    /// File with certificates (PEM) of authorities that sign those of `https` endpoints, beside the system's own.
    #[schemars(extend("format" = "path"))]
    pub ca_file: Option<PathBuf>,
    /// How the servers get new weights (`vllm`, `sglang`). `disk`: from a folder below the run's `weights`, which must
    /// be readable under the same path where they run; all at once. `rolling`: the same, one server after the other, while the
    /// others go on sampling; where nothing is being sampled, all at once.
    pub weight_sync: WeightSync,
    /// Name under which the policy is served; empty: `policy`. Servers in other processes must know it, where it is set; with
    /// `openai` it is the model that is asked, and empty the only one that there is.
    pub served_model: String,
    /// How tool calls are written; `auto` reads it off the chat template.
    #[schemars(extend("enum" = [
        "auto", "hermes", "qwen3_coder", "qwen3_xml", "llama3_json", "mistral", "glm", "glm45", "kimi_k2",
        "deepseek_v3", "pythonic"
    ]))]
    pub tool_parser: String,
    /// How thinking is told from the answer; not of `openai`, which tells by itself.
    pub reasoning_parser: ReasoningParser,
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
            endpoints: Vec::new(),
            api_key_env: None,
            ca_file: None,
            weight_sync: WeightSync::Disk,
            served_model: String::new(),
            tool_parser: "auto".to_owned(),
            reasoning_parser: ReasoningParser::Auto,
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
    /// vLLM servers, named by `endpoints`.
    Vllm,
    /// `SGLang` servers, named by `endpoints`.
    Sglang,
    /// A hosted API that speaks Chat Completions, named by `endpoints`: for evaluation and collecting data. It gives no
    /// token ids, so that its rows have none and never train.
    Openai,
}

impl EngineKind {
    /// Whether it is a server of the policy in another process, with tokens in and out.
    pub fn is_remote(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }
}

/// How thinking is told from the answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningParser {
    /// As the chat template suggests.
    #[default]
    Auto,
    /// There is none: tags are text.
    None,
    /// `<think>…</think>` at the beginning of an answer.
    Think,
    /// The same, with the opening tag at the end of the prompt.
    ThinkOpened,
}

/// How servers in other processes get new weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WeightSync {
    /// From a Hugging Face folder.
    #[default]
    Disk,
    /// The same, one server after the other.
    Rolling,
}
