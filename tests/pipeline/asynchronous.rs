//! Sampling and updates side by side: what goes on meanwhile, and how such a run ends.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::accounts::diagnose;
use super::serving::terminate;
use super::{SMALL, consumed, lego, lines, quickstart, succeeded};

fn train(steps: &str, runs: &Path, set: &[&str]) -> Vec<Value> {
    let toml = quickstart();
    let output = lego(
        &["train", toml.to_str().unwrap(), "--async", "--steps", steps],
        runs,
        set,
    );
    succeeded(&output);
    lines(&runs.join("quickstart/metrics.jsonl"))
}

fn value(row: &Value, name: &str) -> f64 {
    row[format!("fully_async/{name}")].as_f64().unwrap()
}

#[test]
fn trials_go_on_while_the_trainer_updates_and_every_age_is_told() {
    let runs = tempfile::tempdir().unwrap();
    let rows = train("5", runs.path(), &["async.staleness=1"]);
    assert_eq!(rows.len(), 5);
    let mut oldest: f64 = 0.0;
    for row in &rows {
        let metrics = lego::metrics::StepMetrics::from_json_line(&row.to_string()).unwrap();
        assert_eq!(metrics.unexplained(), Vec::<&str>::new());
        assert!(value(row, "count/staleness_samples") <= 4.0, "{row}");
        oldest = oldest.max(value(row, "staleness/max"));
        let shares: f64 = row
            .as_object()
            .unwrap()
            .iter()
            .filter(|(name, _)| name.contains("/lag_"))
            .map(|(_, share)| share.as_f64().unwrap())
            .sum();
        assert!((shares - 1.0).abs() < 1e-9, "{row}");
    }
    assert!(oldest >= 1.0, "nothing was sampled ahead");
    let run = runs.path().join("quickstart");
    assert_eq!(consumed(&run).len(), 5 * 8);
    let (code, said, error) = diagnose(&run);
    assert_eq!(code, Some(0), "{said}{error}");
}

#[test]
fn a_full_queue_drops_its_oldest_and_says_so() {
    let runs = tempfile::tempdir().unwrap();
    // Twelve groups begin at once: of those that are complete while the first update runs, two can wait.
    let set = [
        "async.staleness=30",
        "async.max_queue=2",
        "sandbox.concurrency=64",
        "async.partial_rollout=false",
    ];
    let rows = train("6", runs.path(), &set);
    let dropped: f64 = rows.iter().map(|row| value(row, "count/dropped_stale_samples")).sum();
    let run = runs.path().join("quickstart");
    let entries = lines(&run.join("buffer.jsonl"));
    let stale = entries.iter().filter(|entry| entry["reason"] == "stale");
    let episodes: usize = stale.map(|entry| entry["episode_ids"].as_array().unwrap().len()).sum();
    assert!(
        dropped > 0.0 && episodes as f64 >= 4.0 * dropped,
        "{dropped} {episodes}"
    );
    assert_eq!(consumed(&run).len(), 6 * 8);
}

#[test]
fn a_run_that_is_asked_to_stop_keeps_what_it_has_trained_on() {
    let runs = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .arg("train")
        .arg(quickstart())
        .args(["--async", "--steps", "40", "--set"]);
    command.arg(format!("run.dir={}", runs.path().display()));
    for value in SMALL.iter().chain(&["checkpoint.every=40"]) {
        command.args(["--set", value]);
    }
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let run = runs.path().join("quickstart");
    for _ in 0..600 {
        std::thread::sleep(std::time::Duration::from_millis(100));
        if std::fs::read_to_string(run.join("metrics.jsonl")).is_ok_and(|text| text.lines().count() >= 2) {
            break;
        }
    }
    terminate(child.id());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    let before = consumed(&run);
    let done = lines(&run.join("metrics.jsonl")).len();
    assert!(said.contains(&format!("interrupted after step {done} of 40")), "{said}");
    let rows = train(&(done + 1).to_string(), runs.path(), &["checkpoint.every=40"]);
    assert_eq!(rows.len(), done + 1, "{rows:?}");
    let after = consumed(&run);
    assert_eq!(after[..before.len()], before, "something trained again");
    assert_eq!(after.len(), (done + 1) * 8);
    // Turns cannot go on where groups were left that are out of order.
    let toml = quickstart();
    let steps = (done + 1).to_string();
    let output = lego(&["train", toml.to_str().unwrap(), "--steps", &steps], runs.path(), &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.success() || said.contains("was trained with `async.enabled`"),
        "{said}"
    );
}

#[test]
fn a_validation_scores_the_weights_of_its_step_beside_the_updates() {
    let runs = tempfile::tempdir().unwrap();
    let records = std::fs::read_to_string(quickstart().with_file_name("val.jsonl")).unwrap();
    let tasks = runs.path().join("val.jsonl");
    std::fs::write(&tasks, records.lines().take(3).collect::<Vec<_>>().join("\n")).unwrap();
    let val = format!("data.val=[\"{}\"]", tasks.display());
    let rows = train("3", runs.path(), &["eval.every=10", "eval.before_train=true", &val]);
    let scored: Vec<u64> = rows
        .iter()
        .filter(|row| row["val/val/pass@1"].is_number())
        .map(|row| row["val/of_step"].as_f64().or(row["step"].as_f64()).unwrap() as u64)
        .collect();
    // That of step 0 stands in the line of the step during which it ended, which may be the last.
    assert!(scored == [0, 3] || scored == [3], "{rows:?}");
    // Each trial of a validation was sampled by one version of the weights.
    let eval = lego::shard::ShardReader::open(&[runs.path().join("quickstart/eval")]).unwrap();
    let mut versions = std::collections::BTreeMap::new();
    for row in eval.rows_local().unwrap() {
        let of: &mut std::collections::BTreeSet<String> = versions.entry(row.step).or_default();
        of.extend(row.weight_versions.iter().map(|span| span.version.to_string()));
    }
    assert_eq!(versions.keys().copied().collect::<Vec<_>>(), [0, 3]);
    for (step, of) in versions {
        assert_eq!(of.len(), 1, "step {step} was scored by {of:?}");
    }
}
