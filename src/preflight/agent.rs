//! `agent`: the agent's keys fit it, and its program is there.

use super::{Check, Context, Finding, Purpose};
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
