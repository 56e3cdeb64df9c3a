//! The agents that are tested, and how the policy speaks to each.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::script::says;
use crate::{peers, succeeds};

/// An agent and how the policy speaks to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Agent {
    pub(super) name: &'static str,
    pub(super) dialect: Option<&'static str>,
    /// Folder of what `tests/run` installed.
    installed: &'static str,
    bash: &'static str,
    /// Name of the tool's argument.
    command: &'static str,
    pub(super) version: &'static str,
    pub(super) endpoint: &'static str,
}

impl Agent {
    pub(super) const CLAUDE_CODE: Self = Self {
        name: "claude-code",
        dialect: None,
        installed: "npm/agents",
        bash: "Bash",
        command: "command",
        version: "2.1.332",
        endpoint: "anthropic_messages",
    };
    pub(super) const OLDER_CLAUDE_CODE: Self = Self {
        installed: "npm/claude-code-2.1.197",
        version: "2.1.197",
        ..Self::CLAUDE_CODE
    };
    pub(super) const CODEX: Self = Self {
        name: "codex",
        bash: "exec_command",
        command: "cmd",
        version: "0.171.0",
        endpoint: "openai_responses",
        ..Self::CLAUDE_CODE
    };
    pub(super) const OPENCODE: Self = Self {
        name: "opencode",
        bash: "bash",
        version: "1.18.33",
        endpoint: "openai_chat_completions",
        ..Self::CLAUDE_CODE
    };
    pub(super) const OPENCODE_ANTHROPIC: Self = Self {
        dialect: Some("anthropic"),
        endpoint: "anthropic_messages",
        ..Self::OPENCODE
    };
    pub(super) const OPENCODE_RESPONSES: Self = Self {
        dialect: Some("responses"),
        endpoint: "openai_responses",
        ..Self::OPENCODE
    };
    pub(super) const MINI_SWE_AGENT: Self = Self {
        name: "mini-swe-agent",
        installed: "pip/mini-swe-agent",
        version: "2.4.6",
        ..Self::OPENCODE
    };
    pub(super) const OPENHANDS: Self = Self {
        name: "openhands",
        installed: "uv/openhands",
        bash: "terminal",
        version: "1.58.2",
        ..Self::OPENCODE
    };
    pub(super) const OPENHANDS_ANTHROPIC: Self = Self {
        dialect: Some("anthropic"),
        endpoint: "anthropic_messages",
        ..Self::OPENHANDS
    };
    /// Its commands are text, without a tool: see the tests of its name.
    pub(super) const TERMINUS_2: Self = Self {
        name: "terminus-2",
        installed: "uv/terminus-2",
        version: "0.26.0",
        ..Self::OPENCODE
    };
    pub(super) const CUSTOM: Self = Self {
        name: "custom",
        installed: "pip/readers",
        version: "",
        ..Self::OPENCODE
    };

    pub(super) fn bash_name(self) -> &'static str {
        self.bash
    }

    /// A call that runs a command.
    pub(super) fn bash(self, command: &str) -> (&'static str, Value) {
        let mut arguments = json!({self.command: command});
        if self.name == "opencode" {
            arguments["description"] = json!("run it");
        }
        (self.bash, arguments)
    }

    /// The same as the policy writes it.
    pub(super) fn bash_text(self, command: &str) -> String {
        let (name, arguments) = self.bash(command);
        format!(
            "<tool_call>\n{}\n</tool_call>",
            json!({"name": name, "arguments": arguments})
        )
    }

    /// How it learns that the work is done.
    pub(super) fn last(self, text: &str) -> Value {
        if self.name == "mini-swe-agent" {
            super::calls(text, &[self.bash("echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT")])
        } else {
            says(text)
        }
    }

    /// Folders that the agent's program and what runs it lie in.
    pub(super) fn mounts(self) -> Vec<PathBuf> {
        let installed = peers(self.installed);
        let mut mounts = vec![installed.clone()];
        let python = installed.join("bin/python");
        if python.exists() {
            let output = succeeds(Command::new(python).args(["-c", "import sys; print(sys.base_prefix)"]));
            let prefix = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
            if !prefix.starts_with("/usr") {
                mounts.push(prefix);
            }
        }
        mounts
    }
}
