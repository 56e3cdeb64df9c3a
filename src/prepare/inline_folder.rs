//! An inline record as a Harbor task folder.

use serde_json::{Map, Value};

use super::record::{Fault, InlineRecord, fault};
use super::stage::StagedFile;

const BASE_IMAGE: &str = "debian:trixie-slim";
const DEFAULT_SOURCE: &str = "inline";

/// task.toml of a record: its `task`, over what every task gets.
pub(super) fn manifest(record: &InlineRecord) -> Result<String, Fault> {
    let wrong = |error: &dyn std::fmt::Display| fault("wrong_task_key", format!("`task` makes no task.toml: {error}"));
    let source = record.data_source.as_deref().unwrap_or(DEFAULT_SOURCE);
    let mut metadata = toml::Table::from_iter([("data_source".to_owned(), source.into())]);
    if let Some(split) = &record.split {
        metadata.insert("split".to_owned(), split.as_str().into());
    }
    let mut table = toml::Table::from_iter([
        ("schema_version".to_owned(), "1.4".into()),
        (
            "task".to_owned(),
            toml::Table::from_iter([("name".to_owned(), format!("lego/{}", record.instance_id).into())]).into(),
        ),
        ("metadata".to_owned(), metadata.into()),
    ]);
    let mut given = record.task.clone();
    without_nulls(&mut given);
    // The Dockerfile that brings the files starts from the image.
    if let Some(environment) = given.get_mut("environment").and_then(Value::as_object_mut) {
        environment.remove("docker_image");
    }
    merge(&mut table, toml::Table::try_from(given).map_err(|error| wrong(&error))?);
    toml::to_string(&table).map_err(|error| wrong(&error))
}

fn without_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    object
        .values_mut()
        .filter_map(Value::as_object_mut)
        .for_each(without_nulls);
}

/// Tables merge, everything else replaces.
fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(over)) => merge(inner, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

/// Its files.
pub(super) fn files(record: InlineRecord, manifest: String) -> Vec<StagedFile> {
    let environment = |key: &str| {
        record
            .task
            .get("environment")
            .and_then(|table| table.get(key))
            .and_then(Value::as_str)
    };
    let (image, workdir) = (
        environment("docker_image").unwrap_or(BASE_IMAGE),
        environment("workdir").unwrap_or("/app"),
    );
    let workdir = workdir.trim_end_matches('/');
    let dockerfile = format!("FROM {image}\nCOPY files/ {workdir}/\nWORKDIR {workdir}\n");
    let mut files = vec![
        StagedFile::plain("task.toml", manifest),
        StagedFile::plain("instruction.md", format!("{}\n", record.problem_statement.trim_end())),
        StagedFile::plain("environment/Dockerfile", dockerfile),
        StagedFile::script("tests/test.sh", record.test),
    ];
    files.extend(
        record
            .solution
            .map(|solution| StagedFile::script("solution/solve.sh", solution)),
    );
    for (folder, contents) in [("environment/files", record.files), ("tests", record.test_files)] {
        files.extend(contents.into_iter().map(|(path, content)| StagedFile {
            path: format!("{folder}/{path}"),
            executable: content.starts_with("#!"),
            content,
        }));
    }
    files
}
