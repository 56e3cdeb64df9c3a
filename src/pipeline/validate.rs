//! Are these tasks tasks? Every one is tried without its solution and with it, several times, without a network.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use tokio_util::sync::CancellationToken;

use super::collect::{Check, CollectEnd, CollectJob, collect};
use super::tasks::work_folder;
use super::{PipelineError, PipelineObserver, StackOptions};
use crate::config::{BackendName, Loaded};
use crate::prepare::{Attempt, InvalidClass, ListedTests, ValidationRow, judge, read_validation, write_validation};
use crate::run_dir::RunDir;
use crate::task::{IndexRow, NetworkMode};
use crate::trajectory::Episode;
use crate::verifier::{Report, Tally};

/// Bytes of a log that are looked at, from its end.
const LOG: u64 = 64 << 10;
/// Folder of the trials, below that of the tasks.
const WORK: &str = ".validate";

/// Tasks to validate.
pub struct ValidateJob {
    /// Where and how they run; what is said of agent and model there does not count.
    pub loaded: Loaded,
    /// Folder of the tasks, where what is found is kept.
    pub tasks: PathBuf,
    /// The tasks: with absolute paths and checksums.
    pub rows: Vec<IndexRow>,
    /// Times that each is tried without its solution, and with it.
    pub repeats: u32,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more trials are to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ValidateEnd {
    /// Tasks that were looked at now.
    pub tried: usize,
    /// Tasks that were known already.
    pub known: usize,
    /// Tasks that are tasks.
    pub valid: usize,
    /// The others.
    pub invalid: BTreeMap<InvalidClass, usize>,
    /// Tasks of which nothing could be found out here; the same command tries them again.
    pub unknown: Vec<String>,
    /// Whether it was asked to stop before all trials had run.
    pub interrupted: bool,
}

/// Tries all tasks of which nothing is known yet, and keeps what was found in validation.jsonl and invalid.jsonl.
pub async fn validate(job: ValidateJob) -> Result<ValidateEnd, PipelineError> {
    let mut known = read_validation(&job.tasks)?;
    // What a build says counts where sandboxes are made of images.
    let images = job.loaded.config.sandbox.backend != BackendName::Local;
    known.retain(|id, row| {
        (images || !row.is_of_build())
            && job
                .rows
                .iter()
                .any(|task| task.instance_id == *id && task.task_checksum.as_ref() == Some(&row.task_checksum))
    });
    let open: Vec<IndexRow> = job
        .rows
        .iter()
        .filter(|row| !known.contains_key(&row.instance_id))
        .cloned()
        .collect();
    let mut end = ValidateEnd {
        tried: open.len(),
        known: known.len(),
        ..ValidateEnd::default()
    };
    if !open.is_empty() {
        let (work, index) = work_folder(&job.tasks.join(WORK), &job.repeats.to_string(), &open)?;
        let nop = round(&job, &work, &index, "nop", NetworkMode::NoNetwork, None).await?;
        let oracle = match &nop {
            Some(_) => round(&job, &work, &index, "oracle", NetworkMode::NoNetwork, None).await?,
            None => None,
        };
        let (Some(nop), Some(oracle)) = (nop, oracle) else {
            end.interrupted = true;
            return Ok(end);
        };
        let none: Vec<Attempt> = Vec::new();
        let of = |attempts: &BTreeMap<String, Vec<Attempt>>, id: &str| attempts.get(id).cloned().unwrap_or_default();
        let row_of = |row: &IndexRow, with_network: &[Attempt]| {
            let sum = row.task_checksum.clone().unwrap_or_default();
            judge(
                &row.instance_id,
                &sum,
                &of(&nop, &row.instance_id),
                &of(&oracle, &row.instance_id),
                with_network,
            )
        };
        let mut found: Vec<ValidationRow> = open.iter().filter_map(|row| row_of(row, &none)).collect();
        let failing: Vec<String> = found
            .iter()
            .filter(|row| row.class == Some(InvalidClass::OracleFails))
            .map(|row| row.instance_id.clone())
            .collect();
        if !failing.is_empty() {
            let Some(again) = round(
                &job,
                &work,
                &index,
                "oracle-network",
                NetworkMode::Public,
                Some(failing),
            )
            .await?
            else {
                end.interrupted = true;
                return Ok(end);
            };
            found = open
                .iter()
                .filter_map(|row| row_of(row, again.get(&row.instance_id).unwrap_or(&none)))
                .collect();
        }
        for row in found {
            known.insert(row.instance_id.clone(), row);
        }
        write_validation(&job.tasks, &known)?;
        // Everything is in the two files now; of tasks that are to be tried again nothing stands.
        fs_err::remove_dir_all(&work)?;
    }
    for row in &job.rows {
        match known.get(&row.instance_id) {
            None => end.unknown.push(row.instance_id.clone()),
            Some(ValidationRow { class: None, .. }) => end.valid += 1,
            Some(ValidationRow { class: Some(class), .. }) => *end.invalid.entry(*class).or_default() += 1,
        }
    }
    Ok(end)
}

/// One agent on these tasks; `None` where it was asked to stop on the way.
async fn round(
    job: &ValidateJob,
    work: &Path,
    index: &Path,
    agent: &str,
    network: NetworkMode,
    ids: Option<Vec<String>>,
) -> Result<Option<BTreeMap<String, Vec<Attempt>>>, PipelineError> {
    let mut loaded = job.loaded.clone();
    let config = &mut loaded.config;
    config.scaffold = crate::config::ScaffoldSection {
        name: agent.split('-').next().unwrap_or(agent).to_owned(),
        env: config.scaffold.env.clone(),
        ..crate::config::ScaffoldSection::default()
    };
    config.rollout.group_size = job.repeats;
    config.rollout.tail_kill = None;
    config.data.train = Some(index.to_owned());
    config.sandbox.network = Some(NetworkMode::NoNetwork);
    if network == NetworkMode::Public {
        config.sandbox.network = Some(network);
    }
    let out = work.join(agent);
    let ended = Box::pin(collect(CollectJob {
        loaded,
        out: out.clone(),
        tasks: ids,
        patches: None,
        max_failures: None,
        evaluate: false,
        check: Some(Check {
            asks_model: false,
            network: Some(network),
        }),
        stack: job.stack.clone(),
        stop: job.stop.clone(),
        observer: job.observer.clone(),
    }))
    .await?;
    let CollectEnd {
        episodes, interrupted, ..
    } = ended;
    if interrupted {
        return Ok(None);
    }
    let trials = RunDir::create(&out)?.trials().join(RunDir::trials_of(0, false));
    let mut attempts: BTreeMap<String, Vec<Attempt>> = BTreeMap::new();
    for episode in episodes {
        let attempt = attempt(&episode, &trials.join(&episode.trial_name));
        attempts.entry(episode.task_id).or_default().push(attempt);
    }
    Ok(Some(attempts))
}

/// What a trial says of its task. Shards hold no reasons; the trial's folder does.
fn attempt(episode: &Episode, folder: &Path) -> Attempt {
    let written = || {
        let text = fs_err::read_to_string(folder.join("result.json")).ok()?;
        let result: serde_json::Value = serde_json::from_str(&text).ok()?;
        result["exception_info"]["exception_message"]
            .as_str()
            .map(str::to_owned)
    };
    let logs = [
        "verifier/test-stdout.txt",
        "verifier-control/test-stdout.txt",
        "agent/oracle.log",
    ];
    let log: Vec<String> = logs.iter().filter_map(|name| end_of(&folder.join(name))).collect();
    let failure = episode.failure.clone().or_else(written);
    Attempt {
        outcome: episode.outcome,
        reward: episode.reward,
        log: if log.is_empty() {
            failure.clone().unwrap_or_default()
        } else {
            log.join("\n")
        },
        failure,
        hack_flags: episode.hack_flags.clone(),
        verify_sec: episode.timings.verify_s,
        tests: listed_tests(folder).or_else(|| counted_tests(episode)),
    }
}

/// Of a task without lists: whether its tests were counted, and how many of them ran.
fn counted_tests(episode: &Episode) -> Option<ListedTests> {
    let count = |name: &str| episode.rewards.get(name).copied();
    let ran = count("tests_passed")? + count("tests_failed")? > 0.0;
    Some(ListedTests {
        ran,
        ..ListedTests::default()
    })
}

/// What the tests' report says of those that did not pass.
fn listed_tests(folder: &Path) -> Option<ListedTests> {
    let text = fs_err::read(folder.join("verifier/report.json")).ok()?;
    let report: Report = serde_json::from_slice(&text).ok()?;
    let both = |of: fn(&Tally) -> &Vec<String>| {
        let tallies = [&report.fail_to_pass, &report.pass_to_pass];
        tallies.into_iter().flat_map(of).cloned().collect()
    };
    Some(ListedTests {
        ran: report.ran,
        failed: both(|tally| &tally.failed),
        missing: both(|tally| &tally.missing),
    })
}

pub(super) fn end_of(path: &Path) -> Option<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = fs_err::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG))).ok()?;
    let mut bytes = Vec::new();
    file.take(LOG).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned()).filter(|text| !text.trim().is_empty())
}
