//! A pod as containers of the engine: the init containers one after another, then the main one, and a status as the
//! kubelet writes it.

use std::process::Command as Blocking;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::process::Command;

use super::Server;

/// Container of the engine.
pub(super) fn container(pod: &str, name: &str) -> String {
    format!("fake-{pod}-{name}")
}

/// Removes what a pod is made of.
pub(super) fn discard(pod: &str) {
    let names = ["lego-runtime", "lego-image", "main"].map(|name| container(pod, name));
    let _ = Blocking::new("docker").args(["rm", "-f", "-v"]).args(&names).output();
    let _ = Blocking::new("docker")
        .args(["volume", "rm", "-f", &format!("fake-{pod}")])
        .output();
}

/// What a container has written.
pub(super) async fn log(pod: &str, name: &str) -> String {
    docker(&["logs", &container(pod, name)])
        .await
        .unwrap_or_else(|words| words)
}

async fn docker(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("docker").args(arguments).output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Sets the state of one container in the pod's status.
fn set(server: &Server, pod: &str, list: &str, name: &str, state: &Value) {
    server.update("pods", pod, |object| {
        let status =
            json!({"name": name, "state": state, "image": "", "imageID": "", "ready": true, "restartCount": 0});
        let statuses = object["status"][list].as_array().cloned().unwrap_or_default();
        let mut statuses: Vec<Value> = statuses.into_iter().filter(|status| status["name"] != name).collect();
        statuses.push(status);
        object["status"][list] = json!(statuses);
    });
}

fn phase(server: &Server, pod: &str, phase: &str) {
    server.update("pods", pod, |object| object["status"]["phase"] = json!(phase));
}

/// Runs a pod to its end.
pub(super) async fn run(server: Arc<Server>, pod: String, object: Value) {
    let spec = &object["spec"];
    // As the real server refuses them.
    assert_eq!(spec["restartPolicy"], "Never");
    assert!(
        spec["activeDeadlineSeconds"]
            .as_u64()
            .is_some_and(|seconds| seconds > 0)
    );
    assert_eq!(spec["automountServiceAccountToken"], false);
    phase(&server, &pod, "Pending");
    for one in spec["initContainers"].as_array().unwrap() {
        if !start_and_wait(&server, &pod, spec, one, "initContainerStatuses").await {
            phase(&server, &pod, "Failed");
            return;
        }
    }
    let ended = start_and_wait(&server, &pod, spec, &spec["containers"][0], "containerStatuses").await;
    phase(&server, &pod, if ended { "Succeeded" } else { "Failed" });
}

async fn start_and_wait(server: &Server, pod: &str, spec: &Value, one: &Value, list: &str) -> bool {
    let name = one["name"].as_str().unwrap();
    let image = one["image"].as_str().unwrap();
    let mut there = docker(&["image", "inspect", image]).await;
    // Of a registry of this machine's own it is pulled.
    if there.is_err() && image.starts_with("127.0.0.1:") {
        there = docker(&["pull", "-q", image]).await;
    }
    if let Err(words) = there {
        // The kubelet's two states, in turn.
        set(
            server,
            pod,
            list,
            name,
            &json!({"waiting": {"reason": "ErrImagePull", "message": words}}),
        );
        let back_off = format!("Back-off pulling image \"{image}\"");
        set(
            server,
            pod,
            list,
            name,
            &json!({"waiting": {"reason": "ImagePullBackOff", "message": back_off}}),
        );
        std::future::pending::<()>().await;
    }
    let called = container(pod, name);
    let command: Vec<&str> = one["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|word| word.as_str().unwrap())
        .collect();
    let volume = format!(
        "fake-{pod}:/.lego{}",
        if one["volumeMounts"][0]["readOnly"] == true {
            ":ro"
        } else {
            ""
        }
    );
    let memory = one["resources"]["limits"]["memory"].as_str().unwrap_or("0");
    let hostname = spec["hostname"].as_str().unwrap_or_default();
    // As the kubelet starts containers that ask for no profile.
    let mut all = vec![
        "run",
        "-d",
        "--name",
        &called,
        "--security-opt",
        "seccomp=unconfined",
        "--security-opt",
        "apparmor=unconfined",
        "--hostname",
        hostname,
        "-v",
        &volume,
        "--memory",
        memory,
        "--memory-swap",
        memory,
        "--cap-drop",
        "NET_RAW",
        "-e",
        "KUBERNETES_PORT=1",
    ];
    if one["securityContext"]["runAsUser"] == 0 {
        all.extend(["--user", "0:0"]);
    }
    if let Some(folder) = one["workingDir"].as_str() {
        all.extend(["-w", folder]);
    }
    all.extend(["--entrypoint", command[0], image]);
    all.extend(&command[1..]);
    if let Err(words) = docker(&all).await {
        set(
            server,
            pod,
            list,
            name,
            &json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": words}}),
        );
        return false;
    }
    set(server, pod, list, name, &json!({"running": {}}));
    if list == "containerStatuses" {
        phase(server, pod, "Running");
    }
    let code = docker(&["wait", &called])
        .await
        .ok()
        .and_then(|code| code.parse::<i32>().ok())
        .unwrap_or(137);
    let killed = docker(&["inspect", "-f", "{{.State.OOMKilled}}", &called])
        .await
        .is_ok_and(|killed| killed == "true");
    let reason = if killed && code == 137 {
        "OOMKilled"
    } else if code == 0 {
        "Completed"
    } else {
        "Error"
    };
    set(
        server,
        pod,
        list,
        name,
        &json!({"terminated": {"exitCode": code, "reason": reason}}),
    );
    code == 0
}
