//! Settings of `[sandbox]` that the chosen backend would ignore.

use super::{Check, Context, Finding};
use crate::config::{BackendName, DockerSection};

/// `sandbox`
pub(super) struct Sandbox;

impl Check for Sandbox {
    fn id(&self) -> &'static str {
        "sandbox"
    }

    fn title(&self) -> &'static str {
        "every sandbox setting has an effect with this backend"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let section = &context.run.config.sandbox;
        if section.backend != BackendName::Local || !context.purpose.draws_tasks() {
            return Vec::new();
        }
        let set = [
            ("sandbox.registry", section.registry.is_some()),
            ("sandbox.mirror", !section.mirror.is_empty()),
            ("sandbox.docker", section.docker != DockerSection::default()),
            ("sandbox.timeouts.build", section.timeouts.build.is_some()),
        ];
        set.into_iter()
            .filter(|(_, set)| *set)
            .map(|(key, _)| {
                let text = format!("{key} has no effect: the `local` backend uses no images");
                Finding::fatal(self.id(), text)
                    .at(context.run, key)
                    .help("set `sandbox.backend = \"docker\"`, or leave the key out")
            })
            .collect()
    }
}
