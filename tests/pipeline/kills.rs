//! `kill -9` at random moments of a run, then the same command again: nothing is lost, nothing trains twice.
//!
//! Two kills always, ten by `tests/run --full` (`LEGO_TEST_KILLS=10`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lego::buffer::Ledger;
use sha2::{Digest as _, Sha256};

use super::{SMALL, lines, quickstart};

const STEPS: u32 = 6;

fn train(runs: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .arg("train")
        .arg(quickstart())
        .args(["--steps", &STEPS.to_string(), "--set"])
        .arg(format!("run.dir={}", runs.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    for value in SMALL {
        command.args(["--set", value]);
    }
    command
}

fn finishes(runs: &Path) {
    let output = train(runs).output().unwrap();
    assert!(
        output.status.success(),
        "{:?}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Which update consumed which episode, in the history that survived.
fn history(run: &Path) -> BTreeMap<String, u64> {
    let view = Ledger::read_view(&run.join("buffer.jsonl")).unwrap();
    view.consumed().map(|(id, update)| (id.to_string(), update)).collect()
}

fn weights(run: &Path) -> Vec<u8> {
    let bytes = std::fs::read(run.join("checkpoints/latest/model.safetensors")).unwrap();
    Sha256::digest(bytes).to_vec()
}

/// A number that differs from run to run; printed where a test fails.
fn seed() -> u64 {
    u64::from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos())
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_been() {
    let kills: u32 = std::env::var("LEGO_TEST_KILLS").map_or(2, |text| text.parse().unwrap());
    let whole = tempfile::tempdir().unwrap();
    let began = Instant::now();
    finishes(whole.path());
    let length = began.elapsed();

    let broken = tempfile::tempdir().unwrap();
    let mut random = seed();
    let mut moments = Vec::new();
    for _ in 0..kills {
        // Knuth's multiplier; the upper bits are the better ones.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let moment = length.mul_f64((random >> 40) as f64 / f64::from(1_u32 << 24));
        // Each start goes on where the last one came to: together they last about as long as the whole run.
        let moment = (moment * 2 / kills).max(Duration::from_millis(50));
        moments.push(moment);
        let mut child = train(broken.path()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    finishes(broken.path());

    let (whole, broken) = (whole.path().join("quickstart"), broken.path().join("quickstart"));
    let expected = history(&whole);
    assert_eq!(expected.len(), 8 * STEPS as usize);
    assert_eq!(history(&broken), expected, "killed at {moments:?}");
    assert_eq!(weights(&broken), weights(&whole), "killed at {moments:?}");
    let steps = |run: &Path| -> Vec<u64> {
        let rows = lines(&run.join("metrics.jsonl"));
        rows.iter().map(|row| row["step"].as_u64().unwrap()).collect()
    };
    assert_eq!(steps(&broken), steps(&whole), "killed at {moments:?}");
}
