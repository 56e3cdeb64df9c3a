//! `opencode`: Chat Completions, Anthropic Messages or Responses, by its provider. Seen with 1.18.

use serde_json::json;

use super::adapter::{Adapter, Endpoint, Launch, env, words};
use crate::config::Dialect;

pub(crate) struct OpenCode {
    pub(crate) dialect: Dialect,
}

impl Adapter for OpenCode {
    fn name(&self) -> &'static str {
        "opencode"
    }

    fn program(&self) -> &'static str {
        "opencode"
    }

    fn install(&self) -> &'static str {
        "npm install opencode-ai"
    }

    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch {
        let config_file = format!("{}/.config/lego-opencode.json", endpoint.home);
        let on = || "1".to_owned();
        let model = format!("lego/{}", endpoint.model);
        let package = match self.dialect {
            Dialect::Chat => "@ai-sdk/openai-compatible",
            Dialect::Anthropic => "@ai-sdk/anthropic",
            Dialect::Responses => "@ai-sdk/openai",
        };
        let config = json!({
            "provider": {"lego": {
                "npm": package,
                "name": "lego",
                // All three want the version in it.
                // A request that outlasts its time-out (5 minutes otherwise) ends it: it never asks again.
                "options": {"baseURL": endpoint.v1(), "apiKey": endpoint.token, "timeout": false},
                "models": {endpoint.model: {
                    "name": endpoint.model,
                    "tool_call": true,
                    "limit": {"context": endpoint.window, "output": endpoint.max_tokens},
                }},
            }},
            "model": model,
            "small_model": model,
            "permission": {"*": "allow"},
            "share": "disabled",
            "autoupdate": false,
        });
        Launch {
            argv: words(&["opencode", "run", "--format", "json", "-m", &model]),
            env: env([
                ("OPENCODE_CONFIG", config_file.clone()),
                ("OPENCODE_DISABLE_AUTOUPDATE", on()),
                ("OPENCODE_DISABLE_MODELS_FETCH", on()),
                ("OPENCODE_DISABLE_LSP_DOWNLOAD", on()),
                ("OPENCODE_DISABLE_DEFAULT_PLUGINS", on()),
            ]),
            files: vec![(config_file, config.to_string())],
            stdin: Some(endpoint.instruction.to_owned()),
        }
    }
}
