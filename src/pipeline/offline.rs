//! `lego train --shards`: training from files alone.

use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::blocking::blocking;
use super::meter;
use super::run::{OpenRun, RunEnd};
use super::updating::{settle, tell_of_skip, updater};
use super::{Phase, PipelineError, PipelineEvent, PipelineObserver};
use crate::config::Loaded;
use crate::metrics::StepMetrics;
use crate::shard::ShardReader;
use crate::train::{OfflinePlan, ShardEntry};
use crate::trajectory::{Episode, Ledger};

/// A run over shards.
pub struct OfflineJob {
    /// The configuration.
    pub loaded: Loaded,
    /// Files, folders or object-store URLs.
    pub shards: Vec<String>,
    /// Whether an earlier run of the same name is moved aside.
    pub fresh: bool,
    /// Fires when no further step is to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// Trains on shards until the plan or the steps end, or until it is asked to stop.
pub async fn train_from_shards(job: OfflineJob) -> Result<RunEnd, PipelineError> {
    let observer = Arc::clone(&job.observer);
    let (loaded, fresh) = (job.loaded.clone(), job.fresh);
    let mut run = blocking(move || OpenRun::open(&loaded, fresh, &observer)).await??;
    let result = steps(&job, &mut run).await;
    run.conclude(result)
}

async fn steps(job: &OfflineJob, run: &mut OpenRun) -> Result<RunEnd, PipelineError> {
    let config = &job.loaded.config;
    let policy = run.shard_policy(config)?;
    let episodes = ShardReader::open_places(&job.shards)
        .await?
        .episodes(Some(&policy))
        .await?;
    if episodes.is_empty() {
        return Err(PipelineError::Nothing(format!(
            "no episode in {}",
            job.shards.join(", ")
        )));
    }
    let without_ids = |episode: &&Episode| episode.drop_reason.as_deref() == Some(Ledger::NO_TOKEN_IDS);
    if let Some(episode) = episodes.iter().find(without_ids) {
        return Err(PipelineError::Config(format!(
            "the shards hold answers of a hosted API, such as those of `{}`: it gives no token ids, so that they can be \
             scored and read, and never train; leave out what was sampled with `engine.kind = \"openai\"`",
            episode.episode_id
        )));
    }
    if let Some(episode) = episodes.iter().find(|episode| episode.group_id.is_validation()) {
        return Err(PipelineError::Config(format!(
            "the shards hold episodes of a validation, such as `{}`: what scores the policy never trains it; leave out what \
             `lego rollout --eval` wrote",
            episode.episode_id
        )));
    }
    let updater = Arc::new(updater(config, None)?);
    let entries: Vec<ShardEntry> = episodes
        .iter()
        .map(|episode| ShardEntry {
            episode_id: episode.episode_id.clone(),
            group_id: episode.group_id.clone(),
        })
        .collect();
    let supervised = updater.settings().recipe.is_supervised();
    let plan = if supervised {
        let per_step = config.train.mini_batch.unwrap_or(config.rollout.groups_per_step) as usize;
        OfflinePlan::supervised(
            &entries,
            per_step,
            config.train.steps,
            config.data.epochs,
            config.run.seed,
        )
    } else {
        let per_step = config.rollout.groups_per_step as usize;
        OfflinePlan::reinforcement(
            &entries,
            per_step,
            config.train.steps,
            config.data.epochs,
            config.run.seed,
        )
    }
    .map_err(|error| PipelineError::Config(error.to_string()))?;
    let steps = plan.steps() as u32;
    if !config.data.val.is_empty() && (config.eval.every > 0 || config.eval.before_train) {
        (job.observer)(PipelineEvent::Warning(
            "training from shards runs no sandboxes, so `[eval]` is not followed; validate a checkpoint with \
             `lego rollout --eval --set policy.model=…`"
                .to_owned(),
        ));
    }
    let mut end = run.begin(steps, &job.observer);
    while run.step < steps && !job.stop.is_cancelled() {
        let step = run.step + 1;
        let began = Instant::now();
        (job.observer)(PipelineEvent::Phase {
            step,
            phase: Phase::Update,
        });
        let batch: Vec<Episode> = plan
            .entries(u64::from(step))
            .into_iter()
            .map(|entry| episodes[entry].clone())
            .collect();
        let mut metrics = StepMetrics::new(u64::from(step), jiff::Timestamp::now());
        let working = Arc::clone(&updater);
        let report = run
            .with_trainer(move |trainer, critic| working.step_with_critic(trainer, critic, u64::from(step), &batch))
            .await?;
        // Demonstrations are gone through again and again; what the ledger guards is that a reward counts once.
        if !supervised {
            settle(run, step, &report, &[])?;
        }
        meter::update(&mut metrics, &report);
        tell_of_skip(step, &report, &job.observer);
        metrics.set("timing_s/step", began.elapsed().as_secs_f64());
        run.step = step;
        run.log_step(&mut metrics)?;
        (job.observer)(PipelineEvent::Step { step, metrics });
        if step.is_multiple_of(config.checkpoint.every) || step == steps {
            let path = run.save()?;
            end.checkpoint = Some(path.clone());
            (job.observer)(PipelineEvent::Checkpoint(path));
        }
    }
    end.step = run.step;
    end.interrupted = run.step < steps && job.stop.is_cancelled();
    if end.interrupted && end.step > 0 {
        end.checkpoint = Some(run.save()?);
    }
    Ok(end)
}
