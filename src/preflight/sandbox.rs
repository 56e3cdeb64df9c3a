//! Settings of `[sandbox]` that the chosen backend would ignore.

use super::{Check, Context, Finding};
use crate::config::{BackendName, DockerSection, HarborSection, KubernetesSection};
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
        let is = |backend: BackendName| section.backend == backend;
        let because = match section.backend {
            BackendName::Local => "the `local` backend uses no images",
            BackendName::Docker => "the `docker` backend has its containers on one machine",
            BackendName::Kubernetes => "the `kubernetes` backend builds no images",
            BackendName::Harbor => "Harbor runs the trials",
        };
        let images = is(BackendName::Docker) || is(BackendName::Kubernetes);
        let mut keys = set([
            ("sandbox.registry", section.registry.is_some() && !images),
            ("sandbox.mirror", !section.mirror.is_empty() && !images),
            (
                "sandbox.docker",
                section.docker != DockerSection::default() && !is(BackendName::Docker),
            ),
            (
                "sandbox.timeouts.build",
                section.timeouts.build.is_some() && !is(BackendName::Docker),
            ),
            (
                "sandbox.kubernetes",
                section.kubernetes != KubernetesSection::default() && !is(BackendName::Kubernetes),
            ),
            (
                "sandbox.harbor",
                section.harbor != HarborSection::default() && !is(BackendName::Harbor),
            ),
        ]);
        if is(BackendName::Harbor) {
            keys.extend(without_effect(section, &config.scaffold));
            keys.extend(set([("verifier.repeats", config.verifier.repeats > 1)]));
        }
        let public = config.proxy.public_url.is_some() && !is(BackendName::Harbor);
        let all = keys.into_iter().map(|key| (key, because)).chain(public.then_some((
            "proxy.public_url",
            "sandboxes here reach the proxy by a way of their own",
        )));
        all.map(|(key, because)| {
            let of = match key {
                "sandbox.kubernetes" => "`sandbox.backend = \"kubernetes\"`",
                "sandbox.harbor" | "proxy.public_url" => "`sandbox.backend = \"harbor\"`",
                _ => "`sandbox.backend = \"docker\"`",
            };
            Finding::fatal(self.id(), format!("{key} has no effect: {because}"))
                .at(context.run, key)
                .help(format!("set {of}, or leave the key out"))
        })
        .collect()
    }
}

/// Those that are set.
fn set<const N: usize>(keys: [(&'static str, bool); N]) -> Vec<&'static str> {
    keys.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
}
