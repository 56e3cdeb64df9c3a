//! Shards that are damaged, foreign, or of another version.

use std::path::Path;

use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::{simple, writer};
use crate::shard::{COLUMNS, ShardReader, episode_rows};

#[test]
fn damaged_and_foreign_files_are_named_and_never_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    writer.push(&simple("a", 1)).unwrap();
    let path = writer.flush().unwrap().remove(0);
    let whole = fs::read(&path).unwrap();
    let message = || {
        ShardReader::open(&[dir.path()])
            .unwrap()
            .rows_local()
            .unwrap_err()
            .to_string()
    };
    for end in [0, 3, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..end]).unwrap();
        let message = message();
        assert!(
            message.contains("000001/part-w0-000000.parquet: not a readable rollout shard: "),
            "{message}"
        );
    }
    crate::task::TaskIndex::write(&path, &[]).unwrap();
    assert!(message().contains("has no `lego.schema_version`, so another program wrote it"));
    let none = dir.path().join("none");
    assert!(ShardReader::open(&[none]).unwrap_err().to_string().contains("none"));
}

/// Writes a shard whose metadata claims another version, and perhaps lacks a column.
fn write_as(path: &Path, version: &str, columns: usize) {
    let batch = crate::shard::row::encode(&episode_rows(&simple("a", 1))).unwrap();
    let batch = batch.project(&(0..columns).collect::<Vec<_>>()).unwrap();
    let pairs = vec![
        KeyValue::new("lego.schema_version".to_owned(), version.to_owned()),
        KeyValue::new("lego.vocab_size".to_owned(), "300".to_owned()),
    ];
    let properties = WriterProperties::builder().set_key_value_metadata(Some(pairs)).build();
    let file = fs::File::create(path).unwrap().into_parts().0;
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
}

#[test]
fn readers_and_writers_of_other_versions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.parquet");
    let all = COLUMNS.len();
    let cases = [
        ("1", all, None),
        (
            "2",
            all,
            Some("written with shard schema 2, this release reads up to 1; upgrade lego to read it"),
        ),
        (
            "0",
            all,
            Some("`lego.schema_version` is `0`, expected a whole number from 1"),
        ),
        (
            "one",
            all,
            Some("`lego.schema_version` is `one`, expected a whole number from 1"),
        ),
        ("1", all - 1, Some("column `messages` is missing")),
    ];
    for (version, columns, expected) in cases {
        write_as(&path, version, columns);
        let result = ShardReader::open(&[&path]).unwrap().rows_local();
        match expected {
            None => assert_eq!(result.unwrap().len(), 1),
            Some(part) => assert!(result.unwrap_err().to_string().ends_with(part), "{version} {columns}"),
        }
    }
}
