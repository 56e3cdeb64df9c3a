//! `claude-code`: Anthropic Messages, always streaming. Seen with 2.1.197 and 2.1.332.

use serde_json::Value;

use super::adapter::{Adapter, Endpoint, Launch, by_exit, env, words};
use crate::sandbox::ExecOutput;
use crate::scaffold::AgentEnd;

pub(crate) struct ClaudeCode;

impl Adapter for ClaudeCode {
    fn name(&self) -> &'static str {
        "claude-code"
    }

    fn program(&self) -> &'static str {
        "claude"
    }

    fn install(&self) -> &'static str {
        "npm install @anthropic-ai/claude-code"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let model = || endpoint.model.to_owned();
        let on = || "1".to_owned();
        let turns = endpoint.max_turns.to_string();
        Launch {
            argv: words(&[
                "claude",
                "-p",
                "--dangerously-skip-permissions",
                "--output-format",
                "stream-json",
                "--verbose",
                "--max-turns",
                &turns,
            ]),
            env: env([
                ("ANTHROPIC_BASE_URL", endpoint.url.to_owned()),
                ("ANTHROPIC_AUTH_TOKEN", endpoint.token.to_owned()),
                ("ANTHROPIC_MODEL", model()),
                ("ANTHROPIC_DEFAULT_SONNET_MODEL", model()),
                ("ANTHROPIC_DEFAULT_OPUS_MODEL", model()),
                ("ANTHROPIC_DEFAULT_HAIKU_MODEL", model()),
                ("CLAUDE_CODE_SUBAGENT_MODEL", model()),
                ("CLAUDE_CONFIG_DIR", format!("{}/sessions", endpoint.logs)),
                // Its first system block changes from call to call otherwise, and every call is a new segment.
                ("CLAUDE_CODE_ATTRIBUTION_HEADER", "0".to_owned()),
                ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", on()),
                ("DISABLE_AUTOUPDATER", on()),
                ("DISABLE_TELEMETRY", on()),
                // It refuses to skip permissions as root unless it is told that this is a sandbox.
                ("IS_SANDBOX", on()),
            ]),
            stdin: Some(endpoint.instruction.to_owned()),
            ..Launch::default()
        }
    }

    fn end(&self, output: &ExecOutput) -> AgentEnd {
        let result = output
            .output
            .lines()
            .rev()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .find(|event| event["type"] == "result");
        match result {
            Some(event) if event["subtype"] == "error_max_turns" => AgentEnd::MaxTurns,
            // It exits with 0 after some errors.
            Some(event) if event["is_error"] == true => AgentEnd::Failed {
                exit_code: Some(output.exit_code),
                detail: event["result"].as_str().unwrap_or_default().to_owned(),
            },
            _ => by_exit(output),
        }
    }
}
