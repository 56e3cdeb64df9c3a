//! A folder of shards: is every row what data.md says, and does every sampled token have its place?

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::accounts::{Accounts, Rows, call_logs, captured_logs, trained};
use super::consumption::{Consumption, Sampled};
use crate::config::{BuilderName, CaptureScope};
use crate::run_dir::{Phase, RunDir};
use crate::shard::{Row, ShardError, ShardReader, sort_rows};
use crate::trajectory::{EpisodeId, GroupId, Outcome};

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardsReport {
    /// Files read.
    pub files: usize,
    /// Rows in them.
    pub rows: usize,
    /// Episodes in them.
    pub episodes: usize,
    /// Tokens with mask 1 in rows that are not dropped.
    pub trained: u64,
    /// What the call logs beside them account for; `None` where there are none.
    pub accounts: Option<Accounts>,
    /// What became of the episodes; `None` where there is no ledger.
    pub consumption: Option<Consumption>,
    /// Trials that ended and have no row yet: the run goes on, or was cut off and samples them again.
    pub unwritten: usize,
    /// What is wrong, each with its place: the first `MOST_FAULTS` of it.
    pub faults: Vec<String>,
    /// How much more is.
    pub more_faults: usize,
}

/// Faults that are told one by one.
const MOST_FAULTS: usize = 100;

impl ShardsReport {
    fn fault(&mut self, fault: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        } else {
            self.more_faults += 1;
        }
    }
}

/// Reads all shards of a folder (a run directory's are below `rollouts`), and the call logs beside them: of the run,
/// or of the proxy that was run by hand (`calls`). In an object store (a URL, or where a run meets its rollouters) there
/// are shards alone: the logs are with the rollouters.
///
/// # Errors
/// Where there is nothing to read; what is wrong with what is there is in the report.
pub async fn look_at_shards(place: &Path) -> Result<ShardsReport, ShardError> {
    let run = run_of(place);
    let shards = match &run {
        Some(run) => run.rows().map_err(|error| ShardError::Place {
            place: run.path().display().to_string(),
            reason: error.to_string(),
        })?,
        None => place.display().to_string(),
    };
    let in_store = shards.contains("://");
    let reader = ShardReader::open_places(&[shards]).await?;
    let mut report = ShardsReport::default();
    let mut rows: Vec<Row> = Vec::new();
    for file in reader.files() {
        match reader.read(file).await {
            Ok((_, more)) => rows.extend(more),
            Err(error) => report.fault(error.to_string()),
        }
    }
    report.files = reader.files().len();
    report.rows = rows.len();
    let sorted = sort_rows(rows);
    for fault in sorted.faults {
        report.fault(fault.to_string());
    }
    report.episodes = sorted.episodes.len() + sorted.faulty.len();
    let log_of = |step: i32, group: &GroupId, trial: &str, task: &str| match &run {
        Some(run) => {
            let step = u64::try_from(step).unwrap_or_default();
            run.trial(step, group.is_validation(), trial).join("calls.jsonl")
        }
        None => captured_log(place, trial, task),
    };
    let mut known = HashMap::new();
    let mut sampled = Vec::new();
    for row in sorted.faulty {
        sampled.push(Sampled {
            episode: EpisodeId(row.episode_id.clone()),
            group: GroupId(row.group_id.clone()),
            cut_off: row.outcome == Outcome::Cancelled.name(),
        });
        let log = log_of(row.step, &GroupId(row.group_id), &row.trial_name, &row.task_id);
        known.insert(log, Rows::Faulty);
    }
    for episode in sorted.episodes {
        sampled.push(Sampled {
            episode: episode.episode_id.clone(),
            group: episode.group_id.clone(),
            cut_off: episode.outcome == Outcome::Cancelled,
        });
        if episode.drop_reason.is_none() {
            report.trained += trained(&episode.segments);
        }
        let log = log_of(episode.step, &episode.group_id, &episode.trial_name, &episode.task_id);
        let rows = Rows::Sound {
            segments: episode.segments,
            drop_reason: episode.drop_reason,
        };
        known.insert(log, rows);
    }
    // A run that trains on shards of elsewhere has none of its own.
    let own = run.as_ref().filter(|_| report.files > 0);
    if let Some((consumption, faults)) = own.and_then(|run| Consumption::of(run, &sampled)) {
        report.consumption = Some(consumption);
        for fault in faults {
            report.fault(fault);
        }
    }
    match &run {
        _ if in_store => {}
        Some(run) => account(run, &known, &mut report)?,
        None => account_for_captured(place, &known, &mut report)?,
    }
    Ok(report)
}

