//! `cluster`: the live check of the `kubernetes` backend. It asks what this process may do, and makes and deletes one pod
//! of a task's image.

use std::path::Path;
use std::time::{Duration, Instant};

use super::Finding;
use crate::config::{BackendName, Loaded};
use crate::rollout::image_of;
use crate::sandbox::kubernetes::{KubernetesBackend, KubernetesOptions};
use crate::sandbox::{ExecRequest, Image, SandboxError, SandboxSpec};
use crate::task::{NetworkPolicy, TaskIndex};

/// Its name.
pub(super) const ID: &str = "cluster";
/// Time for the pod, its image's pull included.
const POD: Duration = Duration::from_mins(15);
/// A command that succeeds where there is another network than loopback.
const OUT: &str = "grep -v '^ *lo:' /proc/net/dev | tail -n +3 | grep -q .";

pub(super) async fn look(run: &Loaded, init_exe: &Path) -> Vec<Finding> {
    let section = &run.config.sandbox;
    if section.backend != BackendName::Kubernetes {
        return Vec::new();
    }
    let backend = KubernetesBackend::new(KubernetesOptions::new(init_exe, &section.kubernetes));
    let fatal = |text: String| Finding::fatal(ID, text).at(run, "sandbox.kubernetes");
    let (missing, namespace) = match backend.missing_rights().await {
        Ok(answer) => answer,
        Err(error) => return vec![fatal(error.to_string())],
    };
    if !missing.is_empty() {
        let text = format!("rights are missing in namespace `{namespace}`: {}", missing.join(", "));
        return vec![fatal(text).help("`examples/kubernetes/rbac.yaml` has a role with all of them")];
    }
    let Some(image) = image_of_a_task(run) else {
        let why =
            format!("namespace `{namespace}` allows all that trials need; no task names an image, so no pod was made");
        return vec![Finding::skip(ID, why)];
    };
    let began = Instant::now();
    let reaches_out = match tokio::time::timeout(POD, Box::pin(probe(&backend, image))).await {
        Err(_) => return vec![fatal(format!("no pod was ready within {POD:?}"))],
        Ok(Err(error)) => return vec![fatal(error.to_string())],
        Ok(Ok(reaches_out)) => reaches_out,
    };
    let text = format!(
        "a pod in namespace `{namespace}` started, ran a command and was deleted in {:.1} s",
        began.elapsed().as_secs_f64()
    );
    if reaches_out {
        let text = format!("{text}; its commands cannot be kept from the cluster's network");
        return vec![Finding::warn(ID, text).at(run, "sandbox.kubernetes.allow_unisolated")];
    }
    vec![Finding::pass(ID, text)]
}

/// Of the first task whose image could be pulled.
pub(super) fn image_of_a_task(run: &Loaded) -> Option<Image> {
    let data = &run.config.data;
    let paths = data.train.iter().chain(&data.val);
    paths.filter_map(|path| TaskIndex::read(path).ok()).find_map(|index| {
        index.rows.iter().find_map(|row| {
            let task = index.task(row).ok()?;
            image_of(&task, &run.config.sandbox).filter(|image| matches!(image, Image::Named(_)))
        })
    })
}

/// Makes a pod and deletes it; gives whether a command that is to reach nothing has a network all the same.
async fn probe(backend: &KubernetesBackend, image: Image) -> Result<bool, SandboxError> {
    let spec = SandboxSpec {
        image: Some(image),
        ..SandboxSpec::probe(std::path::PathBuf::new())
    };
    let sandbox = backend.create(spec).await?;
    let ran = async {
        sandbox.set_network(&NetworkPolicy::none()).await?;
        sandbox.exec(ExecRequest::shell(OUT)).await
    }
    .await;
    sandbox.destroy().await?;
    Ok(ran?.exit_code == 0)
}
