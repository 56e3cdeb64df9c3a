//! `lego prepare`.

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
