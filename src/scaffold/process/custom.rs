//! `custom`: any program, given in run.toml alone.

use super::adapter::{Adapter, Endpoint, Launch, env};

pub(crate) struct Custom {
    command: Vec<String>,
}

impl Custom {
    /// `None` for an empty command.
    pub(crate) fn new(command: &[String]) -> Option<Self> {
        (!command.is_empty()).then(|| Self {
            command: command.to_vec(),
        })
    }
}

impl Adapter for Custom {
    fn name(&self) -> &'static str {
        "custom"
    }

    fn program(&self) -> &str {
        &self.command[0]
    }

    fn version_args(&self) -> Option<&'static [&'static str]> {
        // Nobody knows what another argument would make it do.
        None
    }

    fn install(&self) -> &'static str {
        "as its makers say"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let fill = |word: &String| {
            // The instruction last: what it says is not filled in again.
            word.replace("{model}", endpoint.model)
                .replace("{base_url}", endpoint.url)
                .replace("{token}", endpoint.token)
                .replace("{workdir}", &endpoint.workdir)
                .replace("{instruction}", endpoint.instruction)
        };
        Launch {
            argv: self.command.iter().map(fill).collect(),
            env: env([
                ("OPENAI_BASE_URL", endpoint.v1()),
                ("OPENAI_API_KEY", endpoint.token.to_owned()),
                ("ANTHROPIC_BASE_URL", endpoint.url.to_owned()),
                ("ANTHROPIC_AUTH_TOKEN", endpoint.token.to_owned()),
                ("ANTHROPIC_MODEL", endpoint.model.to_owned()),
                ("LEGO_MODEL", endpoint.model.to_owned()),
                ("LEGO_MAX_TURNS", endpoint.max_turns.to_string()),
            ]),
            files: Vec::new(),
            stdin: Some(endpoint.instruction.to_owned()),
        }
    }
}
