//! An inline record: a whole small task in one JSON object. Checked before anything is written.

use std::collections::{BTreeMap, HashSet};
use std::path::{Component, Path};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

/// A whole small task in one JSON object.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub(super) struct InlineRecord {
    /// The task's id, and its folder's name: letters, digits, `.`, `_` and `-`.
    pub(super) instance_id: String,
    /// What the agent is told.
    pub(super) problem_statement: String,
    /// Files of the working folder, by relative path.
    pub(super) files: BTreeMap<String, String>,
    /// `tests/test.sh`: writes the reward.
    pub(super) test: String,
    /// Other files of `tests/`, by relative path.
    #[serde(default)]
    pub(super) test_files: BTreeMap<String, String>,
    /// `solution/solve.sh`.
    #[serde(default)]
    pub(super) solution: Option<String>,
    /// Keys of task.toml.
    #[serde(default)]
    pub(super) task: Map<String, Value>,
    /// Where the task came from; `inline` if absent.
    #[serde(default)]
    pub(super) data_source: Option<String>,
    /// `train`, `val` or another split of the index.
    #[serde(default)]
    pub(super) split: Option<String>,
}

/// Fields that are read; others are counted and left out.
const FIELDS: [&str; 9] = [
    "instance_id",
    "problem_statement",
    "files",
    "test",
    "test_files",
    "solution",
    "task",
    "data_source",
    "split",
];
const REQUIRED: [&str; 4] = ["instance_id", "problem_statement", "files", "test"];
const LONGEST_ID: usize = 200;

/// Why a record is rejected: a class for counting, and the detail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) reason: &'static str,
    pub(super) detail: String,
}

pub(super) fn fault(reason: &'static str, detail: impl Into<String>) -> Fault {
    Fault {
        reason,
        detail: detail.into(),
    }
}

impl InlineRecord {
    /// Checks a record's fields and paths; also gives the names of fields that are not read.
    pub(super) fn of(object: Map<String, Value>) -> Result<(Self, Vec<String>), Fault> {
        if let Some(missing) = REQUIRED
            .iter()
            .find(|field| object.get(**field).is_none_or(Value::is_null))
        {
            return Err(fault(
                "missing_field",
                format!(
                    "field `{missing}` is missing; an inline record needs {}",
                    list(&REQUIRED)
                ),
            ));
        }
        let ignored = object
            .keys()
            .filter(|key| !FIELDS.contains(&key.as_str()))
            .cloned()
            .collect();
        let present = object.into_iter().filter(|(_, value)| !value.is_null()).collect();
        let record: Self =
            serde_json::from_value(Value::Object(present)).map_err(|error| fault("wrong_type", error.to_string()))?;
        record.check()?;
        Ok((record, ignored))
    }

    fn check(&self) -> Result<(), Fault> {
        safe_id(&self.instance_id)?;
        if self.problem_statement.trim().is_empty() {
            return Err(fault("missing_field", "field `problem_statement` is empty"));
        }
        if self.test.trim().is_empty() {
            return Err(fault("missing_field", "field `test` is empty"));
        }
        safe_paths("files", &self.files)?;
        safe_paths("test_files", &self.test_files)?;
        if self
            .test_files
            .keys()
            .any(|path| path == "test.sh" || path.starts_with("test.sh/"))
        {
            return Err(fault(
                "unsafe_path",
                "`test_files` holds `test.sh`, which is the field `test`",
            ));
        }
        Ok(())
    }
}

/// How files end that lie beside the tasks.
const RESERVED: [&str; 5] = [".json", ".jsonl", ".parquet", ".csv", ".tmp"];

/// Whether an id can be a folder's name.
pub(super) fn safe_id(id: &str) -> Result<(), Fault> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if id.is_empty()
        || id.len() > LONGEST_ID
        || id.starts_with(['.', '-'])
        || id.contains("..")
        || !id.chars().all(fits)
    {
        let shape = "1 to 200 letters, digits, `.`, `_` or `-`, without `..` and not beginning with `.` or `-`";
        return Err(fault(
            "unsafe_id",
            format!(
                "instance_id `{}` cannot be a folder's name; expected {shape}",
                id.escape_debug()
            ),
        ));
    }
    // Files of this program lie beside the tasks.
    if RESERVED.iter().any(|ending| id.ends_with(ending)) {
        return Err(fault(
            "unsafe_id",
            format!(
                "instance_id `{id}` could be the name of a file beside the tasks; expected none that ends with {}",
                list(&RESERVED)
            ),
        ));
    }
    Ok(())
}

/// Whether a path stays below its folder, and is spelt plainly, so that one file has one name.
pub(super) fn is_safe_path(path: &str) -> bool {
    let normal = Path::new(path)
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    let plain = path.split('/').all(|part| !part.is_empty() && part != ".");
    !path.is_empty() && normal && plain && !path.contains(['\0', '\\']) && path.len() <= 1000
}

pub(super) fn list(names: &[&str]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Whether all paths stay below their folder, and none is both a file and a folder.
pub(super) fn safe_paths(field: &str, files: &BTreeMap<String, String>) -> Result<(), Fault> {
    let wrong = |path: &str, what: &str| {
        Err(fault(
            "unsafe_path",
            format!("`{field}` path `{}` {what}", path.escape_debug()),
        ))
    };
    let mut folders = HashSet::new();
    for path in files.keys() {
        if !is_safe_path(path) {
            return wrong(path, "must be relative, without `.`, `..`, empty parts or `\\`");
        }
        folders.extend(path.match_indices('/').map(|(at, _)| &path[..at]));
    }
    match files.keys().find(|path| folders.contains(path.as_str())) {
        Some(path) => wrong(path, "is both a file and a folder"),
        None => Ok(()),
    }
}
