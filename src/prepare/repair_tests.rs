//! Records of repositories to folders; every kind of bad one with its reason; the graders in shells on real logs.

use std::collections::BTreeSet;
use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use fs_err as fs;
use serde_json::{Value, json};

use super::*;
use crate::task::{Task, folder_checksum};

const PATCH: &str = "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n";
const TEST_PATCH: &str = "diff --git a/tests/test_a.py b/tests/test_a.py\n--- a/tests/test_a.py\n+++ b/tests/test_a.py\n@@ -1 +1,2 @@\n a\n+b\n\
diff --git a/tests/test_new.py b/tests/test_new.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_new.py\n@@ -0,0 +1 @@\n+c\n";
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn record() -> Value {
    json!({
        "instance_id": "o__n-1", "repo": "o/n", "base_commit": COMMIT, "problem_statement": "It says 1.",
        "hints_text": "Look at x.", "patch": PATCH, "test_patch": TEST_PATCH,
        "FAIL_TO_PASS": "[\"tests/test_a.py::test_sum\"]", "PASS_TO_PASS": ["tests/test_a.py::test_old"], "version": "1.2"
    })
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut record = record();
    for (key, value) in changes {
        record[*key] = value.clone();
    }
    record
}

fn run_with(text: impl Into<Vec<u8>>, out: &Path, options: &ConvertOptions) -> PrepareReport {
    let source = Source::Stream("r.jsonl".into(), Box::new(Cursor::new(text.into())));
    convert(source, out, options, &mut |_| ControlFlow::Continue(())).unwrap()
}

fn run(records: &[Value], out: &Path) -> PrepareReport {
    let text: String = records
        .iter()
        .flat_map(|record| [record.to_string(), "\n".to_owned()])
        .collect();
    run_with(text, out, &ConvertOptions::default())
}

#[test]
fn a_record_of_a_repository_becomes_a_folder_that_grades_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let report = run(&[record()], dir.path());
    assert_eq!(
        (report.converted, report.rejected),
        (1, 0),
        "{:?}",
        report.first_rejected
    );
    let folder = dir.path().join("o__n-1");
    let task = Task::load(&folder).unwrap();
    assert_eq!(task.warnings, []);
    assert_eq!(task.workdir().as_deref(), Some("/testbed"));
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    assert!(read("instruction.md").contains("It says 1."));
    assert!(!read("instruction.md").contains("Look at x."));
    let dockerfile = read("environment/Dockerfile");
    assert!(dockerfile.starts_with("FROM python:3.11\n"), "{dockerfile}");
    assert!(
        dockerfile.contains(&format!("git fetch -q --depth 1 https://github.com/o/n.git {COMMIT}")),
        "{dockerfile}"
    );
    assert_eq!(
        read("tests/run.sh"),
        "python3 -m pytest -rA tests/test_a.py tests/test_new.py\n"
    );
    assert_eq!(read("tests/files_before.txt"), "tests/test_a.py\n");
    assert_eq!(read("tests/files_new.txt"), "tests/test_new.py\n");
    assert_eq!(read("tests/fail_to_pass.txt"), "tests/test_a.py::test_sum\n");
    assert_eq!(read("solution/solution.patch"), PATCH);
    let config: Value = serde_json::from_str(&read("tests/config.json")).unwrap();
    assert_eq!(config["log_format"], "pytest");
    // Whatever else is in it, nothing of the solution is where an agent could read it.
    for entry in fs::read_dir(folder.join("environment")).unwrap() {
        assert!(!fs::read_to_string(entry.unwrap().path()).unwrap().contains("x = 2"));
    }
    let again = tempfile::tempdir().unwrap();
    run(&[record()], again.path());
    assert_eq!(
        folder_checksum(&folder).unwrap(),
        folder_checksum(&again.path().join("o__n-1")).unwrap()
    );
}

