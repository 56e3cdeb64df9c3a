//! `engine`: servers in other processes are named, and so is their key.

use super::{Check, Context, Finding, Purpose};
use crate::config::EngineKind;
use crate::inference::endpoint_problem;

pub(super) struct Engine;

impl Check for Engine {
    fn id(&self) -> &'static str {
        "engine"
    }

    fn title(&self) -> &'static str {
        "the engine's servers and their key are named"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        let kind = context.run.config.engine.kind;
        (!kind.is_remote() && kind != EngineKind::Openai)
            .then_some("the engine is in this process: there are no servers")
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let engine = &run.config.engine;
        let mut found = Vec::new();
        if !context.purpose.samples() {
            return found;
        }
        let hosted = engine.kind == EngineKind::Openai;
        if hosted && context.purpose.trains() {
            // A file for `lego rollout` alone may be looked at as well.
            let text =
                "engine.kind = \"openai\": a hosted API gives no token ids, so that nothing can train on its answers";
            let finding = if context.purpose == Purpose::Whole {
                Finding::warn(self.id(), text)
            } else {
                Finding::fatal(self.id(), text)
            };
            let help =
                "fine for `lego rollout` and `lego serve-proxy`; to train, sample from `embedded`, `vllm` or `sglang`";
            found.push(finding.at(run, "engine.kind").help(help));
        }
        let mut fatal = |text: String, key: &str, help: &str| {
            found.push(Finding::fatal(self.id(), text).at(run, key).help(help));
        };
        if !engine.kind.is_remote() && !hosted {
            if !engine.endpoints.is_empty() {
                fatal(
                    "engine.endpoints names servers, and engine.kind says that there are none".to_owned(),
                    "engine.endpoints",
                    "write `kind = \"vllm\"`, `\"sglang\"` or `\"openai\"` below `[engine]`, or leave the key out",
                );
            }
            return found;
        }
        if engine.endpoints.is_empty() {
            fatal(
                "engine.endpoints is not set: there is no server to sample from".to_owned(),
                "engine.kind",
                "write `endpoints = [\"http://host:8000\"]` below `[engine]`",
            );
        }
        if hosted && engine.endpoints.len() > 1 {
            fatal(
                format!(
                    "engine.endpoints: a hosted API has one address, found {}",
                    engine.endpoints.len()
                ),
                "engine.endpoints",
                "name one",
            );
        }
        if let Some(path) = engine.ca_file.as_ref().filter(|path| !path.is_file()) {
            fatal(
                format!("engine.ca_file: no file {}", path.display()),
                "engine.ca_file",
                "write the file that holds the authority's certificate in PEM",
            );
        }
        for (index, endpoint) in engine.endpoints.iter().enumerate() {
            if let Some(problem) = endpoint_problem(endpoint) {
                let mut finding = Finding::fatal(self.id(), format!("engine.endpoints: {problem}"))
                    .at(run, "engine.endpoints")
                    .help("write addresses such as `http://host:8000`");
                // The line would show what may be a secret.
                finding.line = None;
                found.push(finding);
            } else if engine.endpoints[..index].contains(endpoint) {
                let text = format!("engine.endpoints names {endpoint} twice");
                found.push(
                    Finding::fatal(self.id(), text)
                        .at(run, "engine.endpoints")
                        .help("name each server once"),
                );
            }
        }
        if let Some(variable) = &engine.api_key_env
            && std::env::var(variable).map_or(true, |key| key.is_empty())
        {
            let text = format!("engine.api_key_env: the environment variable `{variable}` is not set");
            found.push(
                Finding::fatal(self.id(), text)
                    .at(run, "engine.api_key_env")
                    .help("export the servers' key in it, or leave the key out"),
            );
        }
        found
    }
}
