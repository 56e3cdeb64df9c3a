//! Whole trials in pods, by the commands that users give.

use std::path::Path;
use std::process::{Command, Output};

use lego::sandbox::kubernetes::KubernetesBackend;
use lego::sandbox::{ExecRequest, SandboxError, SandboxSpec};
use serde_json::{Value, json};

use super::fake::Fake;
use super::{Faked, cluster, image, options, says, spec, works_on_and_ends};
use crate::{root, succeeds};

/// A task of this image and a run on it, in a folder.
fn write(folder: &Path, image: &str, kubeconfig: &Path) {
    let task = folder.join("tasks/total");
    for part in ["tests", "solution"] {
        std::fs::create_dir_all(task.join(part)).unwrap();
    }
    let toml = format!(
        "[environment]\ndocker_image = \"{image}\"\nworkdir = \"/app\"\nmemory_mb = 256\ncpus = 0.5\n\
         [agent]\nnetwork_mode = \"no-network\"\n[verifier]\nnetwork_mode = \"public\"\n"
    );
    // The agent has no network, its tests have.
    let networks = "grep -v ' lo:' /proc/net/dev | tail -n +3 | wc -l";
    let test = format!(
        "[ -e /app/done ] && [ \"$({networks})\" -gt 0 ] && reward=1\necho \"${{reward:-0}}\" >/logs/verifier/reward.txt\n"
    );
    let files = [
        ("instruction.md", "Do it.\n".to_owned()),
        ("task.toml", toml),
        (
            "solution/solve.sh",
            format!("#!/bin/sh\n[ \"$({networks})\" = 0 ] && touch /app/done\n"),
        ),
        ("tests/test.sh", format!("#!/bin/sh\n{test}")),
        (
            "../../run.toml",
            format!(
                "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"index.parquet\"\nmax_prompt_tokens = 384\nmax_response_tokens = 128\n\
                 [rollout]\nmax_retries = 0\n[sandbox]\nbackend = \"kubernetes\"\n[sandbox.kubernetes]\nkubeconfig = \"{}\"\n",
                root().join("examples/quickstart/policy").display(),
                kubeconfig.display()
            ),
        ),
    ];
    for (name, text) in files {
        std::fs::write(task.join(name), text).unwrap();
    }
    let indexed = lego(folder, &["prepare", "index", "tasks", "-o", "index.parquet"]);
    assert!(indexed.status.success(), "{indexed:?}");
}

fn lego(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lego"))
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

fn rewards(folder: &Path, scaffold: &str) -> Vec<f64> {
    let arguments = [
        "rollout",
        "run.toml",
        "--scaffold",
        scaffold,
        "--group-size",
        "2",
        "--format",
        "jsonl",
        "-o",
        scaffold,
    ];
    let ended = lego(folder, &arguments);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{said}");
    let text = String::from_utf8(ended.stdout).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| row["reward"].as_f64().unwrap_or_else(|| panic!("{row} {said}")))
        .collect()
}

fn trials(kubeconfig: &Path, image: &str) {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), image, kubeconfig);
    assert_eq!(rewards(folder.path(), "oracle"), [1.0, 1.0]);
    assert_eq!(rewards(folder.path(), "nop"), [0.0, 0.0]);
    let checked = lego(folder.path(), &["preflight", "run.toml", "--only", "cluster"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(
        checked.status.success() && said.contains("started, ran a command and was deleted"),
        "{said}"
    );
}

#[test]
fn the_oracle_solves_in_pods_what_a_do_nothing_does_not() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start(folder.path());
    trials(&fake.kubeconfig, &image);
    assert!(fake.names("pods").is_empty(), "pods are left");
    // Four trials and the probe.
    assert_eq!(fake.asked("POST /api/v1/namespaces/trials/pods"), 5);
    assert_eq!(
        fake.asked("GET /api/v1/namespaces/trials/pods/"),
        fake.asked("/exec"),
        "a pod was polled"
    );
}

