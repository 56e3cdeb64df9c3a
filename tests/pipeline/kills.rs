//! `kill -9` at random moments of a run, then the same command again: nothing is lost, nothing trains twice, in turns and
//! side by side.
//!
//! Two kills always, ten by `tests/run --full` (`LEGO_TEST_KILLS=10`).

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lego::buffer::Ledger;
use sha2::{Digest as _, Sha256};

use super::accounts::diagnose;
use super::{SMALL, lines, quickstart};

const STEPS: u32 = 6;

fn train(runs: &Path, set: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command
        .arg("train")
        .arg(quickstart())
        .args(["--steps", &STEPS.to_string(), "--set"])
        .arg(format!("run.dir={}", runs.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    for value in SMALL.iter().chain(set) {
        command.args(["--set", value]);
    }
    command
}

fn finishes(runs: &Path, set: &[&str]) {
    let output = train(runs, set).output().unwrap();
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

/// Numbers that differ from run to run; printed where a test fails.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(u64::from(now.subsec_nanos()))
    }

    /// From 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        // Knuth's multiplier; the upper bits are the better ones.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1_u32 << 24)
    }
}

/// Starts a run again and again, kills each start at a random moment, and lets the last one finish. Each start goes on
/// where the last one came to: together they last about as long as a whole run, which is `length`. Tells the moments.
fn killed(runs: &Path, set: &[&str], length: Duration) -> Vec<Duration> {
    let kills: u32 = std::env::var("LEGO_TEST_KILLS").map_or(2, |text| text.parse().unwrap());
    let mut random = Random::new();
    let mut moments = Vec::new();
    for _ in 0..kills {
        let moment = length.mul_f64(random.share());
        let moment = (moment * 2 / kills).max(Duration::from_millis(50));
        moments.push(moment);
        let mut child = train(runs, set).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(moment);
        child.kill().unwrap();
        child.wait().unwrap();
    }
    finishes(runs, set);
    moments
}

fn steps(run: &Path) -> Vec<u64> {
    let rows = lines(&run.join("metrics.jsonl"));
    rows.iter().map(|row| row["step"].as_u64().unwrap()).collect()
}

#[test]
fn a_killed_run_goes_on_as_if_nothing_had_been() {
    let whole = tempfile::tempdir().unwrap();
    let began = Instant::now();
    finishes(whole.path(), &[]);
    let length = began.elapsed();
    let (broken, asynchronous) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let in_turns = killed(broken.path(), &[], length);
    // Without staleness it samples and trains the same.
    let side_by_side = killed(
        asynchronous.path(),
        &["async.enabled=true", "async.staleness=0"],
        length,
    );

    let whole = whole.path().join("quickstart");
    let expected = history(&whole);
    assert_eq!(expected.len(), 8 * STEPS as usize);
    for (broken, moments) in [(broken, in_turns), (asynchronous, side_by_side)] {
        let broken = broken.path().join("quickstart");
        assert_eq!(history(&broken), expected, "killed at {moments:?}");
        assert_eq!(weights(&broken), weights(&whole), "killed at {moments:?}");
        assert_eq!(steps(&broken), steps(&whole), "killed at {moments:?}");
    }
}

#[test]
fn every_task_of_an_epoch_trains_once_however_often_a_run_ahead_of_its_trainer_is_killed() {
    let runs = tempfile::tempdir().unwrap();
    let tasks = runs.path().join("tasks.jsonl");
    let all = std::fs::read_to_string(quickstart().with_file_name("train.jsonl")).unwrap();
    let some: Vec<&str> = all.lines().take(2 * STEPS as usize - 1).collect();
    std::fs::write(&tasks, some.join("\n")).unwrap();
    let train = format!("data.train={}", tasks.display());
    let set = [
        "async.enabled=true",
        "async.staleness=1.5",
        "data.epochs=1",
        "checkpoint.every=2",
        &train,
    ];
    let moments = killed(runs.path(), &set, Duration::from_secs(8));
    let run = runs.path().join("quickstart");
    // Two tasks an update, and the last of them has one.
    assert_eq!(
        steps(&run),
        (1..=u64::from(STEPS)).collect::<Vec<_>>(),
        "killed at {moments:?}"
    );
    let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (episode, update) in history(&run) {
        groups
            .entry(episode.split('@').next().unwrap().to_owned())
            .or_default()
            .push(update);
    }
    assert_eq!(groups.len(), some.len(), "killed at {moments:?}: {groups:?}");
    for (task, updates) in &groups {
        let first = updates[0];
        assert_eq!(updates, &[first; 4], "killed at {moments:?}: {task} was torn");
    }
    // Rows on disk: those of the ledger, none of them twice.
    let (code, said, error) = diagnose(&run);
    assert_eq!(code, Some(0), "killed at {moments:?}: {said}{error}");
    for row in lines(&run.join("metrics.jsonl")) {
        let of = |name: &str| row[format!("fully_async/count/{name}")].as_f64().unwrap();
        assert!(of("staleness_samples") <= of("staleness_bound"), "{row}");
        let counted = [of("staleness_bound"), of("dropped_stale_samples")].map(|count| count as u64);
        assert_eq!(counted, [5, 0], "{row}");
    }
}
