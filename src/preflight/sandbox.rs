//! Settings of `[sandbox]` that the chosen backend would ignore.

use super::{Check, Context, Finding};
use crate::config::{BackendName, DockerSection, HarborSection};
use crate::rollout::without_effect;

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
        let config = &context.run.config;
        let section = &config.sandbox;
        if !context.purpose.draws_tasks() {
            return Vec::new();
        }
        let of_docker = section.docker != DockerSection::default();
        let of_harbor = section.harbor != HarborSection::default();
        let (because, keys) = match section.backend {
            BackendName::Local => (
                "the `local` backend uses no images",
                set([
                    ("sandbox.registry", section.registry.is_some()),
                    ("sandbox.mirror", !section.mirror.is_empty()),
                    ("sandbox.docker", of_docker),
                    ("sandbox.harbor", of_harbor),
                    ("sandbox.timeouts.build", section.timeouts.build.is_some()),
                ]),
            ),
            BackendName::Docker => (
                "the `docker` backend does not run Harbor",
                set([("sandbox.harbor", of_harbor)]),
            ),
            BackendName::Harbor => ("Harbor runs the trials", {
                let mut keys = without_effect(section, &config.scaffold);
                keys.extend(set([("verifier.repeats", config.verifier.repeats > 1)]));
                keys
            }),
        };
        let public = config.proxy.public_url.is_some() && section.backend != BackendName::Harbor;
        let all = keys.into_iter().map(|key| (key, because)).chain(public.then_some((
            "proxy.public_url",
            "sandboxes here reach the proxy by a way of their own",
        )));
        all.map(|(key, because)| {
            Finding::fatal(self.id(), format!("{key} has no effect: {because}"))
                .at(context.run, key)
                .help("choose the backend that it is for by `sandbox.backend`, or leave the key out")
        })
        .collect()
    }
}

/// Those that are set.
fn set<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
}