#[test]
fn a_disk_that_the_agent_filled_is_graded_and_not_tried_again() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start(folder.path());
    write(folder.path(), &image, &fake.kubeconfig);
    let solve = "#!/bin/sh\ntouch /tmp/working\nsleep 600\n";
    std::fs::write(folder.path().join("tasks/total/solution/solve.sh"), solve).unwrap();
    let indexed = lego(folder.path(), &["prepare", "index", "tasks", "-o", "index.parquet"]);
    assert!(indexed.status.success(), "{indexed:?}");
    let place = folder.path();
    let ended = std::thread::scope(|scope| {
        let arguments = [
            "rollout",
            "run.toml",
            "--scaffold",
            "oracle",
            "--group-size",
            "1",
            "--format",
            "jsonl",
            "-o",
            "out",
        ];
        let retries = ["--set", "rollout.max_retries=2"];
        let running = scope.spawn(move || lego(place, &[&arguments[..], &retries].concat()));
        let deadline = std::time::Instant::now() + std::time::Duration::from_mins(2);
        let works = |pod: &str| {
            let mut docker = Command::new("docker");
            docker.args(["exec", &format!("fake-{pod}-main"), "test", "-e", "/tmp/working"]);
            docker.output().unwrap().status.success()
        };
        let pod = loop {
            assert!(
                std::time::Instant::now() < deadline && !running.is_finished(),
                "no agent works"
            );
            match fake.names("pods").pop().filter(|pod| works(pod)) {
                Some(pod) => break pod,
                None => std::thread::sleep(std::time::Duration::from_millis(200)),
            }
        };
        // As the kubelet does both.
        let words = "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. ";
        fake.server.update("pods", &pod, |pod| {
            pod["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": words});
        });
        succeeds(Command::new("docker").args(["kill", &format!("fake-{pod}-main")]));
        running.join().unwrap()
    });
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    let row: Value = serde_json::from_slice(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
    assert_eq!(
        (&row["outcome"], &row["reward"]),
        (&json!("agent_error"), &json!(0.0)),
        "{row} {said}"
    );
    let flags = row["hack_flags"].to_string();
    assert!(flags.contains("storage usage exceeds the total limit"), "{flags}");
    assert_eq!(
        fake.asked("POST /api/v1/namespaces/trials/pods"),
        1,
        "it was tried again"
    );
}

/// An image without a shell cannot be sent anything: it needs nothing of its own where ours comes from another image.
#[tokio::test(flavor = "multi_thread")]
async fn an_image_of_ours_spares_the_tasks_image_every_tool() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let built = |name: &str, dockerfile: &str| {
        std::fs::write(folder.path().join("Dockerfile"), dockerfile).unwrap();
        let mut build = Command::new("docker");
        succeeds(build.args(["build", "-q", "-t", name]).arg(folder.path()));
    };
    std::fs::copy(env!("CARGO_BIN_EXE_lego"), folder.path().join("lego")).unwrap();
    built("lego-test/runtime:own", &format!("FROM {image}\nCOPY lego /lego\n"));
    std::fs::remove_file(folder.path().join("lego")).unwrap();
    std::fs::write(folder.path().join("file"), "kept\n").unwrap();
    let bare = "FROM scratch\nCOPY file /srv/file\nENV COLOUR=red\nWORKDIR /srv\nUSER 1234:5\n";
    built("lego-test/bare:own", bare);

    let sent = Faked::new(|_| {});
    let refused = sent
        .backend
        .create(spec("lego-test/bare:own"))
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("needs `sandbox.kubernetes.runtime_image`"),
        "{refused}"
    );

    let faked = Faked::new(|options| options.cluster.runtime_image = Some("lego-test/runtime:own".to_owned()));
    // What the image says is read from a log of the engine's.
    let wanted = SandboxSpec {
        workdir: None,
        ..spec("lego-test/bare:own")
    };
    let sandbox = faked.backend.create(wanted).await.unwrap();
    assert_eq!(sandbox.workdir(), "/srv");
    sandbox
        .download("/srv/file", &folder.path().join("back"))
        .await
        .unwrap();
    assert_eq!(std::fs::read_to_string(folder.path().join("back")).unwrap(), "kept\n");
    let none = sandbox.exec(ExecRequest::shell("true")).await.unwrap();
    assert_eq!(
        (none.exit_code, none.output.as_str()),
        (127, "cannot run `sh`: No such file or directory\n")
    );
    sandbox.destroy().await.unwrap();
}

