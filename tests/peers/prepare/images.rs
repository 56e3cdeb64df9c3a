//! From records of a repository to an image in a registry, and back from there to trials.

use std::process::Command;

use lego::task::TaskIndex;
use serde_json::Value;

use super::Made;
use crate::docker::registry::{Registry, light};
use crate::docker::{docker, image};
use crate::kubernetes::fake::Fake;
use crate::root;

/// Rewards of one trial by this agent, with these keys of `[sandbox]`.
fn reward(made: &Made, agent: &str, sandbox: &str) -> Option<f64> {
    let config = format!(
        "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"tasks/index.parquet\"\nmax_prompt_tokens = 384\n\
         max_response_tokens = 128\n[rollout]\nmax_retries = 0\n[sandbox]\n{sandbox}\n",
        root().join("examples/quickstart/policy").display()
    );
    std::fs::write(made.path("run.toml"), config).unwrap();
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .current_dir(made.path(""))
        .args(["rollout", "run.toml", "--scaffold", agent, "--group-size", "1"]);
    let ended = command
        .args(["--format", "jsonl", "-o"])
        .arg(out.path().join("out"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stdout).into_owned();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{text}{said}");
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(rows.len(), 1, "{text}{said}");
    rows[0]["reward"].as_f64()
}

#[test]
fn what_is_pushed_is_pulled_back_by_the_name_recorded_and_tried() {
    let Some(base) = image() else { return };
    let registry = Registry::start();
    let made = Made::of(&["python"]);
    // An id, and so a name of an image, that no other test on this engine has.
    let id = format!("push-{}", std::process::id());
    let records = std::fs::read_to_string(made.path("records.jsonl")).unwrap();
    std::fs::write(made.path("records.jsonl"), records.replace("o__python-7", &id)).unwrap();
    let to = format!("{}/team", registry.address);
    let base = format!("--base-image=python={}", light(&base));
    let converted = [
        "records.jsonl",
        "-o",
        "tasks",
        "--repo-cache",
        "repos",
        "--stage",
        "convert,build,index",
        &base,
    ];
    let output = made.prepare(
        &[
            &converted[..],
            &["--backend", "docker", "--push", &to, "--format", "jsonl"],
        ]
        .concat(),
    );
    let rows = String::from_utf8(output.stdout).unwrap();
    let built: Value = rows
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|row| row["stage"] == "build")
        .unwrap();
    let index = TaskIndex::read(&made.path("tasks/index.parquet")).unwrap();
    let row = &index.rows[0];
    let name = format!("{to}/{id}");
    assert_eq!(row.image.as_deref(), Some(name.as_str()));
    let digest = row.image_digest.clone().unwrap();
    let pinned = format!("{name}@{digest}");
    assert_eq!(
        (&built["status"], &built["image"]),
        (&"built".into(), &pinned.as_str().into())
    );
    // Nothing of it is left in the engine.
    let local = docker(&["images", "-q", &format!("lego/{id}")]);
    docker(&["rmi", "-f", local.trim()]);
    let forgotten = || {
        let shown = Command::new("docker")
            .args(["image", "inspect", &pinned])
            .output()
            .unwrap();
        !shown.status.success()
    };
    assert!(forgotten());
    let here = format!("backend = \"docker\"\nregistry = \"{to}/\"");
    assert_eq!(reward(&made, "oracle", &here), Some(1.0));
    assert_eq!(reward(&made, "nop", &here), Some(0.0));
    assert!(
        registry.pulls(&format!("team/{id}"), &digest) > 0,
        "it was not pulled by its digest"
    );
    docker(&["rmi", "-f", &pinned]);
    assert!(forgotten());
    // A cluster builds nothing: it finds the image by the index alone.
    let cluster = tempfile::tempdir().unwrap();
    let fake = Fake::start(cluster.path());
    let pods = format!(
        "backend = \"kubernetes\"\n[sandbox.kubernetes]\nkubeconfig = \"{}\"",
        fake.kubeconfig.display()
    );
    assert_eq!(reward(&made, "oracle", &pods), Some(1.0));
    drop(fake);
    let _ = Command::new("docker").args(["rmi", "-f", &pinned]).output();
}
