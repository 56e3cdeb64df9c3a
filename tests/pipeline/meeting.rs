//! A trainer and rollouters in processes of their own, which meet in a folder and know nothing of each other; some are killed.
//!
//! Two kills always, ten of each side by `tests/run --full` (`LEGO_TEST_KILLS=10`).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use lego::buffer::Ledger;

use super::accounts::diagnose;
use super::kills::Random;
use super::process::Process;
use super::{SMALL, lines, quickstart};

struct Run {
    folder: tempfile::TempDir,
    tasks: usize,
}

impl Run {
    /// One epoch of so many tasks, two an update.
    fn new(tasks: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let all = std::fs::read_to_string(quickstart().with_file_name("train.jsonl")).unwrap();
        let some: Vec<&str> = all.lines().take(tasks).collect();
        std::fs::write(folder.path().join("tasks.jsonl"), some.join("\n")).unwrap();
        std::fs::create_dir(folder.path().join("runs")).unwrap();
        Self { folder, tasks }
    }

    fn place(&self) -> PathBuf {
        self.folder.path().join("runs/quickstart")
    }

    fn start(&self, arguments: &[&str], log: &str) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        let (subcommand, more) = arguments.split_first().unwrap();
        command.arg(subcommand).arg(quickstart()).args(more);
        let set = [
            format!("run.dir={}", self.folder.path().join("runs").display()),
            format!("data.train={}", self.folder.path().join("tasks.jsonl").display()),
            "data.epochs=1".to_owned(),
            "async.staleness=2".to_owned(),
            "async.enabled=true".to_owned(),
            // Fewer than a group has: the rest of it begins as others end.
            "sandbox.concurrency=3".to_owned(),
        ];
        for value in SMALL.iter().map(|value| (*value).to_owned()).chain(set) {
            command.args(["--set", &value]);
        }
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join(log))
            .unwrap();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        Process(command.spawn().unwrap())
    }

    fn trainer(&self) -> Process {
        let place = self.place();
        self.start(
            &["train", "--steps", "40", "--publish", place.to_str().unwrap()],
            "trainer.log",
        )
    }

    fn rollouter(&self, name: &str) -> Process {
        let place = self.place();
        let arguments = ["rollout", "--follow", place.to_str().unwrap(), "--name", name];
        self.start(&arguments, &format!("{name}.log"))
    }

    fn said(&self) -> String {
        let logs = ["trainer.log", "one.log", "two.log"];
        let texts = logs.map(|log| std::fs::read_to_string(self.folder.path().join(log)).unwrap_or_default());
        texts.join("----\n")
    }

    /// Every task of the epoch has trained once, whole, and what is on disk says the same.
    fn check(&self) {
        let view = Ledger::read_view(&self.place().join("buffer.jsonl")).unwrap();
        let mut groups: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (episode, update) in view.consumed() {
            let task = episode.0.split('@').next().unwrap().to_owned();
            groups.entry(task).or_default().push(update);
        }
        let left_out: Vec<_> = view.dropped().collect();
        assert_eq!(groups.len(), self.tasks, "{groups:?}\n{left_out:?}\n{}", self.said());
        for (task, updates) in &groups {
            assert_eq!(updates, &[updates[0]; 4], "{task} was torn\n{}", self.said());
        }
        let (code, said, error) = diagnose(&self.place());
        assert_eq!(code, Some(0), "{said}{error}");
        let rows = lines(&self.place().join("metrics.jsonl"));
        assert_eq!(rows.len(), self.tasks.div_ceil(2));
    }
}

#[test]
fn rollouters_and_a_trainer_meet_in_a_folder_and_end_together() {
    let run = Run::new(9);
    let mut two = [run.rollouter("one"), run.rollouter("two")];
    let status = run.trainer().ends();
    assert!(status.success(), "{status}\n{}", run.said());
    for rollouter in &mut two {
        let status = rollouter.ends();
        assert!(status.success(), "{status}\n{}", run.said());
    }
    run.check();
    // Both had their share, and weights of more than one version were sampled by.
    let rollouts = lego::shard::ShardReader::open(&[run.place().join("rollouts")]).unwrap();
    let versions: std::collections::BTreeSet<String> = rollouts
        .rows_local()
        .unwrap()
        .iter()
        .flat_map(|row| row.weight_versions.iter().map(|span| span.version.to_string()))
        .collect();
    assert!(versions.len() > 1, "{versions:?}\n{}", run.said());
    // The place is that run's alone.
    let place = run.place();
    let arguments = [
        "train",
        "--steps",
        "1",
        "--publish",
        place.to_str().unwrap(),
        "--set",
        "run.name=other",
    ];
    let status = run.start(&arguments, "trainer.log").ends();
    assert_eq!(status.code(), Some(2), "{}", run.said());
    assert!(run.said().contains("is where another run published"), "{}", run.said());
    // Another run's tasks are not this one's.
    let other = Run::new(8);
    std::fs::create_dir_all(other.place()).unwrap();
    let mut published: serde_json::Value =
        serde_json::from_slice(&std::fs::read(run.place().join("published.json")).unwrap()).unwrap();
    published["finished"] = false.into();
    std::fs::write(other.place().join("published.json"), published.to_string()).unwrap();
    let status = other.rollouter("one").ends();
    assert_eq!(status.code(), Some(2), "{}", other.said());
    assert!(
        other
            .said()
            .contains("`data.train` is 8 tasks here, and 9 tasks for the trainer"),
        "{}",
        other.said()
    );
}

#[test]
fn whoever_is_killed_and_started_again_every_task_trains_once() {
    let kills: u32 = std::env::var("LEGO_TEST_KILLS").map_or(2, |text| text.parse().unwrap());
    let run = Run::new(13);
    let mut random = Random::new();
    let mut trainer = run.trainer();
    let mut rollouters = [run.rollouter("one"), run.rollouter("two")];
    for at in 0..2 * kills {
        std::thread::sleep(Duration::from_secs(6).mul_f64(random.share()));
        let name = ["one", "two"][(at as usize / 2) % 2];
        if at % 2 == 0 {
            drop(trainer);
            trainer = run.trainer();
        } else {
            let killed = &mut rollouters[(at as usize / 2) % 2];
            killed.kill();
            *killed = run.rollouter(name);
        }
    }
    let status = trainer.ends();
    assert!(status.success(), "{status} {random:?}\n{}", run.said());
    for rollouter in &mut rollouters {
        assert!(rollouter.ends().success(), "{random:?}\n{}", run.said());
    }
    run.check();
}
