//! What preflight reads of a task index: that it is one, and that its tasks are there and whole.

use std::io::{BufReader, Read as _};
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
    if path.is_dir() {
        let index = path.join("index.parquet");
        let help = if index.is_file() {
            format!("write `{}`", index.display())
        } else {
            format!(
                "`lego prepare index {}` makes an index of the task folders in it",
                path.display()
            )
        };
        let text = format!("{key}: {} is a folder, and a file is read", path.display());
        return Some(fatal(text).help(help));
    }
    if path
        .extension()
        .is_some_and(|ending| ending == "jsonl" || ending == "json")
    {
        let text = format!("{key}: {}", unlike_records(path)?);
        return Some(fatal(text).help("write JSON lines, one record each, or a task index (.parquet)"));
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
    let train = data.train.iter().filter(|_| context.draws_from_train());
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

/// Why a file can hold no records: they are read whole when the run starts.
fn unlike_records(path: &Path) -> Option<String> {
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) => return Some(format!("{}: {error}", path.display())),
    };
    let mut bytes = BufReader::new(file).bytes();
    let place = |line: usize| format!("{}:{line}", path.display());
    let mut line = 1;
    let first = loop {
        match bytes.next() {
            Some(Ok(b'\n')) => line += 1,
            // The three are a mark of byte order.
            Some(Ok(byte)) if byte.is_ascii_whitespace() || [0xef, 0xbb, 0xbf].contains(&byte) => {}
            Some(Ok(byte)) => break byte,
            Some(Err(error)) => return Some(format!("{}: {error}", place(line))),
            None => return Some(format!("{} names no task: it is empty", path.display())),
        }
    };
    // `P` begins a file of Parquet, whatever it is called.
    let told = || format!("{}: no JSON object where a record should begin", place(line));
    (!matches!(first, b'{' | b'[' | b'P')).then(told)
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
