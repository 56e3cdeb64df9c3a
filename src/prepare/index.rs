//! Task folders and indexes to a task index.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::measured::{Measured, read_measured};
use super::select::{self, Combine, IndexOptions};
use super::stage::on_all_cores;
use super::warnings::Warnings;
use super::{
    PrepareError, PrepareRow, PrepareStatus, PushedImage, StageRow, ValidationRow, read_pushed, read_validation,
};
use crate::task::{IndexRow, SchemaWarning, Task, TaskIndex};

/// What became of the folders.
#[derive(Debug, Default)]
pub struct IndexReport {
    /// Tasks in the index.
    pub tasks: usize,
    /// Tasks that were looked at.
    pub seen: usize,
    /// Folders that look like a task and cannot be opened, with the reason.
    pub broken: Vec<String>,
    /// Folders that are no task at all.
    pub skipped: Vec<PathBuf>,
    /// Keys of task.toml files that are not understood.
    pub warnings: Vec<String>,
    /// Tasks left out, by reason.
    pub dropped: BTreeMap<String, usize>,
    /// The same one by one, but for those that validation found to be none.
    pub left_out: Vec<PrepareRow>,
    /// Tasks of each split.
    pub splits: BTreeMap<String, usize>,
}

impl IndexReport {
    /// As a stage.
    pub fn stage(&self) -> StageRow {
        let mut reasons = self.dropped.clone();
        if !self.broken.is_empty() {
            reasons.insert("broken".to_owned(), self.broken.len());
        }
        StageRow {
            stage: "index".to_owned(),
            into: self.seen + self.broken.len(),
            out: self.tasks,
            dropped: reasons.values().sum(),
            reasons,
            notes: BTreeMap::new(),
        }
    }
}

/// Writes the index of the tasks in `sources` (each a task, a folder of tasks, or an index) to `out`, sorted by id within
/// each source.
///
/// What validation and trials have found out of tasks in a folder is in their rows. Two tasks of one id are an error, since
/// rewards are kept by id.
pub fn index(sources: &[PathBuf], out: &Path, options: &IndexOptions) -> Result<IndexReport, PrepareError> {
    let mut report = IndexReport::default();
    let (mut rows, repos) = rows(sources, options, &mut report)?;
    select::split(&mut rows, &repos, options)?;
    let excluded = select::excluded(&rows, options)?;
    rows.retain(|row| {
        let why = excluded.get(&row.instance_id).cloned();
        let unfit = || {
            options
                .filter
                .as_ref()
                .filter(|filter| !select::fits(filter, row))
                .map(|_| ("where", None))
        };
        let why = why.or_else(unfit);
        let Some((reason, like)) = why else { return true };
        *report.dropped.entry(reason.to_owned()).or_default() += 1;
        report.left_out.push(PrepareRow {
            task: Some(row.instance_id.clone()),
            stage: "index".to_owned(),
            status: PrepareStatus::Dropped,
            reason: Some(reason.to_owned()),
            like,
            image: None,
        });
        false
    });
    for row in &rows {
        if let Some(split) = &row.split {
            *report.splits.entry(split.clone()).or_default() += 1;
        }
    }
    report.tasks = rows.len();
    TaskIndex::write(out, &rows)?;
    Ok(report)
}

/// The rows of all sources as one, with absolute paths, and the repositories of their tasks.
pub fn rows(
    sources: &[PathBuf],
    options: &IndexOptions,
    report: &mut IndexReport,
) -> Result<(Vec<IndexRow>, BTreeMap<String, String>), PrepareError> {
    let mut repos = BTreeMap::new();
    let mut all: Vec<Vec<IndexRow>> = Vec::new();
    for source in sources {
        if source.is_file() {
            let index = TaskIndex::read(source)?;
            let absolute = |row: &IndexRow| -> Result<IndexRow, PrepareError> {
                let folder = std::path::absolute(index.task_dir(row))?;
                Ok(IndexRow {
                    task_path: folder.to_string_lossy().into_owned(),
                    ..row.clone()
                })
            };
            let found: Vec<IndexRow> = index.rows.iter().map(absolute).collect::<Result<_, _>>()?;
            // A folder that is gone has no repository, and is its own.
            repos.extend(on_all_cores(&found, |row| Ok(repo_at(row)))?.into_iter().flatten());
            all.push(found);
        } else {
            all.push(of_folder(source, options, report, &mut repos)?);
        }
    }
    report.seen = all.iter().map(Vec::len).sum::<usize>() + report.dropped.values().sum::<usize>();
    let rows = match options.combine {
        Combine::Union => union(all)?,
        Combine::Intersection => {
            let rest: Vec<BTreeSet<String>> = all
                .iter()
                .skip(1)
                .map(|rows| rows.iter().map(|row| row.instance_id.clone()).collect())
                .collect();
            let before = report.dropped.entry("not_in_all".to_owned()).or_default();
            let mut first = all.into_iter().next().unwrap_or_default();
            let had = first.len();
            first.retain(|row| rest.iter().all(|ids| ids.contains(&row.instance_id)));
            *before += had - first.len();
            first
        }
    };
    report.dropped.retain(|_, count| *count > 0);
    Ok((rows, repos))
}

