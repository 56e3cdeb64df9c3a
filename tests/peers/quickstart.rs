//! The quickstart's tasks are what its generator writes.

use std::process::Command;

use super::{python, root, succeeds};

#[test]
fn the_generator_writes_the_committed_tasks() {
    let examples = root().join("examples/quickstart");
    let folder = tempfile::tempdir().unwrap();
    succeeds(
        Command::new(python())
            .arg(examples.join("generate.py"))
            .args(["tasks", "-o"])
            .arg(folder.path()),
    );
    for file in ["train.jsonl", "val.jsonl", "val_unseen_kind.jsonl"] {
        let (written, committed) = (
            std::fs::read(folder.path().join(file)),
            std::fs::read(examples.join(file)),
        );
        assert!(
            written.unwrap() == committed.unwrap(),
            "{file} is not what generate.py writes"
        );
    }
}
