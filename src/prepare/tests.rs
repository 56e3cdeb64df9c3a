//! Records to folders, and folders to an index.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use fs_err as fs;
use serde_json::{Value, json};

use super::*;
use crate::task::{Task, TaskIndex, folder_checksum};

pub(super) fn record(id: &str) -> Value {
    json!({
        "instance_id": id,
        "problem_statement": "The program adds wrongly.",
        "files": { "add.sh": "#!/bin/sh\necho $(($1 - $2))\n", "doc/README": "adds" },
        "test": "#!/bin/sh\nsh /tests/check.sh && r=1 || r=0\necho $r > /logs/verifier/reward.txt\n",
        "test_files": { "check.sh": "[ \"$(sh add.sh 2 3)\" = 5 ]\n" },
        "solution": "sed -i 's/-/+/' add.sh\n",
        "task": { "agent": { "timeout_sec": 30 }, "verifier": { "timeout_sec": 10.5, "env": { "A": "b" } } },
        "data_source": "quickstart",
        "split": "train"
    })
}

pub(super) fn lines(records: &[Value]) -> Vec<u8> {
    records
        .iter()
        .flat_map(|record| format!("{record}\n").into_bytes())
        .collect()
}

fn run_with(input: impl Into<Vec<u8>>, out: &Path, overwrite: bool) -> Result<PrepareReport, PrepareError> {
    let source = Source::Stream("issues.jsonl".into(), Box::new(Cursor::new(input.into())));
    convert(
        source,
        out,
        &ConvertOptions {
            overwrite,
            ..ConvertOptions::default()
        },
        &mut |_| ControlFlow::Continue(()),
    )
}

pub(super) fn run(input: impl Into<Vec<u8>>, out: &Path) -> Result<PrepareReport, PrepareError> {
    run_with(input, out, false)
}

#[test]
fn what_a_killed_preparation_left_goes_and_two_at_once_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Of a process that is gone, and of one whose number another has by now.
    for pid in [0, std::process::id()] {
        fs::create_dir_all(dir.path().join(format!(".prepare-{pid}.tmp/half"))).unwrap();
    }
    run(lines(&[record("fix-1")]), dir.path()).unwrap();
    let left = fs::read_dir(dir.path()).unwrap().flatten();
    let left: Vec<_> = left
        .filter(|entry| entry.file_name().to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let held = std::fs::File::open(dir.path()).unwrap();
    held.lock().unwrap();
    let refused = run(lines(&[record("fix-2")]), dir.path()).unwrap_err();
    assert!(
        refused.to_string().contains("another `lego prepare` is writing it"),
        "{refused}"
    );
    assert!(!dir.path().join("fix-2").exists());
}

#[test]
fn a_record_becomes_a_harbor_task() {
    let dir = tempfile::tempdir().unwrap();
    let report = run(lines(&[record("fix-1")]), dir.path()).unwrap();
    assert_eq!((report.records, report.converted, report.rejected), (1, 1, 0));
    let folder = dir.path().join("fix-1");
    let task = Task::load(&folder).unwrap();
    assert_eq!(task.warnings, []);
    assert_eq!(task.instruction(), "The program adds wrongly.\n");
    assert_eq!(task.agent_timeout().unwrap().as_secs(), 30);
    assert_eq!(task.workdir().as_deref(), Some("/app"));
    let read = |file: &str| fs::read_to_string(folder.join(file)).unwrap();
    assert_eq!(
        read("environment/Dockerfile"),
        "FROM debian:trixie-slim\nCOPY files/ /app/\nWORKDIR /app\n"
    );
    assert_eq!(
        read("task.toml"),
        "schema_version = \"1.4\"\n\n[agent]\ntimeout_sec = 30\n\n[metadata]\ndata_source = \"quickstart\"\nsplit = \"train\"\n\n[task]\nname = \"lego/fix-1\"\n\n[verifier]\ntimeout_sec = 10.5\n\n[verifier.env]\nA = \"b\"\n"
    );
    assert_eq!(
        fs::read_to_string(task.local_source().unwrap().join("doc/README")).unwrap(),
        "adds"
    );
    assert!(task.solution_dir().is_some());
    let mode =
        |file: &str| std::os::unix::fs::PermissionsExt::mode(&fs::metadata(folder.join(file)).unwrap().permissions());
    assert_eq!(mode("tests/test.sh") & 0o111, 0o111);
    assert_eq!(mode("environment/files/add.sh") & 0o111, 0o111);
    assert_eq!(mode("environment/files/doc/README") & 0o111, 0);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        3,
        "the task, rejected.jsonl, prepare-report.json"
    );
}

#[test]
fn the_same_input_gives_the_same_bytes_as_lines_and_as_an_array() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let records = [record("a"), record("b")];
    run(lines(&records), one.path()).unwrap();
    run(serde_json::to_string_pretty(&records).unwrap(), two.path()).unwrap();
    assert_eq!(
        folder_checksum(one.path()).unwrap(),
        folder_checksum(two.path()).unwrap()
    );
}

