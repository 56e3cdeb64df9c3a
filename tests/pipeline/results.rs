//! What attempts come to: tasks kept by how often they are solved, an evaluation's scores and predictions, results judged
//! again without a model, results taken back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::lines;

const TEST: &str =
    "#!/bin/sh\nif grep -q 1 value; then r=1; else r=0; fi\necho $r >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n";

/// Two tasks, of which recorded answers solve the first, and perhaps one whose environment is never ready.
struct Work {
    folder: tempfile::TempDir,
}

impl Work {
    fn new(with_broken: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut records = Vec::new();
        let mut turns = Vec::new();
        for (id, command) in [("a-easy", "echo 1 >value"), ("b-hard", "true"), ("c-broken", "true")] {
            if id == "c-broken" && !with_broken {
                continue;
            }
            let check = json!({"command": "false", "retries": 1, "interval_sec": 0.1, "timeout_sec": 1.0});
            let environment = if id == "c-broken" {
                json!({"healthcheck": check})
            } else {
                json!({})
            };
            records.push(json!({"instance_id": id, "problem_statement": "Mend it.", "data_source": "made",
                "files": {"value": "0\n"}, "test": TEST, "solution": "#!/bin/sh\necho 1 >value\n", "task": {"environment": environment}}));
            let call = json!({"name": "bash", "arguments": {"command": command}});
            turns.push(json!({"instance_id": id, "turns": [{"tool_calls": [call]}, {"content": "done"}]}));
        }
        let text = |rows: Vec<Value>| {
            rows.iter()
                .flat_map(|row| [row.to_string(), "\n".to_owned()])
                .collect::<String>()
        };
        std::fs::write(folder.path().join("tasks.jsonl"), text(records)).unwrap();
        std::fs::write(folder.path().join("turns.jsonl"), text(turns)).unwrap();
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/policy");
        let config = format!(
            "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"tasks.jsonl\"\nmax_prompt_tokens = 128\n\
             max_response_tokens = 128\n[engine]\nkind = \"replay\"\nrecording = \"turns.jsonl\"\n\
             [scaffold]\nmax_turns = 4\nmax_consecutive_no_tool = 1\n[rollout]\ngroup_size = 1\nmax_retries = 0\n",
            policy.display()
        );
        std::fs::write(folder.path().join("run.toml"), config).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn lego(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        let output = command
            .current_dir(self.folder.path())
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        output
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_slice(&self.lego(arguments).stdout).unwrap()
    }
}

#[test]
fn tasks_are_kept_by_how_often_they_are_solved() {
    let work = Work::new(false);
    work.lego(&["prepare", "tasks.jsonl", "-o", "tasks"]);
    let filter = [
        "prepare",
        "-o",
        "tasks",
        "--stage",
        "filter",
        "--run",
        "run.toml",
        "--attempts",
        "2",
        "--where",
        "pass_rate > 0",
        "--format",
        "table",
    ];
    work.lego(&filter);
    let index = lego::task::TaskIndex::read(&work.path("tasks/index.parquet")).unwrap();
    let kept: Vec<_> = index
        .rows
        .iter()
        .map(|row| (row.instance_id.as_str(), row.pass_rate, row.n_attempts))
        .collect();
    assert_eq!(kept, [("a-easy", Some(1.0), Some(2))]);
    let summary = std::fs::read_to_string(work.path("tasks/summary.csv")).unwrap();
    assert!(
        summary.contains("a-easy,made,,1,2,2,") && summary.contains("b-hard,made,,0,2,0,"),
        "{summary}"
    );
    assert!(work.path("tasks/summary.parquet").is_file());
    // Known by now: the recording may be gone, and another threshold asks nobody.
    std::fs::write(work.path("turns.jsonl"), "").unwrap();
    let again = work.lego(&[&filter[..10], &["pass_rate < 1", "--format", "table"]].concat());
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.contains("tried already 2"), "{said}");
    let index = lego::task::TaskIndex::read(&work.path("tasks/index.parquet")).unwrap();
    assert_eq!(index.rows[0].instance_id, "b-hard");
    // The same grammar selects from what is known.
    work.lego(&[
        "prepare",
        "index",
        "tasks",
        "-o",
        "some.parquet",
        "--where",
        "n_solved == 2 && pass_rate >= 0.5",
    ]);
    assert_eq!(
        lego::task::TaskIndex::read(&work.path("some.parquet"))
            .unwrap()
            .rows
            .len(),
        1
    );
}

#[test]
fn what_agents_left_is_written_down_and_judged_again_without_a_model() {
    let work = Work::new(false);
    let eval = ["rollout", "run.toml", "--eval", "--group-size", "2", "--format", "json"];
    let scores = work.json(&[&eval[..], &["-o", "eval", "--predictions", "predictions.jsonl"]].concat());
    let series = &scores[0];
    assert_eq!(
        (series["pass_at_1"].as_f64(), series["pass_at_k"].as_f64()),
        (Some(0.5), Some(0.5))
    );
    assert_eq!(
        (
            series["trials"].as_u64(),
            series["landed"].as_u64(),
            series["infra"].as_u64()
        ),
        (Some(4), Some(4), Some(0))
    );
    let interval = &series["pass_at_1_interval"];
    assert!(
        interval[0].as_f64() < Some(0.5) && interval[1].as_f64() > Some(0.5),
        "{interval}"
    );
    let predictions = lines(&work.path("predictions.jsonl"));
    assert_eq!(predictions.len(), 2);
    assert_eq!(predictions[0]["instance_id"], "a-easy");
    assert!(
        predictions[0]["model_patch"].as_str().unwrap().contains("-0\n+1\n"),
        "{}",
        predictions[0]
    );
    assert_eq!(predictions[1]["model_patch"], "");
    // No engine is there any more.
    std::fs::remove_file(work.path("turns.jsonl")).unwrap();
    std::fs::write(work.path("turns.jsonl"), "").unwrap();
    // All samples that are there, whatever run.toml says.
    let regrade = ["rollout", "run.toml", "--eval", "--format", "json", "--regrade", "eval"];
    let again = work.json(&[&regrade[..], &["-o", "again"]].concat());
    for key in ["pass_at_1", "trials", "landed", "infra"] {
        assert_eq!(again[0][key], series[key], "{key}");
    }
}

#[test]
fn results_that_failed_by_infrastructure_are_taken_back_when_that_is_confirmed() {
    let work = Work::new(true);
    let rollout = ["rollout", "run.toml", "-o", "out", "-j", "1"];
    work.lego(&rollout);
    let said = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said(work.lego(&rollout)).contains("3 of the 3 trials were there already"));
    let purge = ["rollout", "-o", "out", "--purge-infra", "--format", "json"];
    let rows = work.json(&purge);
    assert_eq!(
        (rows[0]["instance_id"].as_str(), rows[0]["outcome"].as_str()),
        (Some("c-broken"), Some("env_setup_failed"))
    );
    assert_eq!(rows.as_array().unwrap().len(), 1);
    // Only named so far.
    assert!(!work.path("out/purged.jsonl").exists());
    assert!(said(work.lego(&rollout)).contains("3 of the 3 trials were there already"));
    work.json(&[&purge[..], &["--confirm"]].concat());
    assert_eq!(lines(&work.path("out/purged.jsonl")).len(), 1);
    assert!(said(work.lego(&rollout)).contains("2 of the 3 trials were there already"));
    // What failed again can be taken back again.
    assert_eq!(work.json(&purge).as_array().unwrap().len(), 1);
}
