//! `terminus-2`: harbor's agent of that name, over Chat Completions, its commands written as text. Seen with 0.26.
//!
//! Harbor starts it from outside of a container; a runner of ours starts the same class inside the sandbox, on an
//! environment that is the sandbox itself. It types into a tmux there.

use serde_json::json;

use super::adapter::{Adapter, Endpoint, Launch, PythonPackage, env};

const RUNNER: &str = include_str!("terminus_2_runner.py");

pub(crate) struct Terminus2;

impl Adapter for Terminus2 {
    fn name(&self) -> &'static str {
        "terminus-2"
    }

    fn program(&self) -> &'static str {
        "python3"
    }

    fn package(&self) -> Option<PythonPackage> {
        Some(PythonPackage {
            name: "harbor",
            folder: "harbor/agents/terminus_2",
        })
    }

    fn also_needs(&self) -> &'static [&'static str] {
        &["tmux", "bash"]
    }

    fn install(&self) -> &'static str {
        "uv pip install harbor, in a virtual environment of Python 3.12 or newer"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let runner = format!("{}/.config/lego/terminus_2_runner.py", endpoint.home);
        // The last part of its address is its session.
        let session = endpoint.url.rsplit('/').next().unwrap_or_default();
        let settings = json!({
            "model_name": format!("openai/{}", endpoint.model),
            "api_base": endpoint.v1(),
            "logs_dir": endpoint.logs,
            "session_id": session,
            "max_turns": endpoint.max_turns,
            // Token ids and log-probs, as the policy sampled them, in its own log.
            "collect_rollout_details": true,
            // Needs another program, and is for people.
            "record_terminal_session": false,
            "model_info": {
                "max_input_tokens": endpoint.window,
                "max_output_tokens": endpoint.max_tokens,
                "input_cost_per_token": 0,
                "output_cost_per_token": 0,
            },
        });
        Launch {
            argv: vec!["python3".to_owned(), runner.clone()],
            env: env([
                ("LEGO_TERMINUS", settings.to_string()),
                ("OPENAI_API_KEY", endpoint.token.to_owned()),
                ("LITELLM_LOCAL_MODEL_COST_MAP", "True".to_owned()),
            ]),
            files: vec![(runner, RUNNER.to_owned())],
            stdin: Some(endpoint.instruction.to_owned()),
        }
    }
}