#[test]
fn bad_records_are_rejected_with_line_and_reason_and_the_rest_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let with = |id: &str, key: &str, value: Value| {
        let mut changed = record(id);
        changed[key] = value;
        changed
    };
    let mut input = lines(&[
        record("a"),
        with("b", "test", Value::Null),
        record("a"),
        record("../../etc"),
        with("c", "files", json!({ "../x": "" })),
        with("d", "test_files", json!({ "/etc/passwd": "" })),
        with("e", "files", json!({ "x": "", "x/y": "" })),
        with("f", "files", json!(["x"])),
        with("g", "task", json!({ "agent": { "timeout_sec": "soon" } })),
        json!({ "colour": "red" }),
    ]);
    input.extend_from_slice(b"\n{\"instance_id\": \n\"\xff\"\n[1\n");
    input.extend(lines(&[json!(3), with("z", "hints_text", json!("x"))]));
    let report = run(input, dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join("rejected.jsonl")).unwrap();
    let rows: Vec<RejectedRow> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<(usize, &str)> = rows.iter().map(|row| (row.line, row.reason.as_str())).collect();
    assert_eq!(
        found,
        [
            (2, "missing_field"),
            (3, "duplicate_id"),
            (4, "unsafe_id"),
            (5, "unsafe_path"),
            (6, "unsafe_path"),
            (7, "unsafe_path"),
            (8, "wrong_type"),
            (9, "wrong_task_key"),
            (10, "unknown_family"),
            (12, "invalid_json"),
            (13, "not_utf8"),
            (14, "invalid_json"),
            (15, "not_an_object"),
        ]
    );
    assert_eq!(rows[0].instance_id.as_deref(), Some("b"));
    assert!(
        rows[0]
            .detail
            .starts_with("field `test` is missing; an inline record needs `instance_id`")
    );
    assert_eq!(rows[1].detail, "instance_id `a` is that of line 1");
    assert!(
        rows[9].detail.starts_with("invalid JSON at line 12, column "),
        "{}",
        rows[9].detail
    );
    assert_eq!((report.records, report.converted, report.rejected), (15, 2, 13));
    assert_eq!(report.rejected_by_reason["unsafe_path"], 3);
    assert_eq!(report.ignored_fields, [("hints_text".to_owned(), 1)].into());
    assert!(!dir.path().parent().unwrap().join("etc").exists());
}

#[test]
fn sources_that_cannot_be_split_are_named_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let broken = run("[{\"instance_id\": \"a\"},\n\n oops]", dir.path())
        .unwrap_err()
        .to_string();
    assert!(broken.starts_with("issues.jsonl:3: invalid JSON: "), "{broken}");
    assert!(
        run("PAR1...", dir.path())
            .unwrap_err()
            .to_string()
            .contains("issues.jsonl:1: not readable as Parquet")
    );
    assert!(
        convert(
            Source::of(&dir.path().join("none")),
            dir.path(),
            &ConvertOptions::default(),
            &mut |_| ControlFlow::Continue(())
        )
        .is_err()
    );
}

#[test]
fn folders_that_are_there_are_left_alone_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    run(lines(&[record("a")]), dir.path()).unwrap();
    fs::write(dir.path().join("a/instruction.md"), "edited by hand").unwrap();
    fs::create_dir(dir.path().join(".prepare-999999999.tmp")).unwrap();
    let report = run(lines(&[record("a")]), dir.path()).unwrap();
    assert_eq!((report.converted, report.existing), (0, 1));
    assert_eq!(
        fs::read_to_string(dir.path().join("a/instruction.md")).unwrap(),
        "edited by hand"
    );
    assert!(
        !dir.path().join(".prepare-999999999.tmp").exists(),
        "left by a killed process"
    );
    let report = run_with(lines(&[record("a")]), dir.path(), true).unwrap();
    assert_eq!((report.converted, report.existing), (1, 0));
    assert_ne!(
        fs::read_to_string(dir.path().join("a/instruction.md")).unwrap(),
        "edited by hand"
    );
}