#[test]
fn families_are_told_apart_by_their_fields() {
    let smith = json!({"instance_id": "smith-1", "repo": "swesmith/a__b.1", "patch": PATCH, "image_name": "swebench/smith:1",
        "FAIL_TO_PASS": ["tests/test_a.py::t"], "PASS_TO_PASS": [], "problem_statement": "Broken."});
    let rebench = json!({"instance_id": "rebench-1", "repo": "a/b", "base_commit": COMMIT, "patch": PATCH, "test_patch": TEST_PATCH,
        "problem_statement": "Broken.", "FAIL_TO_PASS": ["t::x"], "PASS_TO_PASS": [], "docker_image": "swerebench/x:1",
        "install_config": {"python": "3.9", "install": "pip install -e .", "pip_packages": ["pytest"], "test_cmd": "pytest -rA", "log_parser": "parse_log_pytest"}});
    let live = json!({"instance_id": "live__x-1", "repo": "a/b", "base_commit": COMMIT, "patch": PATCH, "test_patch": TEST_PATCH,
        "problem_statement": "Broken.", "FAIL_TO_PASS": ["t::x"], "PASS_TO_PASS": [], "test_cmds": ["pytest -rA"], "log_parser": "pytest"});
    let multi = json!({"org": "a", "repo": "b", "number": 5, "fix_patch": PATCH, "test_patch": TEST_PATCH, "base": {"sha": COMMIT},
        "resolved_issues": [{"number": 4, "title": "Broken", "body": "Really."}], "f2p_tests": {"x": {"fix": "PASS"}}, "p2p_tests": {"y": {}}});
    let pro = json!({"instance_id": "pro-1", "repo": "a/b", "base_commit": COMMIT, "patch": PATCH, "test_patch": TEST_PATCH,
        "problem_statement": "Broken.", "requirements": "Be quick.", "fail_to_pass": "['t::x']", "pass_to_pass": "[]", "dockerhub_tag": "a.b-1", "repo_language": "python"});
    let r2e = json!({"repo_name": "pillow", "docker_image": "r2e/pillow:1", "commit_hash": COMMIT, "problem_statement": "Broken.",
        "expected_output_json": "{\"TestA.test_x\": \"PASSED\", \"TestA.test_y\": \"FAILED\"}",
        "execution_result_content": "{\"test_file_names\": [\"test_1.py\"], \"test_file_codes\": [\"def test_x(): pass\"]}",
        "parsed_commit_content": "{\"file_diffs\": [{\"header\": {\"file\": {\"path\": \"src/a.py\"}}, \"new_file_content\": \"x = 2\"}]}"});
    let mut inner = record();
    inner["instance_id"] = "nemo-1".into();
    let nemotron = json!({"responses_create_params": {"input": [], "metadata": {"instance_dict": inner.to_string()}}});
    let dir = tempfile::tempdir().unwrap();
    let report = run(&[smith, rebench, live, multi, pro, r2e, nemotron, record()], dir.path());
    assert_eq!(
        (report.converted, report.rejected),
        (8, 0),
        "{:?}",
        report.first_rejected
    );
    let read = |file: &str| fs::read_to_string(dir.path().join(file)).unwrap();
    assert!(read("smith-1/environment/Dockerfile").contains("git apply /tmp/bug.patch"));
    assert!(read("smith-1/solution/solve.sh").contains("git apply -R --3way"));
    assert!(read("rebench-1/environment/install.sh").ends_with("pip install -e .\npython3 -m pip install pytest\n"));
    assert!(read("rebench-1/environment/Dockerfile").starts_with("FROM swerebench/x:1\n"));
    assert!(read("live__x-1/environment/Dockerfile").starts_with("FROM starryzhang/sweb.eval.x86_64.live_1776_x-1\n"));
    assert!(read("a__b-5/environment/Dockerfile").starts_with("FROM mswebench/a_m_b:pr-5\nWORKDIR /home/b\n"));
    assert!(read("pro-1/instruction.md").contains("Broken.\n\nBe quick."));
    assert_eq!(read("pillow-0123456789ab/tests/fail_to_pass.txt"), "TestA.test_x\n");
    assert!(
        dir.path()
            .join("pillow-0123456789ab/tests/files/r2e_tests/test_1.py")
            .is_file()
    );
    assert!(dir.path().join("nemo-1/task.toml").is_file());
    // Forced, every record is of the family that is named.
    let options = ConvertOptions {
        family: Family::by_name("multi-swe-bench"),
        overwrite: true,
        ..ConvertOptions::default()
    };
    let forced = run_with(format!("{}\n", record()), dir.path(), &options);
    assert_eq!(forced.first_rejected.unwrap().reason, "missing_field");
}

