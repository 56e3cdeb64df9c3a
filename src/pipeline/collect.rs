//! `lego rollout`: trials to shards, without a trainer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use super::blocking::blocking;
use super::evaluation::{self, Evaluation};
use super::first::First;
use super::generate::generate;
use super::sampled::{Durable, refuse_failed};
use super::settings::refuse_other_run;
use super::stack::{Stack, StackOptions, Work};
use super::watchdog::watched;
use super::{PipelineError, PipelineEvent, PipelineObserver, TaskEntry, TaskSet, plans};
use crate::config::Loaded;
use crate::rollout::{RolloutEvent, RolloutSummary, TrialPlan};
use crate::run_dir::{Phase, RunDir};
use crate::scaffold::WORK_PATCH;
use crate::shard::{ShardReader, ShardWriter, WriterOptions};
use crate::task::NetworkMode;
use crate::trajectory::{Episode, Outcome};

/// Keys whose change makes it another rollout: its rows would not be what its run.toml says.
const IDENTITY: [&str; 7] = [
    "policy.model",
    "engine.served_model",
    "run.seed",
    "scaffold.name",
    "rollout.temperature",
    "rollout.top_p",
    "rollout.top_k",
];

/// Trials to run.
pub struct CollectJob {
    /// The configuration.
    pub loaded: Loaded,
    /// Folder for the shards; a rollout that is there already goes on.
    pub out: PathBuf,
    /// Ids of the tasks, or all of `data.train` (of `data.val` with `evaluate`).
    pub tasks: Option<Vec<String>>,
    /// Folder of the trials whose patches are judged again; others are not run.
    pub patches: Option<PathBuf>,
    /// Stop once more trials than this ended without a valid reward.
    pub max_failures: Option<u64>,
    /// Whether the episodes are scored and never trained on.
    pub evaluate: bool,
    /// Whether it is the tasks that are judged: trials that all failed are then no error.
    pub check: Option<Check>,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more trials are to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

impl CollectJob {
    /// Lets no further trial begin once more than `most` have ended without a valid reward.
    fn stop_after(&mut self, most: u64) {
        let (watch, failures) = (Arc::clone(&self.observer), AtomicU64::new(0));
        self.stop = self.stop.child_token();
        let stop = self.stop.clone();
        self.observer = Arc::new(move |event| {
            if let PipelineEvent::Rollout(RolloutEvent::Finished { reward: None, .. }) = &event
                && failures.fetch_add(1, Ordering::Relaxed) >= most
            {
                stop.cancel();
            }
            watch(event);
        });
    }
}

/// What tasks are tried for when it is they that are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Check {
    /// Whether the agent asks a model.
    pub asks_model: bool,
    /// What the tests reach, whatever the task says.
    pub network: Option<NetworkMode>,
}

/// What a rollout came to.
#[derive(Debug, Clone, Default)]
pub struct CollectEnd {
    /// By outcome, those of earlier starts included.
    pub summary: RolloutSummary,
    /// The shards, in order.
    pub shards: Vec<PathBuf>,
    /// The scores, with `evaluate`.
    pub evaluation: Option<Evaluation>,
    /// Trials that were there already.
    pub kept: usize,
    /// All episodes.
    pub episodes: Vec<Episode>,
    /// Whether more trials than `max_failures` ended without a valid reward.
    pub too_many_failures: bool,
    /// Whether it was asked to stop before all trials had run.
    pub interrupted: bool,
}

/// Runs every trial that the folder does not hold yet.
pub async fn collect(mut job: CollectJob) -> Result<CollectEnd, PipelineError> {
    let (observer, _watchdog) = watched(&job.observer, job.loaded.config.run.no_progress.0);
    job.observer = observer;
    if let Some(most) = job.max_failures {
        job.stop_after(most);
    }
    let dir = RunDir::create(&job.out)?;
    let _lock = dir.lock()?;
    let resolved = job.loaded.to_resolved_toml();
    let mut keys = IDENTITY.to_vec();
    if job.evaluate {
        keys.push("eval.greedy");
        // The greedy answer lies behind the samples: with more of them it would be taken for one.
        keys.extend(job.loaded.config.eval.greedy.then_some("eval.samples"));
    }
    refuse_other_run(&dir, &resolved, &keys)?;
    dir.write_config(&resolved)?;
    enter(&dir, Phase::Running, None)?;
    let result = collected(&job, &dir).await;
    let (phase, message) = match &result {
        Ok(end) if !end.interrupted && !end.too_many_failures => (Phase::Finished, None),
        Ok(_) | Err(PipelineError::Stopped) => (Phase::Interrupted, None),
        Err(error) => (Phase::Failed, Some(error.to_string())),
    };
    enter(&dir, phase, message)?;
    result
}

/// Says what the folder's rollout is doing.
fn enter(dir: &RunDir, phase: Phase, message: Option<String>) -> Result<(), PipelineError> {
    let mut state = dir.state()?;
    state.become_phase(phase);
    state.message = message;
    Ok(dir.write_state(&state)?)
}

