//! Runs that are really made wrong, and what `lego diagnose` says of them: exactly what is wrong, and of a healthy one nothing.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::remote_engines::on;
use super::servers::{Fault, Peer};
use super::{lego, lines, quickstart, succeeded};

/// What is said of a run, as JSON.
fn diagnosis(run: &Path) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    let output = command.args(["diagnose", "--json", "run"]).arg(run).output().unwrap();
    succeeded(&output);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Signatures that matched.
fn signatures(report: &Value) -> Vec<&str> {
    let findings = report["findings"].as_array().unwrap();
    findings.iter().map(|one| one["signature"].as_str().unwrap()).collect()
}

/// The first tasks of the quickstart, each changed.
fn tasks(folder: &Path, count: usize, change: impl Fn(&mut Value)) -> String {
    let of_quickstart = std::fs::read_to_string(quickstart().with_file_name("train.jsonl")).unwrap();
    let mut text = String::new();
    for line in of_quickstart.lines().take(count) {
        let mut task: Value = serde_json::from_str(line).unwrap();
        change(&mut task);
        text += &(task.to_string() + "\n");
    }
    let path = folder.join("tasks.jsonl");
    std::fs::write(&path, text).unwrap();
    format!("data.train={}", path.display())
}

fn train(runs: &Path, steps: Option<&str>, set: &[&str]) {
    let toml = quickstart();
    let mut arguments = vec!["train", toml.to_str().unwrap()];
    arguments.extend(steps.iter().flat_map(|steps| ["--steps", steps]));
    succeeded(&lego(&arguments, runs, set));
}

#[test]
fn a_healthy_run_has_no_signature() {
    let runs = tempfile::tempdir().unwrap();
    let set = [
        "rollout.groups_per_step=4",
        "rollout.group_size=8",
        "train.mini_batch=4",
    ];
    train(runs.path(), Some("7"), &set);
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), Vec::<&str>::new(), "{report:#}");
    assert_eq!(report["verdict"], "healthy");
    let metrics = lines(&runs.path().join("quickstart/metrics.jsonl"));
    let busy: Vec<f64> = metrics
        .iter()
        .filter_map(|step| step["inference/running"].as_f64())
        .collect();
    // How often it is found at work depends on how slow all the rest is.
    assert!(busy.len() == 7 && busy.iter().sum::<f64>() > 0.0, "{busy:?}");
}

#[test]
fn a_rate_that_no_weight_feels_freezes_the_model() {
    let runs = tempfile::tempdir().unwrap();
    // A rate of zero is refused before anything starts; a warm-up that never ends is not.
    let refused = lego(
        &["train", quickstart().to_str().unwrap(), "--steps", "1"],
        runs.path(),
        &["train.lr=0"],
    );
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("train.lr = 0: no step would change the policy"), "{said}");

    let eight = tasks(runs.path(), 8, |_| {});
    let set = [
        "train.warmup=4000000000",
        "train.steps=4294967295",
        "data.epochs=1",
        eight.as_str(),
    ];
    train(runs.path(), None, &set);
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), ["frozen-model"], "{report:#}");
    assert_eq!(report["recommendations"][0]["key"], "train.lr");
}

#[test]
fn tasks_that_nobody_can_solve_give_no_signal() {
    let runs = tempfile::tempdir().unwrap();
    let never = "#!/bin/sh\necho 'FAILED cases: expected another answer'\necho 0 >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n";
    let hard = tasks(runs.path(), 8, |task| task["test"] = json!(never));
    train(runs.path(), Some("4"), &[&hard]);
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), ["no-signal"], "{report:#}");
    let said = report["findings"][0]["evidence"].to_string();
    assert!(said.contains("too hard"), "{said}");
}

#[test]
fn a_grader_that_never_runs_is_named_also_where_no_step_ends() {
    let runs = tempfile::tempdir().unwrap();
    for (test, status) in [
        // It says no reward: the run ends before its first step.
        ("#!/bin/sh\nno-such-grader-7 cases\n", 3),
        (
            "#!/bin/sh\nno-such-grader-7 cases\necho 0 >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n",
            0,
        ),
    ] {
        let broken = tasks(runs.path(), 8, |task| task["test"] = json!(test));
        let run = tempfile::tempdir_in(runs.path()).unwrap();
        let output = lego(
            &["train", quickstart().to_str().unwrap(), "--steps", "4"],
            run.path(),
            &[&broken],
        );
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(status), "{said}");
        let report = diagnosis(&run.path().join("quickstart"));
        assert_eq!(signatures(&report), ["grader-did-not-run"], "{report:#}");
        assert!(
            report["findings"][0]["evidence"]
                .to_string()
                .contains("no-such-grader-7"),
            "{report:#}"
        );
    }
}

#[test]
fn a_parser_that_never_matches_is_a_collapse_of_tool_calls() {
    let runs = tempfile::tempdir().unwrap();
    let config = std::fs::read(quickstart().with_file_name("policy").join("tokenizer_config.json")).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    // How calls are written is not to be seen in it, so that none is read.
    let hidden = config["chat_template"]
        .as_str()
        .unwrap()
        .replace("tool_call>", "action>");
    let template = runs.path().join("template.jinja");
    std::fs::write(&template, hidden).unwrap();
    let template = format!("policy.chat_template={}", template.display());
    train(runs.path(), Some("4"), &[&template]);
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), ["tool-call-collapse"], "{report:#}");
    assert_eq!(report["recommendations"][0]["key"], "engine.tool_parser");
}

/// Ends a server in the middle of what it does, as a process that is killed: its connections and its port are gone.
fn kill_after(peer: Peer, generations: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let began = Instant::now();
        while peer.generations() < generations {
            assert!(began.elapsed() < Duration::from_mins(5), "it is never asked");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(peer);
    })
}

#[test]
fn an_engine_that_is_killed_is_named() {
    let runs = tempfile::tempdir().unwrap();
    let policy = quickstart().with_file_name("policy");
    let (stays, goes) = (Peer::start(&policy, Fault::None), Peer::start(&policy, Fault::None));
    let (url, gone) = (stays.url.clone(), goes.url.clone());
    let killing = kill_after(goes, 6);
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "4"];
    succeeded(&on(&[&url, &gone], &arguments, runs.path(), &[]));
    killing.join().unwrap();
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), ["replica-lost"], "{report:#}");
    let said = report["findings"][0]["evidence"].to_string();
    assert!(said.contains(&gone) && !said.contains(&url), "{said}");
    let last = lines(&runs.path().join("quickstart/metrics.jsonl")).pop().unwrap();
    assert!(last["inference/replica_0/running"].as_f64() > Some(0.0), "{last}");
    assert_eq!(last["inference/replica_1/up"], 0.0);
}

#[test]
fn a_run_whose_only_engine_is_killed_has_crashed() {
    let runs = tempfile::tempdir().unwrap();
    let peer = Peer::start(&quickstart().with_file_name("policy"), Fault::None);
    let url = peer.url.clone();
    let killing = kill_after(peer, 40);
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "4"];
    let output = on(&[&url], &arguments, runs.path(), &["rollout.max_retries=0"]);
    killing.join().unwrap();
    assert_eq!(
        output.status.code(),
        Some(3),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report = diagnosis(&runs.path().join("quickstart"));
    assert_eq!(signatures(&report), ["crash-loop"], "{report:#}");
    // What is told to do is what this failure needs, and no more.
    assert_eq!(report["recommendations"].as_array().unwrap().len(), 1, "{report:#}");
    assert_eq!(report["recommendations"][0]["key"], "engine", "{report:#}");
}
