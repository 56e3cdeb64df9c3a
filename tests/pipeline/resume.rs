//! Going on with a run whose files are damaged, lost or in use, and what is said of it.

use std::path::Path;
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
