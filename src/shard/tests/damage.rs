//! Shards that are damaged, foreign, or of another version.

use std::path::Path;

use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;

use super::{read, simple, writer};
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

#[test]
fn an_episode_that_could_not_be_written_is_written_once_when_it_is_given_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let first = writer.push_durable(&simple("a", 1)).unwrap();
    let folder = dir.path().join("000001");
    assert_eq!(first, [folder.join("part-w0-000000.parquet")]);
    // Something is in the way of the next file's name, and then of the whole folder of a step.
    let blocked = folder.join("part-w0-000001.parquet");
    fs::create_dir(&blocked).unwrap();
    writer.push_durable(&simple("b", 1)).unwrap_err();
    fs::write(dir.path().join("000002"), "a file").unwrap();
    writer.push_durable(&simple("c", 2)).unwrap_err();
    assert_eq!(writer.pending(), 0);
    assert_eq!(
        fs::read_dir(&folder).unwrap().count(),
        2,
        "nothing half-written is left"
    );
    fs::remove_dir(&blocked).unwrap();
    fs::remove_file(dir.path().join("000002")).unwrap();
    for (id, step) in [("b", 1), ("c", 2)] {
        assert_eq!(writer.push_durable(&simple(id, step)).unwrap().len(), 1);
    }
    let mut ids: Vec<String> = read(dir.path())
        .into_iter()
        .map(|episode| episode.episode_id.to_string())
        .collect();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c"].map(|id| simple(id, 1).episode_id.to_string()));
}
