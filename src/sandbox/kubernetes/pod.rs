//! What a pod is asked to be.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::{MAIN, OWNER, RUNTIME};
use crate::config::KubernetesSection;
use crate::sandbox::SandboxSpec;
use crate::sandbox::init::{DESCRIBE, REMOTE, UNPACK};
use crate::sandbox::runtime::{INSIDE, Runtime};

/// Seconds beyond a sandbox's own lifetime after which the cluster ends its pod.
const BEYOND: u64 = 60;
/// Bytes of a pod's disk that are not the trial's.
const OWN_DISK: u64 = 256 << 20;
/// Waits until our files are there. Some shells' `sleep` takes whole seconds only.
const WAIT: &str = "until [ -e /.lego/whole ]; do sleep 0.05 2>/dev/null || sleep 1; done";
/// A second init container, where the first one is not of the task's image: it tells what that image says.
pub(super) const LOOK: &str = "lego-image";

/// Who a pod belongs to.
#[derive(Debug, Clone)]
pub(super) struct Owner {
    /// The run's own number.
    pub(super) number: String,
    /// Of its Lease: with that the cluster removes the pod.
    pub(super) lease: String,
    pub(super) uid: String,
}

/// Text that a label may have.
pub(super) fn label(text: &str) -> String {
    let plain: String = text
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
                c
            } else {
                '-'
            }
        })
        .take(63)
        .collect();
    plain.trim_matches(|c: char| !c.is_ascii_alphanumeric()).to_owned()
}

/// Of this image.
pub(super) fn pod(
    name: &str,
    image: &str,
    spec: &SandboxSpec,
    options: &KubernetesSection,
    runtime: &Runtime,
    owner: &Owner,
) -> Result<Pod, serde_json::Error> {
    let mut labels: BTreeMap<String, String> = spec
        .labels
        .iter()
        .map(|(key, value)| (format!("lego.{}", label(key)), label(value)))
        .collect();
    labels.insert(OWNER.to_owned(), owner.number.clone());
    labels.insert("lego.episode".to_owned(), label(&spec.name));
    let volume = |read_only: bool| json!([{"name": "lego", "mountPath": INSIDE, "readOnly": read_only}]);
    let small = json!({"requests": {"cpu": "10m", "memory": "16Mi"}});
    let loading = match &options.runtime_image {
        None => vec![json!({
            "name": RUNTIME, "image": image, "imagePullPolicy": "IfNotPresent", "resources": small,
            "command": ["sh", "-c", WAIT], "volumeMounts": volume(false),
        })],
        Some(own) => vec![
            json!({
                "name": RUNTIME, "image": own, "imagePullPolicy": "IfNotPresent", "resources": small,
                "command": ["/lego", crate::sandbox::INIT_COMMAND, UNPACK, INSIDE], "volumeMounts": volume(false),
            }),
            json!({
                "name": LOOK, "image": image, "imagePullPolicy": "IfNotPresent", "resources": small,
                "command": runtime.command(&[DESCRIBE]), "volumeMounts": volume(true),
            }),
        ],
    };
    let pull_secrets: Vec<Value> = options.pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let lifetime = spec.lifetime.as_secs() + options.start_timeout.0.as_secs() + BEYOND;
    serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"lego.sandbox": spec.name},
            "ownerReferences": [{
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": owner.lease, "uid": owner.uid,
            }],
        },
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": lifetime,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "serviceAccountName": options.service_account,
            "hostname": label(&spec.name.to_lowercase()).replace(['_', '.'], "-"),
            "nodeSelector": options.node_selector,
            "tolerations": options.tolerations,
            "imagePullSecrets": pull_secrets,
            "volumes": [{"name": "lego", "emptyDir": {}}],
            "initContainers": loading,
            "containers": [{
                "name": MAIN,
                "image": image,
                "imagePullPolicy": "IfNotPresent",
                "command": runtime.command(&[REMOTE]),
                "workingDir": "/",
                "resources": resources(spec, options),
                "volumeMounts": volume(true),
                // As a container engine has it: root inside, with its usual rights but that of forging packets.
                "securityContext": {
                    "runAsUser": 0, "runAsGroup": 0, "privileged": false, "capabilities": {"drop": ["NET_RAW"]},
                },
            }],
        },
    }))
}

fn resources(spec: &SandboxSpec, options: &KubernetesSection) -> Value {
    let (mut requests, mut limits) = (json!({}), json!({}));
    if let Some(cpus) = spec.limits.cpus {
        let cpus = format!("{}m", (f64::from(cpus) * 1000.0).ceil() as u64);
        requests["cpu"] = json!(cpus);
        limits["cpu"] = json!(cpus);
    }
    if let Some(memory) = spec.limits.memory {
        requests["memory"] = json!(memory.to_string());
        // A pod that runs away ends itself, not its node.
        let most = (memory as f64 * options.memory_limit_factor.max(1.0)) as u64;
        limits["memory"] = json!(most.to_string());
    }
    if let Some(disk) = spec.limits.disk {
        let disk = (disk + OWN_DISK).to_string();
        requests["ephemeral-storage"] = json!(disk);
        limits["ephemeral-storage"] = json!(disk);
    }
    json!({"requests": requests, "limits": limits})
}
