//! `codex`: OpenAI Responses only. Seen with 0.171.

use super::adapter::{Adapter, Endpoint, Launch, env, words};

/// Where its key is.
const KEY: &str = "LEGO_SESSION_TOKEN";

pub(crate) struct Codex;

impl Adapter for Codex {
    fn name(&self) -> &'static str {
        "codex"
    }

    fn program(&self) -> &'static str {
        "codex"
    }

    fn install(&self) -> &'static str {
        "npm install @openai/codex"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let home = format!("{}/.codex", endpoint.home);
        Launch {
            argv: words(&[
                "codex",
                "exec",
                "--skip-git-repo-check",
                "--dangerously-bypass-approvals-and-sandbox",
                "--json",
                "-",
            ]),
            env: env([(KEY, endpoint.token.to_owned()), ("CODEX_HOME", home.clone())]),
            files: vec![(format!("{home}/config.toml"), config(endpoint))],
            stdin: Some(endpoint.instruction.to_owned()),
        }
    }
}

/// A TOML text.
fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn config(endpoint: &Endpoint<'_>) -> String {
    format!(
        "model = {model}\nmodel_provider = \"lego\"\nmodel_context_window = {window}\n\
         check_for_update_on_startup = false\n\n\
         [analytics]\nenabled = false\n\n\
         [model_providers.lego]\nname = \"lego\"\nbase_url = {url}\nenv_key = \"{KEY}\"\nwire_api = \"responses\"\n",
        model = quoted(endpoint.model),
        window = endpoint.window,
        url = quoted(&endpoint.v1()),
    )
}
