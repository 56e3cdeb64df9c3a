//! What trials without and with the solution say of a task, and how that is kept beside the tasks.

use std::collections::BTreeMap;
use std::path::Path;

use fs_err as fs;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PrepareError;
use crate::task::write_atomically;
use crate::trajectory::Outcome;

/// Version of validation.jsonl and invalid.jsonl.
pub(super) const VERSION: u32 = 1;
const ALL: &str = "validation.jsonl";
const INVALID: &str = "invalid.jsonl";
/// Characters of a log's end that are kept.
const TAIL: usize = 4000;

/// Why a task is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InvalidClass {
    /// Its environment does not build or start.
    EnvironmentDoesNotBuild,
    /// The patch of its tests or of its solution does not apply.
    PatchDoesNotApply,
    /// Its tests pass before anything was done.
    PassesBeforeTheFix,
    /// Its tests fail with the solution.
    OracleFails,
    /// With the solution no test of its lists ran: what runs them broke.
    TestsDidNotRun,
    /// Its tests say one thing and then another.
    Flaky,
    /// Its tests or its solution do not end in their time.
    Timeout,
    /// Its tests pass with the solution, but only where the network is reached.
    NeedsNetwork,
    /// Its tests give no reward.
    NoReward,
}

impl InvalidClass {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::EnvironmentDoesNotBuild => "environment_does_not_build",
            Self::PatchDoesNotApply => "patch_does_not_apply",
            Self::PassesBeforeTheFix => "passes_before_the_fix",
            Self::OracleFails => "oracle_fails",
            Self::TestsDidNotRun => "tests_did_not_run",
            Self::Flaky => "flaky",
            Self::Timeout => "timeout",
            Self::NeedsNetwork => "needs_network",
            Self::NoReward => "no_reward",
        }
    }
}

/// One trial, as far as it tells something of the task.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// How it ended.
    pub outcome: Outcome,
    /// Its reward, where it has a valid one.
    pub reward: Option<f32>,
    /// What went wrong.
    pub failure: Option<String>,
    /// What looks like tampering.
    pub hack_flags: Vec<String>,
    /// Seconds of its tests.
    pub verify_sec: f32,
    /// What its tests, or its solution, wrote.
    pub log: String,
    /// What became of the tests that the task lists, where it lists any.
    pub tests: Option<ListedTests>,
}

/// Of the tests that a task lists, those that did not pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedTests {
    /// Whether any test ran.
    pub ran: bool,
    /// Those that failed.
    pub failed: Vec<String>,
    /// Those that are not in the log, or were skipped.
    pub missing: Vec<String>,
}

/// A line of validation.jsonl; those with a class are in invalid.jsonl too.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ValidationRow {
    /// Version of the line.
    pub v: u32,
    /// The task.
    pub instance_id: String,
    /// Which task folder it is about: that of this content.
    pub task_checksum: String,
    /// Why it is no task; `null` where it is one.
    pub class: Option<InvalidClass>,
    /// What was seen.
    pub detail: Option<String>,
    /// Reward without the solution.
    pub nop_reward: Option<f64>,
    /// Reward with it.
    pub oracle_reward: Option<f64>,
    /// Median time of its tests, in seconds.
    pub verify_sec: Option<f64>,
    /// Trials without and with the solution; 0 where its image could not be made, so that none was run.
    pub attempts: usize,
    /// End of the log that tells most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_tail: Option<String>,
}

/// What the trials of a task say; `None` where only this machine's own failures are known, so that it is to be asked again.
///
/// `with_network` are those with the solution that reached the network, where any were run.
pub fn judge(
    instance_id: &str,
    task_checksum: &str,
    nop: &[Attempt],
    oracle: &[Attempt],
    with_network: &[Attempt],
) -> Option<ValidationRow> {
    let all = || nop.iter().chain(oracle);
    let seen = |attempt: &&Attempt| !matches!(attempt.outcome, Outcome::InfraError | Outcome::Cancelled);
    if !nop.iter().any(|attempt| seen(&attempt)) || !oracle.iter().any(|attempt| seen(&attempt)) {
        return None;
    }
    let (class, witness) = match class(nop, oracle, with_network) {
        Some((class, witness)) => (Some(class), Some(witness)),
        None => (None, None),
    };
    let mut seconds: Vec<f32> = all().map(|attempt| attempt.verify_sec).collect();
    seconds.sort_by(f32::total_cmp);
    let reward = |attempts: &[Attempt]| attempts.iter().find_map(|attempt| attempt.reward).map(f64::from);
    Some(ValidationRow {
        v: VERSION,
        instance_id: instance_id.to_owned(),
        task_checksum: task_checksum.to_owned(),
        class,
        detail: witness.map(|attempt| detail(attempt, class, oracle)),
        nop_reward: reward(nop),
        oracle_reward: reward(oracle),
        verify_sec: seconds.get(seconds.len() / 2).map(|seconds| f64::from(*seconds)),
        attempts: nop.len() + oracle.len(),
        log_tail: witness.map(|attempt| tail(&attempt.log)),
    })
}