/// The log of the session that an episode of a proxy run by hand comes from.
fn captured_log(place: &Path, trial: &str, task: &str) -> PathBuf {
    let session = trial
        .strip_prefix(task)
        .and_then(|rest| rest.strip_prefix("__"))
        .unwrap_or(trial);
    place.join("calls").join(format!("{session}.jsonl"))
}

/// What `lego serve-proxy --capture` leaves: sessions without rows were never finished.
fn account_for_captured(
    place: &Path,
    known: &HashMap<PathBuf, Rows>,
    report: &mut ShardsReport,
) -> Result<(), ShardError> {
    let logs = captured_logs(&place.join("calls"))?;
    if logs.is_empty() {
        return Ok(());
    }
    let mut accounts = Accounts::default();
    // Logs of earlier versions do not say how their calls were made rows.
    let earlier = (CaptureScope::default(), BuilderName::default());
    for log in &logs {
        if !known.contains_key(log) {
            let name = log.file_stem().unwrap_or_default();
            accounts.unfinished_sessions.push(name.to_string_lossy().into_owned());
        }
        add(&mut accounts, log, known, earlier, report);
    }
    let mut without: Vec<&PathBuf> = known.keys().filter(|log| !logs.contains(log)).collect();
    without.sort();
    for log in without {
        report.fault(format!("{}: the call log of an episode is missing", log.display()));
    }
    report.accounts = Some(accounts);
    Ok(())
}

/// Accounts for one log.
fn add(
    accounts: &mut Accounts,
    log: &Path,
    known: &HashMap<PathBuf, Rows>,
    otherwise: (CaptureScope, BuilderName),
    report: &mut ShardsReport,
) {
    match accounts.add(log, known.get(log), otherwise) {
        Ok(differences) => differences.into_iter().for_each(|difference| report.fault(difference)),
        Err(error) => report.fault(error.to_string()),
    }
}

fn account(run: &RunDir, known: &HashMap<PathBuf, Rows>, report: &mut ShardsReport) -> Result<(), ShardError> {
    // A training run's validation has shards of its own, in another folder.
    let validation = known.keys().any(|log| is_of_validation(log));
    let logs = call_logs(&run.trials(), |step| validation || !RunDir::holds_validation(step))?;
    if logs.is_empty() {
        return Ok(());
    }
    let otherwise = capture(run);
    // Until then rows wait to be written; where the process was killed, the next start samples their trials again.
    let finished = run.state().is_ok_and(|state| state.state == Phase::Finished);
    let mut accounts = Accounts::default();
    for log in &logs {
        // A trial that has its result has its rows, whatever its outcome; one that was cut off has neither.
        let ended = log.with_file_name("result.json").is_file();
        if ended && !known.contains_key(log) && !finished {
            report.unwritten += 1;
        } else if ended && !known.contains_key(log) {
            report.fault(format!(
                "{}: the trial ended, and no row of it is in the shards",
                log.display()
            ));
        }
        add(&mut accounts, log, known, otherwise, report);
    }
    report.accounts = Some(accounts);
    Ok(())
}

fn is_of_validation(log: &Path) -> bool {
    let step = log.ancestors().nth(2).and_then(Path::file_name);
    step.is_some_and(|name| RunDir::holds_validation(&name.to_string_lossy()))
}

/// The run that a folder is, or whose rollouts it holds.
fn run_of(place: &Path) -> Option<RunDir> {
    RunDir::open(place).ok().or_else(|| {
        let absolute = std::path::absolute(place).ok()?;
        let run = RunDir::open(absolute.parent()?).ok()?;
        (run.rollouts() == absolute).then_some(run)
    })
}

/// How the run made rows of calls.
fn capture(run: &RunDir) -> (CaptureScope, BuilderName) {
    #[derive(Default, serde::Deserialize)]
    #[serde(default)]
    struct Written {
        capture: crate::config::CaptureSection,
    }
    let text = fs_err::read_to_string(run.config()).unwrap_or_default();
    let written: Written = toml::from_str(&text).unwrap_or_default();
    (written.capture.train, written.capture.builder)
}
