//! `lego diagnose shards`: every sampled token has its place, and what does not add up is named.

use std::path::Path;
use std::process::{Command, Output};

use super::trials::Rollout;

fn diagnose(place: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .args(["diagnose", "shards"])
        .arg(place)
        .args(["--format", "jsonl"]);
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_accounts_add_up_and_a_lost_call_is_named() {
    let rollout = Rollout::new("plain", "echo 0\n", "echo 'echo 1' > report");
    rollout.run(&[]);
    let out = rollout.out();
    let (code, accounts, said) = diagnose(&out);
    assert_eq!(code, Some(0), "{said}");
    let row: serde_json::Value = serde_json::from_str(accounts.trim()).unwrap();
    assert_eq!(row["account"], "trained");
    let tokens = row["tokens"].as_u64().unwrap();
    assert!(
        tokens > 0 && said.contains(&format!("sampled {tokens} tokens in 1 sessions, {tokens} are")),
        "{said}"
    );
    // The folder of shards leads to the same run.
    assert_eq!(diagnose(&out.join("rollouts")).1, accounts);

    let log = rollout.trial("plain").join("calls.jsonl");
    let whole = std::fs::read_to_string(&log).unwrap();
    let without_last = whole.lines().rev().skip(1).collect::<Vec<_>>();
    let cut: String = without_last
        .iter()
        .rev()
        .map(|line| (*line).to_owned() + "\n")
        .collect();
    std::fs::write(&log, cut).unwrap();
    let (code, _, said) = diagnose(&out);
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("calls.jsonl: ") && said.contains("tokens train by the log"),
        "{said}"
    );
    assert!(said.contains("1 calls were cut off"), "{said}");
}

#[test]
fn what_is_no_shard_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.parquet"), "not a shard").unwrap();
    let (code, _, said) = diagnose(folder.path());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("a.parquet"), "{said}");
    assert_eq!(diagnose(&folder.path().join("nowhere")).0, Some(2));
}
