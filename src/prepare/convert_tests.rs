//! Conversions that are stopped, keys that are there twice or that nothing has, and what an index says of images.

use std::io::Cursor;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::json;

use super::tests::{lines, record, run};
use super::*;
use crate::task::TaskIndex;

#[test]
fn a_key_that_is_there_twice_rejects_the_record_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let twice = record("b").to_string().replacen('{', "{\"instance_id\":\"c\",", 1);
    let report = run(format!("{}\n{twice}\n", record("a")), dir.path()).unwrap();
    assert_eq!((report.converted, report.rejected_by_reason["duplicate_key"]), (1, 1));
    let first = report.first_rejected.unwrap();
    assert_eq!(first.line, 2);
    assert!(
        first.detail.starts_with("one key too many at line 2, column ")
            && first.detail.ends_with(": the key `instance_id` is there twice"),
        "{}",
        first.detail
    );
}

#[test]
fn a_conversion_that_is_stopped_leaves_what_is_done_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let records = || lines(&[record("a"), record("b"), record("c")]);
    let mut heard = 0;
    let stopped = convert(
        Source::Stream("issues.jsonl".into(), Box::new(Cursor::new(records()))),
        dir.path(),
        &ConvertOptions::default(),
        &mut |_| {
            heard += 1;
            if heard < 2 {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        },
    );
    assert!(matches!(stopped, Err(PrepareError::Stopped)));
    let there = |name: &str| dir.path().join(name).exists();
    assert!(there("a/task.toml") && there("b/task.toml") && !there("c"));
    assert!(!there("prepare-report.json") && !there("rejected.jsonl"));
    let report = run(records(), dir.path()).unwrap();
    assert_eq!((report.existing, report.converted), (2, 1));
}

#[test]
fn a_key_that_no_task_has_is_told_once_for_all_records() {
    let dir = tempfile::tempdir().unwrap();
    let odd = |id: &str| {
        let mut record = record(id);
        record["task"]["agent"]["timeut_sec"] = json!(3);
        record
    };
    let report = run(lines(&[odd("a"), odd("b"), record("c")]), dir.path()).unwrap();
    assert_eq!(report.warnings.len(), 1, "{:?}", report.warnings);
    assert!(
        report.warnings[0].starts_with("line 1, a: ") && report.warnings[0].ends_with("(2 records)"),
        "{:?}",
        report.warnings
    );
    let indexed = index(
        &[dir.path().to_owned()],
        &dir.path().join("index.parquet"),
        &IndexOptions::default(),
    );
    let told = indexed.unwrap().warnings;
    assert!(told.len() == 1 && told[0].ends_with("(2 tasks)"), "{told:?}");
}

#[test]
fn the_index_says_where_an_image_was_pushed() {
    let dir = tempfile::tempdir().unwrap();
    run(lines(&[record("a"), record("b")]), dir.path()).unwrap();
    let path = dir.path().join("index.parquet");
    let rows = |path: &Path| {
        index(&[dir.path().to_owned()], path, &IndexOptions::default()).unwrap();
        TaskIndex::read(path).unwrap()
    };
    let index = rows(&path);
    let digest = format!("sha256:{}", "0".repeat(64));
    let pushed = PushedImage::of(&index.rows[0], "reg:5000/team/a".to_owned(), digest.clone());
    let stale = PushedImage {
        task_checksum: "another".to_owned(),
        ..PushedImage::of(&index.rows[1], "reg:5000/team/b".to_owned(), digest.clone())
    };
    let known = [pushed, stale].map(|pushed| (pushed.instance_id.clone(), pushed));
    write_pushed(dir.path(), &known.into()).unwrap();
    let index = rows(&path);
    assert_eq!(index.rows[0].image.as_deref(), Some("reg:5000/team/a"));
    let pinned = index.task(&index.rows[0]).unwrap().pinned;
    assert_eq!(pinned, Some(format!("reg:5000/team/a@{digest}")));
    assert_eq!(
        (&index.rows[1].image, index.task(&index.rows[1]).unwrap().pinned),
        (&None, None)
    );
}
