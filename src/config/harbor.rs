//! `[sandbox.harbor]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Harbor's command, which runs the trials of backend `harbor`: its environments, its agents, its verifier.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct HarborSection {
    /// Program and first arguments.
    #[schemars(length(min = 1))]
    pub command: Vec<String>,
    /// Where trials run: `docker`, `daytona`, `modal`, `e2b`, `gke` and whatever else it has, or `module:Class`.
    #[schemars(length(min = 1))]
    pub environment: String,
    /// Its agent, or `module:Class`; absent: `scaffold.name`.
    pub agent: Option<String>,
    /// Name of the model as its agent is given it; absent: `anthropic/…` for agents that speak Anthropic Messages and
    /// `openai/…` for the others.
    pub model: Option<String>,
    /// API that its agent is told to speak; absent: Anthropic Messages for `claude-code`, and the agent's own choice of
    /// OpenAI's APIs for the others.
    pub api_format: Option<HarborApi>,
    /// A trial configuration of its own, in YAML or JSON, for whatever this section has no key for. What the run says
    /// goes over it.
    #[schemars(extend("format" = "path"))]
    pub config: Option<PathBuf>,
}

impl Default for HarborSection {
    fn default() -> Self {
        Self {
            command: vec!["harbor".to_owned()],
            environment: "docker".to_owned(),
            agent: None,
            model: None,
            api_format: None,
            config: None,
        }
    }
}

impl HarborSection {
    /// The agent that Harbor is asked for, by `scaffold.name` where the section names none.
    pub fn agent<'a>(&'a self, scaffold: &'a str) -> &'a str {
        self.agent.as_deref().unwrap_or(scaffold)
    }
}

/// An API by Harbor's name for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HarborApi {
    /// Chat Completions.
    OpenaiChatCompletions,
    /// Responses.
    OpenaiResponses,
    /// Messages.
    AnthropicMessages,
}