/// Every kind of bad record that is told apart, with a record that is one.
fn bad() -> Vec<(&'static str, Vec<u8>)> {
    let line = |value: Value| value.to_string().into_bytes();
    let changed = |changes: &[(&str, Value)]| line(with(changes));
    let github = |pull: bool, changes: &[(&str, Value)]| {
        let mut value = json!({"number": 1, "title": "Broken", "body": "It is.", "repo": "o/g"});
        if pull {
            value["base"] = json!({"sha": COMMIT});
            value["head"] = json!({"sha": COMMIT});
            value["number"] = json!(2);
        }
        for (key, change) in changes {
            value[*key] = change.clone();
        }
        line(value)
    };
    let told = format!(
        "Try this:\n{}",
        "+    answer = compute(a)\n+    answer = answer + 1\n+    return answer * 2\n"
    );
    let long = "diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1 +1,3 @@\n-x\n+    answer = compute(a)\n+    answer = answer + 1\n+    return answer * 2\n";
    vec![
        ("invalid_json", b"{oops".to_vec()),
        ("not_utf8", b"{\"a\": \"\xff\"}".to_vec()),
        ("not_an_object", b"[1]".to_vec().into_iter().chain(*b" ").collect()),
        ("unknown_family", b"{\"a\": 1}".to_vec()),
        ("missing_field", changed(&[("patch", Value::Null)])),
        ("wrong_type", changed(&[("problem_statement", json!(["x"]))])),
        ("bad_list", changed(&[("FAIL_TO_PASS", json!("a, b"))])),
        ("no_failing_test", changed(&[("FAIL_TO_PASS", json!([]))])),
        ("bad_test_name", changed(&[("FAIL_TO_PASS", json!(["a\nb"]))])),
        (
            "contradictory_lists",
            changed(&[("PASS_TO_PASS", json!(["tests/test_a.py::test_sum"]))]),
        ),
        ("unsafe_id", changed(&[("instance_id", json!("../x"))])),
        ("bad_repo", changed(&[("repo", json!("o/n; rm -rf /"))])),
        ("bad_commit", changed(&[("base_commit", json!("main"))])),
        ("bad_image", changed(&[("image_name", json!("x\nRUN evil"))])),
        (
            "bad_workdir",
            changed(&[("image_name", json!("x")), ("workdir", json!("a b"))]),
        ),
        (
            "bad_version",
            changed(&[("install_config", json!({"python": "3.9 AS x"}))]),
        ),
        ("nul_in_text", changed(&[("problem_statement", json!("a\u{0}b"))])),
        ("bad_patch", changed(&[("patch", json!("nothing"))])),
        (
            "bad_test_patch",
            changed(&[("test_patch", json!("--- a/x\n+++ b/x\n@@ -1,9 +1 @@\n x\n"))]),
        ),
        (
            "unsafe_path",
            changed(&[("patch", json!("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"))]),
        ),
        ("overlapping_patches", changed(&[("test_patch", json!(PATCH))])),
        ("no_test_patch", changed(&[("test_patch", json!(""))])),
        (
            "tests_only",
            changed(&[("patch", json!(TEST_PATCH)), ("test_patch", json!(""))]),
        ),
        ("unknown_language", changed(&[("language", json!("cobol"))])),
        (
            "unknown_parser",
            changed(&[("log_parser", json!("parse_log_tea_leaves"))]),
        ),
        (
            "leak_patch",
            changed(&[("problem_statement", json!(told)), ("patch", json!(long))]),
        ),
        (
            "leak_tests",
            changed(&[
                ("FAIL_TO_PASS", json!(["t::test_the_sum"])),
                ("problem_statement", json!("test_the_sum fails")),
            ]),
        ),
        ("not_merged", github(true, &[("merged_at", Value::Null)])),
        ("no_base", github(false, &[("pull_request", json!({"url": "x"}))])),
        ("no_pull_request", github(false, &[])),
        ("no_issue", github(true, &[("body", json!("Closes #99"))])),
    ]
}

