//! The whole circle through the binary: train, resume, and the stages chained by files.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod accounts;
mod algorithms;
mod asynchronous;
mod bad_input;
mod balance;
mod captures;
mod diagnosed;
mod export;
mod hosted;
mod kills;
mod lora;
mod meeting;
mod process;
mod remote_engines;
mod results;
mod resume;
mod servers;
mod serving;
mod serving_flags;
mod trials;
mod unprivileged;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A small step on the quickstart: 2 groups of 4.
const SMALL: [&str; 7] = [
    "rollout.groups_per_step=2",
    "rollout.group_size=4",
    "train.mini_batch=2",
    "eval.before_train=false",
    "eval.every=0",
    "eval.samples=1",
    "data.val=[]",
];

fn quickstart() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/run.toml")
}

fn lego(arguments: &[&str], runs: &Path, set: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .args(arguments)
        .arg("--set")
        .arg(format!("run.dir={}", runs.display()));
    for value in SMALL.iter().chain(set) {
        command.args(["--set", value]);
    }
    command.output().unwrap()
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn succeeded(output: &Output) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}\n{error}", output.status);
}

/// Episodes that the ledger holds as consumed, each as often as it was.
fn consumed(run: &Path) -> Vec<String> {
    let entries = lines(&run.join("buffer.jsonl"));
    let ids = |entry: &Value| entry["episode_ids"].as_array().unwrap().clone();
    let consumed = entries.iter().filter(|entry| entry["kind"] == "consumed");
    consumed
        .flat_map(ids)
        .map(|id| id.as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_run_trains_stops_and_goes_on() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let toml = toml.to_str().unwrap();
    succeeded(&lego(&["train", toml, "--steps", "1"], runs.path(), &[]));
    let run = runs.path().join("quickstart");
    assert_eq!(consumed(&run).len(), 8);

    // The same command with more steps goes on where the run stands.
    let output = lego(&["train", toml, "--steps", "3"], runs.path(), &[]);
    succeeded(&output);
    let steps: Vec<u64> = lines(&run.join("metrics.jsonl"))
        .iter()
        .map(|line| line["step"].as_u64().unwrap())
        .collect();
    assert_eq!(steps, [1, 2, 3]);
    let all = consumed(&run);
    assert_eq!(all.len(), 24);
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        24,
        "an episode trained twice"
    );
    for file in [
        "model.safetensors",
        "config.json",
        "tokenizer.json",
        "optimizer.safetensors",
    ] {
        assert!(run.join("checkpoints/latest").join(file).is_file(), "{file}");
    }
    let last = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        last.lines().last(),
        Some(run.to_str().unwrap()),
        "the last line is the run directory"
    );
    // Asked for fewer steps than there are, it says so and changes nothing.
    let output = lego(&["train", toml, "--steps", "1"], runs.path(), &[]);
    succeeded(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("has 3 steps already") && said.contains("done: 3 of 3 steps"),
        "{said}"
    );
    assert_eq!(consumed(&run).len(), 24);
    for line in lines(&run.join("metrics.jsonl")) {
        let metrics = lego::metrics::StepMetrics::from_json_line(&line.to_string()).unwrap();
        assert_eq!(metrics.unexplained(), Vec::<&str>::new());
        assert_eq!(line["rollout/delivered_fraction/min"], 1.0, "a sampled token was lost");
        for name in ["timing_s/gen", "timing_s/reward", "timing_s/step", "critic/score/mean"] {
            assert!(line[name].is_number(), "{name}");
        }
    }
}

#[test]
fn the_engine_and_the_trainer_agree_on_log_probs() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let set = ["train.bypass_old_logprob=false"];
    succeeded(&lego(
        &["train", toml.to_str().unwrap(), "--steps", "1"],
        runs.path(),
        &set,
    ));
    let lines = lines(&runs.path().join("quickstart/metrics.jsonl"));
    let pearson = lines[0]["training/rollout_actor_probs_pearson_corr"].as_f64().unwrap();
    assert!(pearson >= 0.9999, "{pearson}");
}

#[test]
fn stages_chain_by_files() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let toml = toml.to_str().unwrap();
    let shards = runs.path().join("shards");
    let ids = runs.path().join("ids.txt");
    std::fs::write(&ids, "train-00000\ntrain-00001\n").unwrap();
    let arguments = [
        "rollout",
        toml,
        "-o",
        shards.to_str().unwrap(),
        "--tasks",
        ids.to_str().unwrap(),
        "--print",
        "paths",
    ];
    let output = lego(&arguments, runs.path(), &[]);
    succeeded(&output);
    let paths = String::from_utf8(output.stdout).unwrap();
    assert!(
        paths.lines().count() >= 1 && paths.lines().all(|path| Path::new(path).is_file()),
        "{paths}"
    );
    let places: Vec<&str> = paths.lines().flat_map(|path| ["--shards", path]).collect();
    let arguments: Vec<&str> = ["train", toml].into_iter().chain(places).collect();
    let validation = quickstart().with_file_name("val.jsonl");
    let validation = format!("data.val=[\"{}\"]", validation.display());
    let offline = lego(
        &arguments,
        runs.path(),
        &["run.name=offline", "eval.every=1", &validation],
    );
    succeeded(&offline);
    let said = String::from_utf8_lossy(&offline.stderr);
    assert!(said.contains("`[eval]` is not followed"), "{said}");
    assert_eq!(consumed(&runs.path().join("offline")).len(), 8);
}

#[test]
fn a_second_trainer_on_the_same_run_is_refused() {
    let runs = tempfile::tempdir().unwrap();
    let run = runs.path().join("quickstart");
    let held = lego::run_dir::RunDir::create(&run).unwrap();
    let _lock = held.lock().unwrap();
    let output = lego(
        &["train", quickstart().to_str().unwrap(), "--steps", "1"],
        runs.path(),
        &[],
    );
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("in use by process"), "{error}");
}
