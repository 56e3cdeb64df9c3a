//! What preflight reads of a task index: that it is one, and that its tasks are there and whole.

use std::path::Path;

use super::{Context, Finding};
use crate::rollout::unfit;
use crate::task::{Task, TaskIndex};

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
        .filter_map(|row| fault(&index.task_dir(row), context))
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

/// Why this task cannot be used, or not on this backend.
fn fault(dir: &Path, context: Context<'_>) -> Option<String> {
    let task = match Task::load(dir) {
        Ok(task) => task,
        Err(error) => return Some(error.to_string()),
    };
    match task.stages() {
        Ok(stages) => unfit(&task, &stages, &context.run.config.sandbox),
        Err(error) => Some(error.to_string()),
    }
}