#[test]
fn bad_records_are_listed_with_line_and_reason_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (mut text, mut wanted) = (Vec::new(), Vec::new());
    for (at, (reason, line)) in bad().into_iter().enumerate() {
        text.extend(line);
        text.push(b'\n');
        wanted.push((at + 1, reason.to_owned()));
    }
    // A good one, and the same again.
    for _ in 0..2 {
        text.extend(format!("{}\n", record()).into_bytes());
    }
    wanted.push((wanted.len() + 2, "duplicate_id".to_owned()));
    let report = run_with(text, dir.path(), &ConvertOptions::default());
    let rejected = fs::read_to_string(dir.path().join("rejected.jsonl")).unwrap();
    let mut found: Vec<(usize, String)> = Vec::new();
    for line in rejected.lines() {
        let row: RejectedRow = serde_json::from_str(line).unwrap();
        assert!(!row.detail.is_empty());
        found.push((row.line, row.reason));
    }
    found.sort();
    assert_eq!(found, wanted);
    assert_eq!((report.converted, report.rejected), (1, wanted.len()));
    let kinds: BTreeSet<&String> = wanted.iter().map(|(_, reason)| reason).collect();
    assert!(kinds.len() >= 20, "{}", kinds.len());
}

#[test]
fn records_of_parquet_are_those_of_json() {
    use arrow_array::{ArrayRef, ListArray, RecordBatch, StringArray};
    use std::sync::Arc;
    let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
    let lists = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(vec![Some(vec![Some(1)])]);
    let record = record();
    let field = |name: &str| text(record[name].as_str().unwrap());
    let batch = RecordBatch::try_from_iter([
        ("instance_id", field("instance_id")),
        ("repo", field("repo")),
        ("base_commit", field("base_commit")),
        ("problem_statement", field("problem_statement")),
        ("hints_text", field("hints_text")),
        ("patch", field("patch")),
        ("test_patch", field("test_patch")),
        ("FAIL_TO_PASS", field("FAIL_TO_PASS")),
        ("PASS_TO_PASS", text("[\"tests/test_a.py::test_old\"]")),
        ("version", field("version")),
        ("numbers", Arc::new(lists) as ArrayRef),
    ])
    .unwrap();
    let mut bytes = Vec::new();
    let mut writer = ::parquet::arrow::ArrowWriter::try_new(&mut bytes, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (of_parquet, of_json) = (dir.path().join("parquet"), dir.path().join("json"));
    let report = run_with(bytes, &of_parquet, &ConvertOptions::default());
    assert_eq!((report.converted, report.ignored_fields.get("numbers")), (1, Some(&1)));
    run(&[record], &of_json);
    assert_eq!(
        folder_checksum(&of_parquet.join("o__n-1")).unwrap(),
        folder_checksum(&of_json.join("o__n-1")).unwrap()
    );
    let broken = Source::Stream("b".into(), Box::new(Cursor::new(b"PAR1 and nothing more".to_vec())));
    assert!(
        convert(broken, dir.path(), &ConvertOptions::default(), &mut |_| {
            ControlFlow::Continue(())
        })
        .is_err()
    );
}
