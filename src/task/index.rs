//! The task index: one row a task, in the columns that other tools of this field read.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Task, TaskError, index_parquet};

/// One task of an index.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IndexRow {
    /// Its id.
    pub instance_id: String,
    /// Its folder: relative to the index where possible.
    pub task_path: String,
    /// Where the task came from; one validation series each.
    pub data_source: String,
    /// Container image.
    pub image: Option<String>,
    /// The image's digest, which pins it.
    pub image_digest: Option<String>,
    /// `train`, `val` or another split.
    pub split: Option<String>,
    /// Share of attempts solved.
    pub pass_rate: Option<f64>,
    /// Attempts behind `pass_rate`.
    pub n_attempts: Option<i32>,
    /// Attempts solved.
    pub n_solved: Option<i32>,
    /// Reward of the oracle.
    pub oracle_reward: Option<f64>,
    /// Reward of doing nothing.
    pub nop_reward: Option<f64>,
    /// Time that verification took, in seconds.
    pub verify_sec: Option<f64>,
    /// Whether repeated verification disagreed.
    pub flaky: Option<bool>,
    /// SHA-256 of the folder's content.
    pub task_checksum: Option<String>,
}

impl IndexRow {
    /// The image by its digest, where the row names both.
    pub fn pinned(&self) -> Option<String> {
        let (image, digest) = (self.image.as_ref()?, self.image_digest.as_ref()?);
        let pins = digest.starts_with("sha256:") && !image.contains('@');
        pins.then(|| format!("{image}@{digest}"))
    }
}

/// A task index: Parquet on disk.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskIndex {
    /// Its tasks, in order.
    pub rows: Vec<IndexRow>,
    /// Where it was read from; relative task paths start at its folder.
    pub path: PathBuf,
}

impl TaskIndex {
    /// Reads an index; the flat columns may be absent where `extra_info` or `prompt` says the same.
    ///
    /// A damaged or foreign file is an error that names it and the reason.
    pub fn read(path: &Path) -> Result<Self, TaskError> {
        Ok(Self {
            rows: index_parquet::read(path)?,
            path: path.to_owned(),
        })
    }

    /// Writes `rows` to `path`, atomically. Absolute task paths below the index's folder become relative.
    pub fn write(path: &Path, rows: &[IndexRow]) -> Result<(), TaskError> {
        let mut rows = rows.to_vec();
        let folder = std::path::absolute(path)?
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default();
        for row in &mut rows {
            if let Some(relative) = Path::new(&row.task_path)
                .strip_prefix(&folder)
                .ok()
                .and_then(Path::to_str)
            {
                row.task_path = if relative.is_empty() {
                    ".".to_owned()
                } else {
                    relative.to_owned()
                };
            }
        }
        index_parquet::write(path, &rows)
    }

    /// Opens a row's task, with the image that the row pins.
    ///
    /// # Errors
    /// As [`Task::load`].
    pub fn task(&self, row: &IndexRow) -> Result<Task, TaskError> {
        let mut task = Task::load(&self.task_dir(row))?;
        task.pinned = row.pinned();
        Ok(task)
    }

    /// The folder of a row's task.
    pub fn task_dir(&self, row: &IndexRow) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(&row.task_path)
    }
}
