//! Settings of `[sandbox]` that the chosen backend would ignore.

use super::{Check, Context, Finding};
use crate::config::{BackendName, DockerSection, KubernetesSection};

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
        if !context.purpose.draws_tasks() {
            return Vec::new();
        }
        let (backend, why) = match section.backend {
            BackendName::Local => ("local", "uses no images"),
            BackendName::Docker => ("docker", "has its containers on one machine"),
            BackendName::Kubernetes => ("kubernetes", "builds no images"),
        };
        let images = section.backend != BackendName::Local;
        let set = [
            ("sandbox.registry", section.registry.is_some() && !images),
            ("sandbox.mirror", !section.mirror.is_empty() && !images),
            (
                "sandbox.docker",
                section.docker != DockerSection::default() && section.backend != BackendName::Docker,
            ),
            (
                "sandbox.timeouts.build",
                section.timeouts.build.is_some() && section.backend != BackendName::Docker,
            ),
            (
                "sandbox.kubernetes",
                section.kubernetes != KubernetesSection::default() && section.backend != BackendName::Kubernetes,
            ),
        ];
        set.into_iter()
            .filter(|(_, set)| *set)
            .map(|(key, _)| {
                let text = format!("{key} has no effect: the `{backend}` backend {why}");
                let of = if key == "sandbox.kubernetes" {
                    "kubernetes"
                } else {
                    "docker"
                };
                Finding::fatal(self.id(), text)
                    .at(context.run, key)
                    .help(format!("set `sandbox.backend = \"{of}\"`, or leave the key out"))
            })
            .collect()
    }
}
