//! `openhands`: the OpenHands SDK with its default agent, over Chat Completions or Anthropic Messages. Seen with 1.58.
//!
//! The SDK is a library: a runner of ours starts its default agent on the task and changes nothing of it.

use serde_json::Value;

use super::adapter::{Adapter, Endpoint, Launch, PythonPackage, by_exit, env};
use crate::config::Dialect;
use crate::sandbox::ExecOutput;
use crate::scaffold::AgentEnd;

const RUNNER: &str = include_str!("openhands_runner.py");

pub(crate) struct OpenHands {
    pub(crate) dialect: Dialect,
}

impl Adapter for OpenHands {
    fn name(&self) -> &'static str {
        "openhands"
    }

    fn program(&self) -> &'static str {
        "python3"
    }

    fn package(&self) -> Option<PythonPackage> {
        Some(PythonPackage {
            name: "openhands-sdk",
            folder: "openhands/sdk",
        })
    }

    fn install(&self) -> &'static str {
        "uv pip install openhands-sdk openhands-tools, in a virtual environment of Python 3.12 or newer"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let runner = format!("{}/.config/lego/openhands_runner.py", endpoint.home);
        let (provider, base) = match self.dialect {
            Dialect::Anthropic => ("anthropic", endpoint.url.to_owned()),
            Dialect::Chat | Dialect::Responses => ("openai", endpoint.v1()),
        };
        Launch {
            argv: vec!["python3".to_owned(), runner.clone()],
            env: env([
                ("LLM_MODEL", format!("{provider}/{}", endpoint.model)),
                ("LLM_BASE_URL", base),
                ("LLM_API_KEY", endpoint.token.to_owned()),
                ("LLM_MAX_INPUT_TOKENS", endpoint.window.to_string()),
                ("LLM_MAX_OUTPUT_TOKENS", endpoint.max_tokens.to_string()),
                ("LEGO_MAX_TURNS", endpoint.max_turns.to_string()),
                ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
                ("OPENHANDS_SUPPRESS_BANNER", "1".to_owned()),
            ]),
            files: vec![(runner, RUNNER.to_owned())],
            stdin: Some(endpoint.instruction.to_owned()),
        }
    }

    fn end(&self, output: &ExecOutput) -> AgentEnd {
        let stopped = output
            .output
            .lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|event| event["kind"] == "ConversationErrorEvent");
        match stopped {
            Some(event) if event["code"] == "MaxIterationsReached" => AgentEnd::MaxTurns,
            _ => by_exit(output),
        }
    }
}
