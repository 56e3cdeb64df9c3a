//! `lego diagnose shards`: every sampled token has its place, and what does not add up is named.

use std::path::Path;
use std::process::{Command, Output};

use super::trials::Rollout;

pub(super) fn diagnose(place: &Path) -> (Option<i32>, String, String) {
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

    // What its rows were is not what they would be now.
    let other = rollout.command(&["run.seed=7"]).output().unwrap();
    let said = String::from_utf8_lossy(&other.stderr).into_owned();
    assert_eq!(other.status.code(), Some(2), "{said}");
    assert!(said.contains("`run.seed`"), "{said}");
    let again = String::from_utf8_lossy(&rollout.run(&[]).stderr).into_owned();
    assert!(again.contains("1 of the 1 trials were there already"), "{again}");

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
fn a_validation_is_accounted_for_and_never_trains() {
    let rollout = Rollout::new("plain", "echo 0\n", "echo 'echo 1' > report");
    let output = rollout
        .command(&["eval.samples=1", "eval.greedy=false"])
        .arg("--eval")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (code, accounts, said) = diagnose(&rollout.out());
    assert_eq!(code, Some(0), "{said}");
    assert!(
        accounts.contains("\"trained\"") && said.contains("1 sessions"),
        "{said}"
    );
    let mut train = Command::new(env!("CARGO_BIN_EXE_lego"));
    let runs = format!("run.dir={}", rollout.out().with_file_name("runs").display());
    train
        .arg("train")
        .arg(rollout.config())
        .arg("--shards")
        .arg(rollout.out());
    train.args(["--set", "train.algorithm=sft", "--set", &runs]);
    let output = train.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("episodes of a validation") && said.contains("plain@eval-0#0"),
        "{said}"
    );
}

#[test]
fn rows_that_are_gone_are_missed() {
    let rollout = Rollout::new("plain", "echo 0\n", "true");
    rollout.run(&[]);
    for entry in walk(&rollout.out().join("rollouts")) {
        std::fs::remove_file(entry).unwrap();
    }
    let (code, _, said) = diagnose(&rollout.out());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no row of it is in the shards"), "{said}");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(diagnose(empty.path()).0, Some(4));
}

/// Files below a folder.
fn walk(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, mut files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    files.extend(folders.iter().flat_map(|folder| walk(folder)));
    files
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

/// Changes the rows of a rollout, each episode in a shard of its own.
fn rewrite(out: &Path, change: impl Fn(&mut lego::trajectory::Segment)) {
    use lego::shard::{ShardReader, ShardWriter, WriterOptions};
    let shards = out.join("rollouts");
    let reader = ShardReader::open(&[&shards]).unwrap();
    let mut meta = None;
    for file in reader.files() {
        meta = Some(reader.read_local(Path::new(&file.to_string())).unwrap().0);
    }
    let mut episodes = super::serving::episodes(&shards);
    for file in walk(&shards) {
        std::fs::remove_file(file).unwrap();
    }
    let mut writer = ShardWriter::new(&shards, "w0", meta.unwrap(), WriterOptions::default()).unwrap();
    for episode in &mut episodes {
        episode.segments.iter_mut().for_each(&change);
        writer.push_durable(episode).unwrap();
    }
}

#[test]
fn a_row_that_is_not_what_was_sampled_is_named_with_its_place_and_hides_nothing() {
    let rollout = Rollout::new("plain", "echo 0\n", "echo 'echo 1' > report");
    rollout.run(&[]);
    let out = rollout.out();
    let ends = |what: &str| {
        let (code, _, said) = diagnose(&out);
        assert_eq!(code, Some(1), "{said}");
        assert!(
            said.contains("calls.jsonl: segment 0: ") && said.contains(what),
            "{said}"
        );
        said
    };
    rewrite(&out, |_| {});
    assert_eq!(diagnose(&out).0, Some(0));
    rewrite(&out, |segment| segment.response_ids[0] ^= 1);
    ends("response id at 0 is ");
    // The same tokens again, but with log-probs that were never sampled.
    rewrite(&out, |segment| {
        segment.response_ids[0] ^= 1;
        let mask = segment.response_mask.iter();
        segment.response_logprobs = Some(mask.map(|&mask| -f32::from(mask)).collect());
    });
    let invented = "log-probs are in the shards, and not in the log";
    ends(invented);
    // Beside them, what cannot be read at all.
    std::fs::write(out.join("rollouts/other.parquet"), "not a shard").unwrap();
    let said = ends(invented);
    assert!(said.contains("other.parquet"), "{said}");
}
