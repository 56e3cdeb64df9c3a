//! `lego prepare`.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::workspace::Workspace;

/// Two records that make tasks, and two that do not.
const RECORDS: &str = concat!(
    r#"{"instance_id":"one","problem_statement":"Fix it.","files":{"run.sh":"exit 1"},"test":"sh run.sh","test_files":{}}"#,
    "\n",
    r#"{"instance_id":"two","problem_statement":"Fix it too.","files":{"run.sh":"exit 1"},"test":"sh run.sh","test_files":{}}"#,
    "\n",
    r#"{"instance_id":"two","problem_statement":"Again.","files":{"run.sh":"exit 1"},"test":"sh run.sh","test_files":{}}"#,
    "\n{not json\n"
);

#[test]
fn records_become_tasks_and_an_index() {
    let work = Workspace::new().file("issues.jsonl", RECORDS);
    insta::assert_snapshot!(work.lego(&["prepare", "issues.jsonl"]));
    assert!(work.path().join("tasks/one/tests/test.sh").is_file());
    assert!(work.path().join("tasks/index.parquet").is_file());
    insta::assert_snapshot!(std::fs::read_to_string(work.path().join("tasks/rejected.jsonl")).unwrap());
    // Again: nothing is converted twice; rejected records are a "no" where that is asked.
    insta::assert_snapshot!(work.lego(&["prepare", "issues.jsonl", "--strict", "--format", "table"]));
}

#[test]
fn folders_are_indexed() {
    let work = Workspace::new().file("issues.jsonl", RECORDS);
    work.lego(&["prepare", "issues.jsonl"]);
    insta::assert_snapshot!(work.lego(&["prepare", "index", "tasks", "-o", "tasks.parquet"]));
    insta::assert_snapshot!(work.lego(&["prepare", "tasks"]));
}

#[test]
fn records_of_repositories_become_tasks_and_bad_ones_are_told() {
    let patch = |path: &str| format!("--- a/{path}\\n+++ b/{path}\\n@@ -1 +1 @@\\n-a\\n+b\\n");
    let swe = format!(
        r#"{{"instance_id":"a__b-1","repo":"a/b","base_commit":"c0ffee00","problem_statement":"x","patch":"{}","test_patch":"{}","FAIL_TO_PASS":"[\"t::a\"]","PASS_TO_PASS":"[]","version":"1"}}"#,
        patch("a.py"),
        patch("test_a.py")
    );
    let bad = swe.replace("a__b-1", "a__b-2").replace("c0ffee00", "main");
    let work = Workspace::new().file("issues.jsonl", &format!("{swe}\n{bad}\n"));
    insta::assert_snapshot!(work.lego(&["prepare", "issues.jsonl", "--format", "table"]));
    insta::assert_snapshot!(std::fs::read_to_string(work.path().join("tasks/rejected.jsonl")).unwrap());
    insta::assert_snapshot!(work.lego(&["prepare", "issues.jsonl", "--family", "swe"]));
    insta::assert_snapshot!(work.lego(&["prepare", "index", "tasks", "--where", "pass_rat > 0"]));
    insta::assert_snapshot!(work.lego(&["prepare", "index", "tasks", "--where", "pass_rate > 0"]));
    insta::assert_snapshot!(work.lego(&["prepare", "--stage", "validate", "-o", "nowhere"]));
}

#[test]
fn no_records_and_no_file() {
    insta::assert_snapshot!(
        Workspace::new()
            .file("issues.jsonl", "\n")
            .lego(&["prepare", "issues.jsonl"])
    );
    insta::assert_snapshot!(Workspace::new().lego(&["prepare", "nowhere.jsonl"]));
}

#[test]
fn an_interrupted_conversion_says_what_is_done_and_goes_on() {
    let work = Workspace::new().file("issues.jsonl", RECORDS);
    let mut command = work.command(&["prepare", "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut running = command.spawn().unwrap();
    let mut input = running.stdin.take().unwrap();
    let hidden = work.path().join(format!("tasks/.prepare-{}.tmp", running.id()));
    let deadline = Instant::now() + Duration::from_mins(1);
    while !hidden.exists() {
        assert!(Instant::now() < deadline, "it does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = running.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    let mut told = BufReader::new(running.stderr.take().unwrap()).lines();
    let stopping = told.next().unwrap().unwrap();
    assert!(stopping.starts_with("stopping: waits for the folders"), "{stopping}");
    // The end comes with the record at hand.
    writeln!(input, "{}", RECORDS.lines().next().unwrap()).unwrap();
    let said: Vec<String> = told.map(Result::unwrap).collect();
    drop(input);
    assert_eq!(running.wait().unwrap().code(), Some(130), "{said:?}");
    assert!(
        said.iter()
            .any(|line| line.starts_with("stopped after 1 records of -: 1 task folders written to tasks,")),
        "{said:?}"
    );
    assert!(work.path().join("tasks/one/tests/test.sh").is_file());
    assert!(!work.path().join("tasks/two").exists() && !work.path().join("tasks/index.parquet").exists());
    let again = work.lego(&["prepare", "issues.jsonl", "--format", "table"]);
    assert!(again.contains("there already 1"), "{again}");
}

#[test]
fn images_are_asked_for_where_there_are_any() {
    let work = Workspace::new().file("issues.jsonl", RECORDS);
    work.lego(&["prepare", "issues.jsonl"]);
    let no_engine = ["--set", "sandbox.docker.host=unix:///nowhere/docker.sock"];
    insta::assert_snapshot!(work.lego(&["prepare", "--push", "reg:5000/team", "issues.jsonl"]));
    insta::assert_snapshot!(work.lego(&["prepare", "--stage", "build"]));
    let build = ["prepare", "--stage", "build", "--backend", "docker"];
    insta::assert_snapshot!(work.lego(&[&build[..], &no_engine, &["--push", "https://reg/team"]].concat()));
    insta::assert_snapshot!(work.lego(&[&build[..], &no_engine].concat()));
}