#[test]
fn an_index_lists_tasks_and_what_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = dir.path().join("tasks");
    run(lines(&[record("b"), record("a")]), &tasks).unwrap();
    fs::create_dir_all(tasks.join("notes")).unwrap();
    fs::create_dir_all(tasks.join("half")).unwrap();
    fs::write(tasks.join("half/instruction.md"), "x").unwrap();
    let out = dir.path().join("tasks.parquet");
    let report = index(std::slice::from_ref(&tasks), &out, &IndexOptions::default()).unwrap();
    assert_eq!(
        (report.tasks, report.skipped.as_slice()),
        (2, [tasks.join("notes")].as_slice())
    );
    assert!(report.broken[0].contains("half: not a task: `tests/test.sh` is missing"));
    let index_read = TaskIndex::read(&out).unwrap();
    let row = &index_read.rows[0];
    assert_eq!(
        (
            row.instance_id.as_str(),
            row.task_path.as_str(),
            row.data_source.as_str()
        ),
        ("a", "tasks/a", "quickstart")
    );
    assert_eq!(row.split.as_deref(), Some("train"));
    assert_eq!(
        row.task_checksum,
        Some(Task::load(&index_read.task_dir(row)).unwrap().checksum().unwrap())
    );
    // The same task twice is one; another of its id is not.
    let twice = index(
        &[tasks.clone(), tasks.join("a"), out.clone()],
        &out,
        &IndexOptions::default(),
    )
    .unwrap();
    assert_eq!((twice.tasks, twice.seen), (2, 5));
    let other = dir.path().join("other");
    run(
        lines(&[json!({"instance_id": "a", "problem_statement": "Other.", "files": {}, "test": "true"})]),
        &other,
    )
    .unwrap();
    let message = index(&[tasks.clone(), other], &out, &IndexOptions::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("the id `a` is also that of"), "{message}");
}

#[test]
fn records_named_in_run_toml_are_prepared_once() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("train.jsonl");
    fs::write(&source, lines(&[record("a"), json!(1)])).unwrap();
    let first = prepare_into(&source, &dir.path().join("tasks")).unwrap();
    assert_eq!(
        (first.reused, first.report.converted, first.report.rejected),
        (false, 1, 1)
    );
    assert_eq!(TaskIndex::read(&first.index).unwrap().rows[0].task_path, "a");
    let again = prepare_into(&source, &dir.path().join("tasks")).unwrap();
    assert_eq!(
        again,
        Prepared {
            reused: true,
            ..first.clone()
        }
    );
    fs::write(&source, lines(&[record("b")])).unwrap();
    assert_ne!(
        prepare_into(&source, &dir.path().join("tasks")).unwrap().index,
        first.index
    );
}

#[test]
fn an_index_leaves_out_what_is_excluded_and_what_resembles_it() {
    let dir = tempfile::tempdir().unwrap();
    let words = "When a list is sorted by two keys and one of them is missing, the order of the rest changes, and an error is \
                 raised whose message names neither of the keys nor the row where it was seen, on every platform that was tried";
    let with = |id: &str, text: &str| {
        let mut record = record(id);
        record["problem_statement"] = text.into();
        record
    };
    let (own, held) = (dir.path().join("own"), dir.path().join("held"));
    let records = [
        with("a", words),
        with(
            "b",
            "Quite another matter: the window closes before its question has been answered by anybody.",
        ),
        with(
            "c",
            "Unlike all of the others, this one is about colours of lines in a chart of many columns.",
        ),
    ];
    run(lines(&records), &own).unwrap();
    run(lines(&[with("z", &format!("{words}, and on this one."))]), &held).unwrap();
    let (held_index, own_index, out) = (
        dir.path().join("held.parquet"),
        dir.path().join("own.parquet"),
        dir.path().join("x.parquet"),
    );
    index(&[held], &held_index, &IndexOptions::default()).unwrap();
    let options = IndexOptions {
        exclude: vec!["b".to_owned()],
        exclude_indexes: vec![held_index.clone()],
        resemblance: 0.8,
        ..IndexOptions::default()
    };
    let report = index(std::slice::from_ref(&own), &out, &options).unwrap();
    let dropped: Vec<_> = report
        .dropped
        .iter()
        .map(|(reason, count)| (reason.as_str(), *count))
        .collect();
    assert_eq!(dropped, [("excluded", 1), ("resembles_excluded", 1)]);
    assert_eq!(TaskIndex::read(&out).unwrap().rows[0].instance_id, "c");
    // Trials are run of no others.
    let (all, _) = index_rows(std::slice::from_ref(&own), &options, &mut IndexReport::default()).unwrap();
    let tried = without_excluded(all, &options).unwrap();
    let tried: Vec<&str> = tried.iter().map(|row| row.instance_id.as_str()).collect();
    assert_eq!(tried, ["c"]);
    // Of several sources: all of them, or what all of them hold.
    index(std::slice::from_ref(&own), &own_index, &IndexOptions::default()).unwrap();
    let both = |combine: Combine| {
        let options = IndexOptions {
            combine,
            ..IndexOptions::default()
        };
        index(
            &[own_index.clone(), out.clone()],
            &dir.path().join("y.parquet"),
            &options,
        )
        .unwrap()
        .tasks
    };
    assert_eq!((both(Combine::Union), both(Combine::Intersection)), (3, 1));
    assert_eq!(
        index(&[own_index, held_index], &out, &IndexOptions::default())
            .unwrap()
            .tasks,
        4
    );
}
