//! `images`: where images come from, as far as files tell; whether the engine answers and has them is asked live.

use std::collections::BTreeSet;

use super::{Check, Context, Finding, Purpose, tasks};
use crate::config::BackendName;
use crate::rollout::image_of;
use crate::sandbox::{Image, registry_of};

pub(super) const ID: &str = "images";
/// So many images or fewer are pulled soon enough.
const FEW: usize = 8;

pub(super) struct Images;

impl Check for Images {
    fn id(&self) -> &'static str {
        ID
    }

    fn title(&self) -> &'static str {
        "it is known where images come from"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        match context.run.config.sandbox.backend {
            BackendName::Local => Some("the `local` backend uses no images"),
            BackendName::Harbor => Some("Harbor gets the images"),
            BackendName::Docker | BackendName::Kubernetes => None,
        }
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let section = &run.config.sandbox;
        if !context.purpose.draws_tasks() {
            return Vec::new();
        }
        let kubernetes = section.backend == BackendName::Kubernetes;
        if kubernetes && let Some(path) = section.kubernetes.kubeconfig.as_ref().filter(|path| !path.is_file()) {
            let text = format!("sandbox.kubernetes.kubeconfig: no file {}", path.display());
            return vec![
                Finding::fatal(ID, text)
                    .at(run, "sandbox.kubernetes.kubeconfig")
                    .help("write the file that says how the cluster is reached, or leave the key out"),
            ];
        }
        if context.purpose != Purpose::Whole
            || !(kubernetes || section.backend == BackendName::Docker)
            || !section.mirror.is_empty()
        {
            return Vec::new();
        }
        let images: BTreeSet<String> = tasks::named(context)
            .iter()
            .flat_map(|(_, tasks)| tasks)
            .filter_map(|task| match image_of(task, section)? {
                Image::Named(name) => Some(name),
                Image::Build { .. } => None,
            })
            .collect();
        if images.len() <= FEW {
            return Vec::new();
        }
        let registries: BTreeSet<&str> = images.iter().map(|name| registry_of(name)).collect();
        let text = format!(
            "tasks name {} images of {}, and sandbox.mirror is not set: each node pulls every one of them whole, from there",
            images.len(),
            registries.into_iter().collect::<Vec<_>>().join(", ")
        );
        vec![Finding::warn(ID, text).at(run, "sandbox.mirror").help(
            "write `mirror = { \"docker.io/\" = \"your-mirror/\" }` below `[sandbox]`: a registry near the nodes, best one \
             from which they pull lazily (eStargz, Nydus)",
        )]
    }
}