fn class<'a>(
    nop: &'a [Attempt],
    oracle: &'a [Attempt],
    with_network: &[Attempt],
) -> Option<(InvalidClass, &'a Attempt)> {
    let all = || oracle.iter().chain(nop);
    let find = |fits: &dyn Fn(&Attempt) -> bool| all().find(|attempt| fits(attempt));
    if let Some(attempt) = find(&|attempt| attempt.outcome == Outcome::EnvSetupFailed) {
        return Some((InvalidClass::EnvironmentDoesNotBuild, attempt));
    }
    let unlike = |attempts: &'a [Attempt]| {
        let counted = attempts
            .iter()
            .filter(|attempt| !matches!(attempt.outcome, Outcome::InfraError | Outcome::Cancelled));
        let mut rewards = counted
            .clone()
            .map(|attempt| attempt.reward.map(|reward| reward >= 1.0));
        let first = rewards.next()?;
        let other = rewards.position(|reward| reward != first)?;
        counted.clone().nth(other + 1)
    };
    if let Some(attempt) = find(&|attempt| attempt.log.contains("lego: the patch of the ")) {
        return Some((InvalidClass::PatchDoesNotApply, attempt));
    }
    if let Some(attempt) = unlike(oracle).or_else(|| unlike(nop)) {
        return Some((InvalidClass::Flaky, attempt));
    }
    let out_of_time = |attempt: &Attempt| {
        attempt.outcome == Outcome::Timeout
            || attempt
                .failure
                .as_ref()
                .is_some_and(|reason| reason.contains("did not end within"))
    };
    if let Some(attempt) = find(&out_of_time) {
        return Some((InvalidClass::Timeout, attempt));
    }
    let solved = |attempt: &Attempt| attempt.reward.is_some_and(|reward| reward >= 1.0);
    if let Some(attempt) = oracle
        .iter()
        .find(|attempt| attempt.reward.is_some() && !solved(attempt))
    {
        let helped = !with_network.is_empty() && with_network.iter().all(solved);
        let class = match () {
            () if helped => InvalidClass::NeedsNetwork,
            () if never_ran(attempt) => InvalidClass::TestsDidNotRun,
            () => InvalidClass::OracleFails,
        };
        return Some((class, attempt));
    }
    if let Some(attempt) = nop.iter().find(|attempt| solved(attempt)) {
        return Some((InvalidClass::PassesBeforeTheFix, attempt));
    }
    let attempt = find(&|attempt| attempt.reward.is_none() && attempt.outcome == Outcome::VerifierError)?;
    let class = if never_ran(attempt) {
        InvalidClass::TestsDidNotRun
    } else {
        InvalidClass::NoReward
    };
    Some((class, attempt))
}

fn never_ran(attempt: &Attempt) -> bool {
    attempt.tests.as_ref().is_some_and(|tests| !tests.ran)
}

/// The first of some names, and how many more there are.
fn first(names: &[String]) -> String {
    const NAMED: usize = 3;
    let more = match names.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    names[..names.len().min(NAMED)].join(", ") + &more
}

fn detail(attempt: &Attempt, class: Option<InvalidClass>, oracle: &[Attempt]) -> String {
    let mut said = attempt.failure.clone().unwrap_or_else(|| match attempt.reward {
        Some(reward) => format!("reward {reward}"),
        None => attempt.outcome.name().to_owned(),
    });
    if class == Some(InvalidClass::TestsDidNotRun) {
        let last = attempt.log.lines().rev().find(|line| !line.trim().is_empty());
        let last = last.map_or_else(String::new, |line| format!("; the log ends with `{}`", line.trim()));
        said =
            format!("no test ran ({said}): is the command that runs them (`test_cmd`) right, and in the image?{last}");
    }
    if class == Some(InvalidClass::Flaky) {
        let earned = oracle.iter().filter(|attempt| attempt.reward >= Some(1.0)).count();
        said += &format!("; with the solution {earned} of {} trials earn 1", oracle.len());
    }
    if let Some(tests) = &attempt.tests {
        for (what, names) in [("fails", &tests.failed), ("not in the log", &tests.missing)] {
            if !names.is_empty() {
                said += &format!("; {what}: {}", first(names));
            }
        }
    }
    if class == Some(InvalidClass::OracleFails) && !attempt.hack_flags.is_empty() {
        said += &format!("; signs of tampering: {}", attempt.hack_flags.join(", "));
    }
    said
}

pub(super) fn tail(log: &str) -> String {
    let skipped = log.chars().count().saturating_sub(TAIL);
    log.chars().skip(skipped).collect()
}

/// What is known of the tasks in a folder, by id.
pub fn read_validation(folder: &Path) -> Result<BTreeMap<String, ValidationRow>, PrepareError> {
    read_lines(&folder.join(ALL), |row: &ValidationRow| row.instance_id.clone())
}

/// Writes validation.jsonl and, of it, invalid.jsonl.
pub fn write_validation(folder: &Path, rows: &BTreeMap<String, ValidationRow>) -> Result<(), PrepareError> {
    write_lines(&folder.join(ALL), rows.values())?;
    write_lines(&folder.join(INVALID), rows.values().filter(|row| row.class.is_some()))
}

/// A file of one JSON object a line, where there is one.
pub(super) fn read_lines<T: serde::de::DeserializeOwned>(
    path: &Path,
    id: impl Fn(&T) -> String,
) -> Result<BTreeMap<String, T>, PrepareError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error.into()),
    };
    let mut rows = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let row: T = serde_json::from_str(line).map_err(|error| PrepareError::Source {
            name: path.display().to_string(),
            line: at + 1,
            reason: format!("{error}; delete the file to have it made again"),
        })?;
        rows.insert(id(&row), row);
    }
    Ok(rows)
}

pub(super) fn write_lines<'a, T: Serialize + 'a>(
    path: &Path,
    rows: impl Iterator<Item = &'a T>,
) -> Result<(), PrepareError> {
    write_atomically(path, |file| {
        let mut text = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut text, row).map_err(std::io::Error::from)?;
            text.push(b'\n');
        }
        Ok::<_, PrepareError>(std::io::Write::write_all(file, &text)?)
    })
}
