//! Input that cannot be used: each a clear error with its exit code.

use std::path::{Path, PathBuf};

use super::{lego, quickstart, succeeded};

/// What `lego train --shards PLACE` says, and its exit code.
fn trained_on(place: &Path, runs: &Path) -> (Option<i32>, String) {
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--shards", place.to_str().unwrap()];
    let output = lego(&arguments, runs, &[]);
    let text = String::from_utf8(output.stderr).unwrap();
    let error = text.find("error:").map_or("", |at| &text[at..]);
    (
        output.status.code(),
        error.replace(&runs.display().to_string(), "[RUNS]"),
    )
}

#[test]
fn shards_that_cannot_be_read() {
    let runs = tempfile::tempdir().unwrap();
    let shards = runs.path().join("shards");
    let toml = quickstart();
    let ids = runs.path().join("ids.txt");
    std::fs::write(&ids, "train-00000\n").unwrap();
    let (ids, out) = (ids.to_str().unwrap(), shards.to_str().unwrap());
    let arguments = [
        "rollout",
        toml.to_str().unwrap(),
        "-o",
        out,
        "--tasks",
        ids,
        "--print",
        "paths",
    ];
    let output = lego(&arguments, runs.path(), &[]);
    succeeded(&output);
    let shard = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    let whole = std::fs::read(&shard).unwrap();
    let cut = shard.with_file_name("cut.parquet");
    let place = cut
        .display()
        .to_string()
        .replace(&runs.path().display().to_string(), "[RUNS]");
    std::fs::remove_file(&shard).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&cut, &whole[..length]).unwrap();
        let (code, said) = trained_on(&shards, runs.path());
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.starts_with(&format!("error: {place}: not a readable rollout shard: ")),
            "{said}"
        );
        assert!(said.contains("hint: move the file away"), "{said}");
    }

    let (code, said) = trained_on(&runs.path().join("nowhere"), runs.path());
    assert_eq!(code, Some(2));
    assert_eq!(
        said.lines().next().unwrap(),
        "error: [RUNS]/nowhere: no such file or folder; expected a shard (*.parquet) or a folder of them"
    );
    std::fs::remove_file(&cut).unwrap();
    let (code, said) = trained_on(&shards, runs.path());
    assert_eq!(
        (code, said.lines().next().unwrap()),
        (Some(4), "error: nothing selected: no episode in [RUNS]/shards")
    );
}

#[test]
fn a_run_directory_that_cannot_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = lego(
        &["train", quickstart().to_str().unwrap(), "--steps", "1"],
        &file.join("runs"),
        &[],
    );
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        matches!(output.status.code(), Some(1 | 3)),
        "{:?} {said}",
        output.status
    );
    assert!(said.contains(&format!("{}", file.display())), "{said}");
}

#[test]
fn records_that_cannot_become_tasks() {
    let runs = tempfile::tempdir().unwrap();
    let records = runs.path().join("bad.jsonl");
    std::fs::write(&records, "{\"instance_id\": \"a\",\n").unwrap();
    let toml = quickstart();
    let set = format!("data.train={}", records.display());
    let output = lego(&["train", toml.to_str().unwrap()], runs.path(), &[&set]);
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8(output.stderr).unwrap();
    let place = format!("warning: {}:1: invalid JSON at line 1", records.display());
    assert!(said.contains(&place), "{said}");
    assert!(
        said.contains("error: nothing selected: data.train holds no task"),
        "{said}"
    );
}

/// A record whose test writes `reward`.
fn graded_by(id: &str, reward: &str) -> String {
    serde_json::json!({
        "instance_id": id,
        "problem_statement": "GOPI.sh must split fields at :",
        "files": {"GOPI.sh": "echo $1\n", "check.sh": "echo pass\n"},
        "test": format!("#!/bin/sh\necho {reward} >${{LEGO_LOGS_DIR:-/logs}}/verifier/reward.txt\n"),
        "solution": "#!/bin/sh\n",
    })
    .to_string()
        + "\n"
}