#[test]
fn and_on_a_real_cluster() {
    let (Some(image), Some(kubeconfig)) = (image(), cluster()) else {
        return;
    };
    trials(&kubeconfig, &image);
    let pods = Command::new("kubectl")
        .env("KUBECONFIG", kubeconfig)
        .args(["get", "pods", "-l", "lego.owner", "-o", "name"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&pods.stdout), "", "pods are left");
}

/// An agent can kill what carries its host's words; that is a broken stream, and no way out of being graded.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_killed_from_inside_is_made_anew() {
    let (Some(image), Some(kubeconfig)) = (image(), cluster()) else {
        return;
    };
    let backend = KubernetesBackend::new(options(kubeconfig));
    let sandbox = backend.create(spec(&image)).await.unwrap();
    let kill = "for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline | grep -q 'sandbox-init --rela[y]' && kill -9 ${p#/proc/} && echo killed; done; sleep 1; echo x >>/tmp/once";
    for _ in 0..3 {
        assert!(says(sandbox.as_ref(), kill).await.contains("killed"));
    }
    assert_eq!(says(sandbox.as_ref(), "cat /tmp/once").await, "x\nx\nx\n");
    works_on_and_ends(sandbox.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_somebody_deletes_is_said_to_be_deleted() {
    let (Some(image), Some(kubeconfig)) = (image(), cluster()) else {
        return;
    };
    let backend = KubernetesBackend::new(options(kubeconfig.clone()));
    let wanted = SandboxSpec {
        name: format!("deleted-{}", std::process::id()),
        ..spec(&image)
    };
    let label = format!("lego.episode={}", wanted.name);
    let sandbox = backend.create(wanted).await.unwrap();
    let waiting = sandbox.exec(ExecRequest::shell("sleep 600"));
    let deleting = tokio::task::spawn_blocking(move || {
        let mut kubectl = Command::new("kubectl");
        kubectl
            .env("KUBECONFIG", kubeconfig)
            .args(["delete", "pods", "--force", "--grace-period=0", "-l", &label]);
        succeeds(&mut kubectl);
    });
    let (ended, deleted) = tokio::join!(waiting, deleting);
    deleted.unwrap();
    let Err(SandboxError::Ended { reason, by_inside, .. }) = ended else {
        panic!("{ended:?}")
    };
    assert!(!by_inside && reason.contains("deleted"), "{reason}");
}

#[test]
fn what_is_not_allowed_and_what_a_pod_cannot_have_is_said_before_anything_starts() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let fake = Fake::start(folder.path());
    write(folder.path(), &image, &fake.kubeconfig);
    fake.server.objects.lock().unwrap().denied = vec!["create pods/exec".to_owned(), "patch leases".to_owned()];
    let checked = lego(folder.path(), &["preflight", "run.toml", "--only", "cluster"]);
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(
        said.contains("rights are missing in namespace `trials`: create pods/exec, patch leases"),
        "{said}"
    );
    assert!(fake.names("pods").is_empty() && fake.asked("POST /api/v1/namespaces/trials/pods") == 0);
    let ran = lego(
        folder.path(),
        &[
            "rollout",
            "run.toml",
            "--scaffold",
            "nop",
            "-o",
            "out",
            "--set",
            "sandbox.pids=64",
        ],
    );
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        !ran.status.success() && said.contains("sandbox.pids cannot be kept by the `kubernetes` backend"),
        "{said}"
    );
    let object = json!(fake.names("leases"));
    assert_eq!(object, json!([]));
}
