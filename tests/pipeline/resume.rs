//! Going on with a run whose files are damaged, lost or in use, and what is said of it.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::{lego, lines, quickstart, succeeded};

fn train(steps: &str, runs: &Path, set: &[&str]) -> Output {
    let toml = quickstart();
    lego(&["train", toml.to_str().unwrap(), "--steps", steps], runs, set)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Names of the shards of a step.
fn shards(run: &Path, step: &str) -> Vec<String> {
    let entries = std::fs::read_dir(run.join("rollouts").join(step)).unwrap();
    entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn a_damaged_state_is_named_and_a_lost_one_gives_no_number_twice() {
    let runs = tempfile::tempdir().unwrap();
    succeeded(&train("1", runs.path(), &[]));
    let run = runs.path().join("quickstart");
    let state = run.join("state.json");
    for damage in [&b"\xff\xfe"[..], b"", b"{}"] {
        std::fs::write(&state, damage).unwrap();
        let output = train("2", runs.path(), &[]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("error: {}: not the state of a run", state.display())),
            "{said}"
        );
        assert!(
            said.contains("move the file away") && said.contains("--fresh"),
            "{said}"
        );
        assert_eq!(
            std::fs::read(&state).unwrap(),
            damage,
            "what cannot be read is left as it is"
        );
    }
    std::fs::rename(&state, runs.path().join("damaged.json")).unwrap();
    succeeded(&train("2", runs.path(), &[]));
    assert_eq!(lines(&run.join("metrics.jsonl")).len(), 2);
    assert_eq!(shards(&run, "000001"), ["part-trainer0-000000.parquet"]);
    assert_eq!(shards(&run, "000002"), ["part-trainer1-000000.parquet"]);
    let checkpoint = std::fs::read_to_string(run.join("checkpoints/latest/state.json")).unwrap();
    let checkpoint: serde_json::Value = serde_json::from_str(&checkpoint).unwrap();
    assert!(
        checkpoint["version"].as_str().unwrap().starts_with("1."),
        "{checkpoint}"
    );
}

#[test]
fn a_damaged_checkpoint_is_told_once_and_the_table_spans_all_starts() {
    let runs = tempfile::tempdir().unwrap();
    let val = runs.path().join("val.jsonl");
    let all = std::fs::read_to_string(quickstart().with_file_name("val.jsonl")).unwrap();
    let some: Vec<&str> = all.lines().take(2).collect();
    std::fs::write(&val, some.join("\n") + "\n").unwrap();
    let val = format!("data.val=[\"{}\"]", val.display());
    let set = [
        val.as_str(),
        "eval.before_train=true",
        "eval.every=1",
        "checkpoint.every=1",
    ];
    succeeded(&train("2", runs.path(), &set));
    let newest = runs.path().join("quickstart/checkpoints/step_000002/model.safetensors");
    let weights = std::fs::read(&newest).unwrap();
    std::fs::write(&newest, &weights[..weights.len() / 2]).unwrap();
    let output = train("3", runs.path(), &set);
    succeeded(&output);
    let said = said(&output);
    assert_eq!(said.matches("checkpoint passed over").count(), 1, "{said}");
    let table = said.lines().find(|line| line.contains("VALIDATION")).unwrap_or(&said);
    for column in ["PASS@1, STEP 0", "PASS@1, STEP 3", "GREEDY, STEP 0", "GREEDY, STEP 3"] {
        assert!(table.contains(column), "{said}");
    }
    let row = said
        .lines()
        .find(|line| line.trim_start().starts_with("val  "))
        .unwrap_or(&said);
    assert!(
        row.contains('±') && row.split_whitespace().nth(1) == Some("2"),
        "{said}"
    );
}

#[test]
fn a_rollout_into_a_run_that_trains_is_refused() {
    let runs = tempfile::tempdir().unwrap();
    let run = runs.path().join("quickstart");
    let held = lego::run_dir::RunDir::create(&run).unwrap();
    let _lock = held.lock().unwrap();
    let out: PathBuf = held.rollouts();
    let toml = quickstart();
    let arguments = ["rollout", toml.to_str().unwrap(), "-o", out.to_str().unwrap()];
    let output = lego(&arguments, runs.path(), &[]);
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&format!("lies in the run {}, which process ", run.display())),
        "{said}"
    );
    assert_eq!(std::fs::read_dir(out).unwrap().count(), 0);
}