async fn collected(job: &CollectJob, dir: &RunDir) -> Result<CollectEnd, PipelineError> {
    let config = &job.loaded.config;
    let entries = entries(job, dir).await?;
    let mut durable = Durable::of_rollout(dir).await?;
    let mut plans: Vec<TrialPlan> = entries
        .iter()
        .flat_map(|entry| {
            if job.evaluate {
                plans::validation(config, entry, 0)
            } else {
                plans::training(config, entry, 0)
            }
        })
        .collect();
    if let Some(patches) = &job.patches {
        keep_those_with_patches(&mut plans, patches, &job.observer)?;
    }
    let mut known = durable.take(&mut plans);
    known.extend(durable.rest());
    let planned = plans.len();
    let mut end = CollectEnd {
        kept: known.len(),
        episodes: known,
        ..CollectEnd::default()
    };
    if let Some(first) = plans.first() {
        let sample = Arc::clone(&first.task);
        let stack = Stack::start(
            config,
            &job.stack,
            Work {
                run_id: &dir.name(),
                trials: &dir.trials(),
                sample: &sample,
                keeps_patches: job.check.is_none(),
            },
            match job.check {
                Some(Check { asks_model: false, .. }) => First::Nobody,
                _ => First::Model,
            },
            &job.observer,
            &job.stop,
        )
        .await?;
        let name = format!("rollout{}", std::process::id());
        let options = WriterOptions {
            flush_after: config.rollout.flush.0,
            ..WriterOptions::default()
        };
        let mut writer = ShardWriter::new(&dir.rollouts(), &name, stack.shard_meta.clone(), options)?;
        let result = generate(
            &stack.context,
            plans,
            config.sandbox.concurrency as usize,
            &mut writer,
            &job.stop,
        )
        .await;
        stack.close().await;
        let fresh = result?;
        end.interrupted = fresh.len() < planned;
        end.episodes.extend(fresh);
    }
    end.episodes.sort_by(|a, b| a.episode_id.cmp(&b.episode_id));
    let failures = end.episodes.iter().filter(|episode| episode.reward.is_none()).count() as u64;
    end.interrupted &= job.max_failures.is_none_or(|most| failures <= most);
    end.too_many_failures = job.max_failures.is_some_and(|most| failures > most);
    if !end.interrupted && !end.too_many_failures && job.check.is_none() {
        refuse_failed(&end.episodes, "this rollout")?;
    }
    let unasked = |episode: &&Episode| episode.outcome == Outcome::Overlong && episode.segments.is_empty();
    let unasked = end.episodes.iter().filter(unasked).count();
    if unasked > 0 {
        (job.observer)(PipelineEvent::Warning(format!(
            "{unasked} of {} trials never asked the model: already their first prompt does not fit into the window \
             (`policy.max_model_len`, or the engine's own)",
            end.episodes.len()
        )));
    }
    end.summary = RolloutSummary::of(&end.episodes);
    end.shards = ShardReader::open(&[dir.rollouts()])?
        .files()
        .iter()
        .map(|file| PathBuf::from(file.to_string()))
        .collect();
    if job.evaluate {
        end.evaluation = Some(evaluation::scores(&end.episodes, config.eval.greedy));
    }
    Ok(end)
}

/// Leaves the trials of which there is a patch, and says which part that is.
fn keep_those_with_patches(
    plans: &mut Vec<TrialPlan>,
    patches: &Path,
    observer: &PipelineObserver,
) -> Result<(), PipelineError> {
    let planned = plans.len();
    plans.retain(|plan| patches.join(plan.name()).join(WORK_PATCH).is_file());
    if plans.is_empty() {
        return Err(PipelineError::Nothing(format!(
            "{} holds no patch of these {planned} trials: the tasks (`--tasks`, `data.val`, `data.train`) have to be those of \
             that rollout",
            patches.display()
        )));
    }
    if plans.len() < planned {
        observer(PipelineEvent::Warning(format!(
            "{} holds a patch of {} of these {planned} trials; the others are left out: they are of other tasks, or ended \
             before they left anything",
            patches.display(),
            plans.len()
        )));
    }
    Ok(())
}

async fn entries(job: &CollectJob, dir: &RunDir) -> Result<Vec<TaskEntry>, PipelineError> {
    let data = &job.loaded.config.data;
    let paths: Vec<PathBuf> = if job.evaluate && !data.val.is_empty() {
        data.val.clone()
    } else {
        data.train.iter().cloned().collect()
    };
    if paths.is_empty() {
        return Err(PipelineError::MissingKey {
            key: "data.train",
            why: "the tasks to work on",
        });
    }
    let (prepared, evaluate, observer) = (dir.tasks(), job.evaluate, Arc::clone(&job.observer));
    let ids = job.tasks.clone();
    let network = job.check.and_then(|check| check.network);
    let entries = blocking(move || {
        let mut entries = Vec::new();
        for path in &paths {
            let mut set = TaskSet::load(path, &prepared)?;
            for warning in std::mem::take(&mut set.warnings) {
                observer(PipelineEvent::Warning(warning));
            }
            if let Some(mode) = network {
                set.tests_reach(mode);
            }
            if evaluate {
                entries.extend(set.into_validation());
            } else {
                entries.extend(set.tasks);
            }
        }
        match ids {
            Some(ids) => TaskSet {
                name: String::new(),
                tasks: entries,
                warnings: Vec::new(),
            }
            .select(&ids, &paths[0]),
            None => Ok(entries),
        }
    })
    .await??;
    if entries.is_empty() {
        return Err(PipelineError::Nothing("no task".to_owned()));
    }
    Ok(entries)
}
