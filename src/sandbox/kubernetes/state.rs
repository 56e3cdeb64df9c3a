//! What the kubelet and the cluster say of a pod, read into what matters here. This is the evidence from outside by
//! which a trial's end is judged.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod};

use super::{MAIN, RUNTIME};

/// How far a pod is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// No node, or its containers are being made; why, where that is said.
    Waiting(Option<String>),
    /// The image cannot be had, in the kubelet's words; it goes on trying where `is_final` is not set.
    NoImage {
        reason: String,
        is_final: bool,
    },
    /// The first init container waits for our files.
    Loading,
    /// Our init runs.
    Running,
    Ended(End),
}

/// How a pod ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct End {
    pub(super) reason: String,
    /// Whether what ran inside brought it about: it used more than it may.
    pub(super) by_inside: bool,
}

fn ended(reason: impl Into<String>, by_inside: bool) -> Phase {
    Phase::Ended(End {
        reason: reason.into(),
        by_inside,
    })
}

/// Reads a pod's status.
pub(super) fn read(pod: &Pod) -> Phase {
    let status = pod.status.clone().unwrap_or_default();
    let of = |statuses: Option<Vec<ContainerStatus>>, name: &str| -> ContainerState {
        let mut found = statuses.into_iter().flatten().filter(|status| status.name == name);
        found.next().and_then(|status| status.state).unwrap_or_default()
    };
    let main = of(status.container_statuses.clone(), MAIN);
    let phase = status.phase.as_deref().unwrap_or("Pending");
    let said = |fallback: &str| match (&status.reason, &status.message) {
        (Some(reason), Some(message)) => format!("{reason}: {message}"),
        (Some(word), None) | (None, Some(word)) => word.clone(),
        (None, None) => fallback.to_owned(),
    };
    if let Some(terminated) = &main.terminated
        && terminated.reason.as_deref() == Some("OOMKilled")
    {
        return ended(format!("its memory limit was reached ({})", last(terminated)), true);
    }
    if status.reason.as_deref() == Some("Evicted") {
        let message = status.message.clone().unwrap_or_default();
        // Of its own limit, or because the node had too little for all.
        let own = [
            "exceeds the total limit",
            "exceeds the limit",
            "exceeded its local ephemeral storage limit",
        ];
        let by_inside = own.iter().any(|words| message.contains(words));
        return ended(format!("the kubelet evicted it: {message}"), by_inside);
    }
    if pod.metadata.deletion_timestamp.is_some() {
        let why = status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == "DisruptionTarget");
        let why = why.and_then(|condition| condition.message.clone());
        return ended(
            format!(
                "it is being deleted{}",
                why.map_or_else(String::new, |why| format!(": {why}"))
            ),
            false,
        );
    }
    if let Some(terminated) = &main.terminated {
        return ended(format!("its process 1 ended ({})", last(terminated)), false);
    }
    if let "Failed" | "Succeeded" | "Unknown" = phase {
        let loading = of(status.init_container_statuses.clone(), RUNTIME);
        let why = loading.terminated.as_ref().filter(|end| end.exit_code != 0);
        let why = why.map(|end| format!("{RUNTIME} failed ({})", last(end)));
        return ended(why.unwrap_or_else(|| said(&format!("its phase is {phase}"))), false);
    }
    let all = status
        .init_container_statuses
        .iter()
        .chain(&status.container_statuses)
        .flatten();
    for container in all {
        if let Some(waiting) = container.state.as_ref().and_then(|state| state.waiting.as_ref()) {
            let (reason, message) = (waiting.reason.clone().unwrap_or_default(), waiting.message.clone());
            let words = message.map_or_else(|| reason.clone(), |message| format!("{reason}: {message}"));
            let is_final = matches!(reason.as_str(), "InvalidImageName" | "ErrImageNeverPull");
            if is_final
                || matches!(
                    reason.as_str(),
                    "ErrImagePull" | "ImagePullBackOff" | "ImageInspectError" | "RegistryUnavailable"
                )
            {
                return Phase::NoImage {
                    reason: words,
                    is_final,
                };
            }
            if matches!(
                reason.as_str(),
                "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError"
            ) {
                return Phase::Waiting(Some(words));
            }
        }
        let failed = container.state.as_ref().and_then(|state| state.terminated.as_ref());
        if let Some(failed) = failed.filter(|end| end.exit_code != 0) {
            return ended(format!("{} failed ({})", container.name, last(failed)), false);
        }
    }
    if main.running.is_some() {
        return Phase::Running;
    }
    if of(status.init_container_statuses.clone(), RUNTIME).running.is_some() {
        return Phase::Loading;
    }
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled");
    let unscheduled = unscheduled.filter(|condition| condition.status == "False");
    Phase::Waiting(unscheduled.and_then(|condition| condition.message.clone()))
}

