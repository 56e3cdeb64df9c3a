//! `agent`: the agent's keys fit it, and its program is there.

use super::{Check, Context, Finding, Purpose};
use crate::config::{BackendName, Loaded};
use crate::scaffold;

pub(super) struct Agent;

impl Check for Agent {
    fn id(&self) -> &'static str {
        "agent"
    }

    fn title(&self) -> &'static str {
        "the agent is there"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        if !context.purpose.samples() {
            return Vec::new();
        }
        if run.config.sandbox.backend == BackendName::Harbor {
            return self.of_harbor(run);
        }
        let agent = match scaffold::by_name(&run.config.scaffold) {
            Ok(agent) => agent,
            Err(error) => {
                return vec![
                    Finding::fatal(self.id(), error.to_string())
                        .at(run, "scaffold.name")
                        .help("see `lego preflight --reference` for what each agent takes"),
                ];
            }
        };
        // A run looks into a sandbox for it, and says so by its own exit code.
        if context.purpose != Purpose::Whole {
            return Vec::new();
        }
        let missing = agent.missing_here();
        missing
            .into_iter()
            .map(|what| {
                Finding::fatal(self.id(), format!("scaffold.name = \"{}\": {what}", agent.name()))
                    .at(run, "scaffold.name")
                    .help("install it, or name its folder as `runtime_mount`")
            })
            .collect()
    }
}

/// Agents of ours that Harbor does not have.
const OURS: [&str; 2] = ["builtin", "custom"];
/// Harbor's agents that run inside its environment, and reach nothing on this machine's own loopback.
const INSIDE: [&str; 5] = ["claude-code", "codex", "mini-swe-agent", "opencode", "openhands"];

impl Agent {
    fn of_harbor(&self, run: &Loaded) -> Vec<Finding> {
        let agent = run.config.sandbox.harbor.agent(&run.config.scaffold.name);
        let proxy = &run.config.proxy;
        let local = ["127.", "localhost", "[::1]"]
            .iter()
            .any(|host| proxy.listen.starts_with(host));
        let mut found = Vec::new();
        if OURS.contains(&agent) {
            let text = format!("scaffold.name = \"{agent}\": Harbor has no such agent");
            found.push(
                Finding::fatal(self.id(), text)
                    .at(run, "scaffold.name")
                    .help("name one of Harbor's agents, as `sandbox.harbor.agent` or by --scaffold"),
            );
        }
        if INSIDE.contains(&agent) && local && proxy.public_url.is_none() {
            let text = format!(
                "`{agent}` runs inside Harbor's environment and does not reach {} there",
                proxy.listen
            );
            found.push(Finding::fatal(self.id(), text).at(run, "proxy.listen").help(
                "let the proxy listen where the environment reaches it (for docker `172.17.0.1:0`), and write that address, \
                 or the one it is reached by, as `proxy.public_url`",
            ));
        }
        found
    }
}
