//! Task folders to a task index.

use std::path::{Path, PathBuf};

use fs_err as fs;

use super::PrepareError;
use super::stage::on_all_cores;
use crate::task::{IndexRow, Task, TaskIndex};

/// What became of the folders.
#[derive(Debug, Default)]
pub struct IndexReport {
    /// Tasks in the index.
    pub tasks: usize,
    /// Folders that look like a task and cannot be opened, with the reason.
    pub broken: Vec<String>,
    /// Folders that are no task at all.
    pub skipped: Vec<PathBuf>,
    /// Keys of task.toml files that are not understood.
    pub warnings: Vec<String>,
}

/// Writes the index of the tasks in `folders` (each a task, or a folder of tasks) to `out`, sorted by id
/// within each folder.
///
/// Two tasks of one id are an error, since rewards are kept by id.
pub fn index(folders: &[PathBuf], out: &Path) -> Result<IndexReport, PrepareError> {
    let mut report = IndexReport::default();
    let mut tasks: Vec<PathBuf> = Vec::new();
    for folder in folders {
        if looks_like_a_task(folder) {
            tasks.push(folder.clone());
            continue;
        }
        let mut children: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if !hidden && entry.path().is_dir() {
                children.push(entry.path());
            }
        }
        children.sort();
        for child in children {
            let place = if looks_like_a_task(&child) {
                &mut tasks
            } else {
                &mut report.skipped
            };
            place.push(child);
        }
    }
    let mut rows: Vec<IndexRow> = Vec::new();
    for opened in on_all_cores(&tasks, |folder| row(folder))? {
        match opened {
            Ok((row, warnings)) => {
                rows.push(row);
                report.warnings.extend(warnings);
            }
            Err(broken) => report.broken.push(broken),
        }
    }
    let mut ids: Vec<&IndexRow> = rows.iter().collect();
    ids.sort_by(|left, right| left.instance_id.cmp(&right.instance_id));
    if let Some(pair) = ids.windows(2).find(|pair| pair[0].instance_id == pair[1].instance_id) {
        return Err(PrepareError::Source {
            name: pair[1].task_path.clone(),
            line: 1,
            reason: format!("the id `{}` is also that of {}", pair[1].instance_id, pair[0].task_path),
        });
    }
    report.tasks = rows.len();
    TaskIndex::write(out, &rows)?;
    Ok(report)
}

fn looks_like_a_task(folder: &Path) -> bool {
    ["task.toml", "instruction.md", "tests/test.sh"]
        .iter()
        .any(|file| folder.join(file).is_file())
}

/// The row of a task with the warnings about it, or why it cannot be opened.
fn row(folder: &Path) -> Result<Result<(IndexRow, Vec<String>), String>, PrepareError> {
    let task = match Task::load(folder) {
        Ok(task) => task,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let warnings = task.warnings.iter().map(ToString::to_string).collect();
    let metadata = |key: &str| {
        task.config
            .metadata
            .get(key)
            .and_then(toml::Value::as_str)
            .map(str::to_owned)
    };
    let parent = || {
        let absolute = std::path::absolute(folder).ok()?;
        Some(absolute.parent()?.file_name()?.to_string_lossy().into_owned())
    };
    let task_path = std::path::absolute(folder)?;
    let row = IndexRow {
        instance_id: task.id.clone(),
        task_path: task_path.to_string_lossy().into_owned(),
        data_source: metadata("data_source")
            .or_else(|| task.config.source.clone())
            .or_else(parent)
            .unwrap_or_default(),
        image: task.config.environment.docker_image.clone(),
        split: metadata("split"),
        task_checksum: Some(task.checksum()?),
        ..IndexRow::default()
    };
    Ok(Ok((row, warnings)))
}