fn last(end: &ContainerStateTerminated) -> String {
    let mut text = format!("exit code {}", end.exit_code);
    for word in [&end.reason, &end.message].into_iter().flatten() {
        text.push_str(", ");
        text.push_str(word.trim());
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn phase(status: &Value) -> Phase {
        read(&serde_json::from_value(json!({"metadata": {"name": "p"}, "status": status})).unwrap())
    }

    fn main(state: &Value) -> Value {
        json!({"phase": "Running", "containerStatuses": [{"name": MAIN, "state": state, "image": "", "imageID": "", "ready": true, "restartCount": 0}]})
    }

    fn loading(state: &Value) -> Value {
        json!({"phase": "Pending", "initContainerStatuses": [{"name": RUNTIME, "state": state, "image": "", "imageID": "", "ready": false, "restartCount": 0}]})
    }

    #[test]
    fn a_pod_on_its_way_says_what_it_waits_for() {
        assert_eq!(phase(&json!({})), Phase::Waiting(None));
        let full = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient memory."}]});
        assert_eq!(
            phase(&full),
            Phase::Waiting(Some("0/3 nodes are available: 3 Insufficient memory.".to_owned()))
        );
        assert_eq!(phase(&loading(&json!({"running": {}}))), Phase::Loading);
        assert_eq!(phase(&main(&json!({"running": {}}))), Phase::Running);
        let pulls = |reason: &str| {
            phase(&loading(
                &json!({"waiting": {"reason": reason, "message": "no such manifest"}}),
            ))
        };
        for (reason, is_final) in [
            ("ErrImagePull", false),
            ("ImagePullBackOff", false),
            ("InvalidImageName", true),
        ] {
            let words = format!("{reason}: no such manifest");
            assert_eq!(
                pulls(reason),
                Phase::NoImage {
                    reason: words,
                    is_final
                }
            );
        }
    }

    #[test]
    fn the_kubelet_says_whose_doing_an_end_was() {
        let end = |status: &Value| match phase(status) {
            Phase::Ended(end) => (end.by_inside, end.reason),
            other => panic!("{other:?}"),
        };
        let (by_inside, reason) = end(&main(&json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})));
        assert!(by_inside && reason.contains("memory limit"), "{reason}");
        let evicted = |message: &str| end(&json!({"phase": "Failed", "reason": "Evicted", "message": message}));
        assert!(evicted("Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ").0);
        assert!(evicted("Container main exceeded its local ephemeral storage limit \"1Gi\". ").0);
        assert!(!evicted("The node was low on resource: memory. ").0);
        let (by_inside, reason) = end(&main(&json!({"terminated": {"exitCode": 137, "reason": "Error"}})));
        assert!(!by_inside && reason.contains("exit code 137"), "{reason}");
        assert!(!end(&json!({"phase": "Unknown", "reason": "NodeLost", "message": "node n1 is unresponsive"})).0);
        let (_, reason) = end(&loading(
            &json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: \"sh\": not found"}}),
        ));
        assert!(
            reason.starts_with("lego-runtime failed (exit code 128, StartError, exec: \"sh\""),
            "{reason}"
        );
        let deleted = json!({"metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"phase": "Running", "conditions": [{"type": "DisruptionTarget", "status": "True", "message": "preempted by a pod"}]}});
        let Phase::Ended(end) = read(&serde_json::from_value(deleted).unwrap()) else {
            panic!()
        };
        assert_eq!(
            (end.by_inside, end.reason.as_str()),
            (false, "it is being deleted: preempted by a pod")
        );
    }
}
