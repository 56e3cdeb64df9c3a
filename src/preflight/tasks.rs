//! What preflight reads of a task index: that it is one, and that its tasks are there and whole.

use std::path::Path;

use super::{Context, Finding};
use crate::rollout::unfit;
use crate::task::{Task, TaskError, TaskIndex};

/// Tasks that are named in a message at most.
const NAMED: usize = 3;

/// What is wrong with the tasks that a key names. JSON lines are prepared when the run starts, and what lies
/// in an object store is not looked at here.
pub(super) fn look(id: &str, context: Context<'_>, key: &str, path: &Path) -> Option<Finding> {
    if path.to_string_lossy().contains("://") {
        return None;
    }
    let fatal = |detail: String| Finding::fatal(id, detail).at(context.run, key);
    if !path.exists() {
        let text = format!("{key}: no file {}", path.display());
        return Some(fatal(text).help("`lego prepare issues.jsonl` or `lego prepare index TASKS_DIR` makes one"));
    }
    if path.extension().is_none_or(|ending| ending != "parquet") {
        return None;
    }
    let again = "`lego prepare index TASKS_DIR` writes it again";
    let index = match TaskIndex::read(path) {
        Ok(index) => index,
        Err(error) => return Some(fatal(format!("{key}: {error}")).help(again)),
    };
    if index.rows.is_empty() {
        return Some(fatal(format!("{key}: {} names no task", path.display())).help(again));
    }
    let faults: Vec<String> = index
        .rows
        .iter()
        .filter_map(|row| fault(index.task(row), context))
        .collect();
    let text = format!(
        "{key}: {} of {} tasks of {} cannot be used: {}",
        faults.len(),
        index.rows.len(),
        path.display(),
        faults[..faults.len().min(NAMED)].join("; ")
    );
    (!faults.is_empty()).then(|| fatal(text).help(again))
}

/// The tasks of each index that the run draws from or validates on, with the key that names it; those that cannot be read
/// are left out, and so are indexes that are no files of Parquet: what is wrong with them `look` tells.
pub(super) fn named(context: Context<'_>) -> Vec<(&'static str, Vec<Task>)> {
    let data = &context.run.config.data;
    let train = data.train.iter().filter(|_| context.purpose.draws_tasks());
    let paths = train.map(|path| ("data.train", path));
    let paths = paths.chain(data.val.iter().map(|path| ("data.val", path)));
    let read = |(key, path): (&'static str, &std::path::PathBuf)| {
        let is_index = path.is_file() && path.extension().is_some_and(|ending| ending == "parquet");
        let index = is_index.then(|| TaskIndex::read(path).ok()).flatten()?;
        let load = |row| index.task(row).ok();
        Some((key, index.rows.iter().filter_map(load).collect()))
    };
    paths.filter_map(read).collect()
}

/// How many tasks a file names: rows of an index, or lines; 0 where it cannot be read.
pub(super) fn count(path: &Path) -> u64 {
    if path.extension().is_some_and(|ending| ending == "parquet") {
        return TaskIndex::read(path).map_or(0, |index| index.rows.len() as u64);
    }
    let text = std::fs::read(path).unwrap_or_default();
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count() as u64
}

/// Why this task cannot be used, or not on this backend.
fn fault(opened: Result<Task, TaskError>, context: Context<'_>) -> Option<String> {
    let task = match opened {
        Ok(task) => task,
        Err(error) => return Some(error.to_string()),
    };
    match task.stages() {
        Ok(stages) => unfit(&task, &stages, &context.run.config.sandbox),
        Err(error) => Some(error.to_string()),
    }
}
