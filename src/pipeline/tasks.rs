//! The tasks of a run: from the index or from inline records, opened once.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::PipelineError;
use crate::prepare::prepare_into;
use crate::task::{IndexRow, NetworkMode, Task, TaskIndex, sha256_hex};

/// A folder for trials of these tasks, with their index. Its name tells the tasks, their content, and what is done to them: the
/// same command goes on where it was cut short, and another begins anew.
pub(super) fn work_folder(
    parent: &Path,
    purpose: &str,
    rows: &[IndexRow],
) -> Result<(PathBuf, PathBuf), PipelineError> {
    let sums = rows.iter().map(|row| {
        format!(
            "{} {}\n",
            row.instance_id,
            row.task_checksum.as_deref().unwrap_or_default()
        )
    });
    let text = format!("{purpose}\n{}", sums.collect::<String>());
    let folder = parent.join(&sha256_hex(text.as_bytes())[..16]);
    let index = folder.join("tasks.parquet");
    TaskIndex::write(&index, rows)?;
    Ok((folder, index))
}

/// A task and where it came from.
#[derive(Debug, Clone)]
pub struct TaskEntry {
    /// The task.
    pub task: Arc<Task>,
    /// Where it came from, as the index says.
    pub data_source: String,
}

/// Tasks of one file, with the name under which their scores are kept.
#[derive(Debug, Clone)]
pub struct TaskSet {
    /// Stem of the file.
    pub name: String,
    /// In the order of the index.
    pub tasks: Vec<TaskEntry>,
    /// What should be known about them.
    pub warnings: Vec<String>,
}

impl TaskSet {
    /// Opens a task index, or a JSONL of inline records, which is prepared below `prepared` first.
    pub fn load(path: &Path, prepared: &Path) -> Result<Self, PipelineError> {
        let mut warnings = Vec::new();
        let index_path = if path
            .extension()
            .is_some_and(|extension| extension == "jsonl" || extension == "json")
        {
            let done = prepare_into(path, prepared)?;
            if let Some(first) = &done.report.first_rejected {
                warnings.push(format!(
                    "{}:{}: {} ({} of {} records cannot become tasks; `lego prepare {}` names them all)",
                    path.display(),
                    first.line,
                    first.detail,
                    done.report.rejected,
                    done.report.records,
                    path.display()
                ));
            }
            done.index
        } else {
            path.to_owned()
        };
        let index = TaskIndex::read(&index_path)?;
        let mut tasks = Vec::with_capacity(index.rows.len());
        for row in &index.rows {
            let task = index.task(row)?;
            warnings.extend(task.warnings.iter().map(ToString::to_string));
            tasks.push(TaskEntry {
                task: Arc::new(task),
                data_source: row.data_source.clone(),
            });
        }
        let name = path
            .file_stem()
            .map(|stem| stem.to_string_lossy().into_owned())
            .unwrap_or_default();
        Ok(Self { name, tasks, warnings })
    }

    /// What the tests of all its tasks reach, whatever their folders say.
    pub fn tests_reach(&mut self, mode: NetworkMode) {
        for entry in &mut self.tasks {
            let config = &mut Arc::make_mut(&mut entry.task).config;
            config.environment.network_mode = Some(mode);
            let steps = config.steps.iter_mut().map(|step| &mut step.verifier);
            for verifier in std::iter::once(&mut config.verifier).chain(steps) {
                verifier.network_mode = None;
                verifier.allowed_hosts.clear();
            }
        }
    }

    /// Its tasks as validation counts them: their source is named below the set.
    pub fn into_validation(self) -> impl Iterator<Item = TaskEntry> {
        let name = self.name;
        self.tasks.into_iter().map(move |entry| TaskEntry {
            data_source: format!("{name}/{}", entry.data_source),
            ..entry
        })
    }

    /// The tasks of these ids, in their order. An id that is not there is an error that names it.
    pub fn select(&self, ids: &[String], index: &Path) -> Result<Vec<TaskEntry>, PipelineError> {
        let mut seen = BTreeSet::new();
        ids.iter()
            .filter(|id| seen.insert(id.as_str()))
            .map(|id| {
                self.tasks
                    .iter()
                    .find(|entry| entry.task.id == *id)
                    .cloned()
                    .ok_or_else(|| PipelineError::UnknownTask {
                        id: id.clone(),
                        index: PathBuf::from(index),
                    })
            })
            .collect()
    }
}