/// A task that several sources hold counts once; two tasks of one id are an error.
fn union(all: Vec<Vec<IndexRow>>) -> Result<Vec<IndexRow>, PrepareError> {
    let mut known: BTreeMap<String, (String, Option<String>)> = BTreeMap::new();
    let mut rows = Vec::new();
    for row in all.into_iter().flatten() {
        let Some((path, sum)) = known.get(&row.instance_id) else {
            known.insert(
                row.instance_id.clone(),
                (row.task_path.clone(), row.task_checksum.clone()),
            );
            rows.push(row);
            continue;
        };
        if *path != row.task_path && (sum.is_none() || *sum != row.task_checksum) {
            return Err(PrepareError::Source {
                name: row.task_path,
                line: 1,
                reason: format!("the id `{}` is also that of {path}", row.instance_id),
            });
        }
    }
    Ok(rows)
}

fn repo_at(row: &IndexRow) -> Option<(String, String)> {
    let task = Task::load(Path::new(&row.task_path)).ok()?;
    Some((row.instance_id.clone(), repo_of(&task)?))
}

fn repo_of(task: &Task) -> Option<String> {
    task.config
        .metadata
        .get("repo")
        .and_then(toml::Value::as_str)
        .map(str::to_owned)
}

fn of_folder(
    folder: &Path,
    options: &IndexOptions,
    report: &mut IndexReport,
    repos: &mut BTreeMap<String, String>,
) -> Result<Vec<IndexRow>, PrepareError> {
    let mut tasks: Vec<PathBuf> = Vec::new();
    let mut known = BTreeMap::new();
    let mut measured = BTreeMap::new();
    let mut pushed = BTreeMap::new();
    if looks_like_a_task(folder) {
        tasks.push(folder.to_owned());
    } else {
        known = read_validation(folder)?;
        measured = read_measured(folder)?;
        pushed = read_pushed(folder)?;
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
    let mut rows = Vec::new();
    let mut told = Warnings::default();
    for opened in on_all_cores(&tasks, |folder| row(folder))? {
        match opened {
            Ok((mut row, repo, warnings)) => {
                for warning in warnings {
                    told.add(&warning.message, || {
                        format!("{}:{}", warning.path.display(), warning.line)
                    });
                }
                if let Some(repo) = repo {
                    repos.insert(row.instance_id.clone(), repo);
                }
                match known_of(&mut row, &known, &measured, &pushed) {
                    Some(class) if !options.keep_invalid => *report.dropped.entry(class.to_owned()).or_default() += 1,
                    _ => rows.push(row),
                }
            }
            Err(broken) => report.broken.push(broken),
        }
    }
    report.warnings.extend(told.lines("tasks"));
    Ok(rows)
}

/// Fills in what is known of a task; gives the class of one that is none.
fn known_of(
    row: &mut IndexRow,
    known: &BTreeMap<String, ValidationRow>,
    measured: &BTreeMap<String, Measured>,
    pushed: &BTreeMap<String, PushedImage>,
) -> Option<&'static str> {
    let same = |sum: &String| row.task_checksum.as_ref() == Some(sum);
    if let Some(found) = measured
        .get(&row.instance_id)
        .filter(|found| same(&found.task_checksum))
    {
        row.pass_rate = found.pass_rate();
        row.n_attempts = i32::try_from(found.attempts).ok();
        row.n_solved = i32::try_from(found.solved).ok();
    }
    if let Some(found) = pushed.get(&row.instance_id).filter(|found| found.is_of(row)) {
        row.image = Some(found.image.clone());
        row.image_digest = Some(found.digest.clone());
    }
    let found = known.get(&row.instance_id).filter(|found| same(&found.task_checksum))?;
    row.nop_reward = found.nop_reward;
    row.oracle_reward = found.oracle_reward;
    row.verify_sec = found.verify_sec;
    row.flaky = Some(found.class == Some(super::InvalidClass::Flaky));
    found.class.map(super::InvalidClass::name)
}

fn looks_like_a_task(folder: &Path) -> bool {
    ["task.toml", "instruction.md", "tests/test.sh"]
        .iter()
        .any(|file| folder.join(file).is_file())
}

type Opened = (IndexRow, Option<String>, Vec<SchemaWarning>);

/// The row of a task with its repository and the warnings about it, or why it cannot be opened.
fn row(folder: &Path) -> Result<Result<Opened, String>, PrepareError> {
    let task = match Task::load(folder) {
        Ok(task) => task,
        Err(error) => return Ok(Err(error.to_string())),
    };
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
    let repo = repo_of(&task);
    Ok(Ok((row, repo, task.warnings)))
}