/// Records of two tasks, whose tests write these rewards.
fn graded(rewards: [&str; 2], runs: &Path) -> PathBuf {
    let records = runs.join("graded.jsonl");
    let text: Vec<String> = ["one", "two"]
        .iter()
        .zip(rewards)
        .map(|(id, reward)| graded_by(id, reward))
        .collect();
    std::fs::write(&records, text.concat()).unwrap();
    records
}

#[test]
fn a_step_whose_every_trial_fails_stops_the_run_until_it_is_mended() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "3"];
    let set = format!("data.train={}", graded(["nan", "nan"], runs.path()).display());
    let output = lego(&arguments, runs.path(), &[&set]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains(
            "not one of the 8 trials of step 1 could be graded: 8 of them ended with verifier_error, most often: "
        ),
        "{said}"
    );
    assert!(said.contains("hint: mend the tasks' tests"), "{said}");
    let run = runs.path().join("quickstart");
    assert!(super::lines(&run.join("metrics.jsonl")).is_empty());

    // The same command, once the cause is mended: the failed trials do not count, and their ids stay theirs.
    graded(["1", "0"], runs.path());
    let output = lego(&arguments, runs.path(), &[&set]);
    succeeded(&output);
    assert_eq!(super::consumed(&run).len(), 24);
    let lines = super::lines(&run.join("metrics.jsonl"));
    assert_eq!(
        lines[0]["rollout/retries"], 8.0,
        "that they were tried twice is counted"
    );
    // What reads the shards meets each episode once.
    let shards = run.to_str().unwrap();
    let arguments = ["train", toml.to_str().unwrap(), "--shards", shards];
    succeeded(&lego(&arguments, runs.path(), &["run.name=offline", &set]));
    assert_eq!(super::consumed(&runs.path().join("offline")).len(), 24);
}

#[test]
fn a_reward_that_is_no_number_is_dropped_and_said() {
    let runs = tempfile::tempdir().unwrap();
    let set = format!("data.train={}", graded(["nan", "1"], runs.path()).display());
    let output = lego(
        &["train", quickstart().to_str().unwrap(), "--steps", "1"],
        runs.path(),
        &[&set],
    );
    succeeded(&output);
    let said = String::from_utf8(output.stderr).unwrap();
    let line = said
        .lines()
        .find(|line| line.contains("verifier_error"))
        .unwrap_or(&said);
    assert!(line.starts_with("warning: one__0"), "{line}");
    assert!(line.contains("reward.txt") && line.contains("nan"), "{line}");
    assert_eq!(
        said.matches("verifier_error: ").count(),
        1,
        "one of a kind is enough\n{said}"
    );
}

#[test]
fn weights_that_are_no_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (quickstart().with_file_name("policy"), folder.path().join("policy"));
    std::fs::create_dir(&bad).unwrap();
    for file in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        std::fs::copy(good.join(file), bad.join(file)).unwrap();
    }
    let model = bad.join("model.safetensors");
    let mut bytes = std::fs::read(&model).unwrap();
    let end = bytes.len();
    bytes[end - 400..].fill(0xff);
    std::fs::write(&model, &bytes).unwrap();
    let set = format!("policy.model={}", bad.display());
    let arguments = ["train", quickstart().to_str().unwrap(), "--steps", "1"].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = lego(&arguments, folder.path(), &[&set]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("holds NaN at element"), "{said}");

    let config = std::fs::read_to_string(bad.join("config.json")).unwrap();
    let layers = config.replace("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 999999999");
    assert_ne!(layers, config);
    std::fs::write(bad.join("config.json"), layers).unwrap();
    let output = lego(&arguments, folder.path(), &[&set]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!(
            "policy.model: {}: config.json: `num_hidden_layers` = 999999999 is more than 4096",
            bad.display()
        )),
        "{said}"
    );
}
