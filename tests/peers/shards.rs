//! DuckDB, Polars and pandas read a folder of rollout shards as it stands.

use std::process::Command;

use serde_json::Value;

use super::{python, root, succeeds};

#[test]
fn three_libraries_read_the_shards_as_they_stand() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let ids = folder.path().join("ids.txt");
    std::fs::write(&ids, "train-00000\ntrain-00001\ntrain-00002\n").unwrap();
    let output = succeeds(
        Command::new(env!("CARGO_BIN_EXE_lego"))
            .arg("rollout")
            .arg(root().join("examples/quickstart/run.toml"))
            .arg("-o")
            .arg(&out)
            .args(["--format", "json"])
            .arg("--tasks")
            .arg(&ids)
            .args(["--set", "rollout.group_size=4"])
            .args(["--set", &format!("run.dir={}", folder.path().join("runs").display())]),
    );
    let trials: Vec<Value> = serde_json::Deserializer::from_slice(&output.stdout)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    let output = succeeds(
        Command::new(python())
            .arg(root().join("tests/peers/read_shards.py"))
            .arg(out.join("rollouts")),
    );
    let found: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(found.len(), 3, "{found:?}");
    for library in &found {
        assert_eq!(library["groups"], 3, "{library}");
        assert_eq!(library["ragged"], 0, "{library}");
        assert!(library["rows"].as_u64().unwrap() >= 12, "{library}");
        for key in ["rows", "tokens", "reward"] {
            assert_eq!(library[key], found[0][key], "{key}: {library} and {}", found[0]);
        }
    }
    assert!(!trials.is_empty());
}
