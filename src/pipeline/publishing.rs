//! `lego train --publish`: the trainer's side alone. Rollouters in other processes sample; both meet in a folder or bucket.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::asynchronous::{Elsewhere, Outlet, PublishedTo, Sides, Validations, train};
use super::blocking::blocking;
use super::group_order::GroupOrder;
use super::run::{OpenRun, RunEnd, tokenizer_dir};
use super::updating::updater;
use super::watchdog::watched;
use super::{PipelineError, PipelineEvent, PipelineObserver, TaskSet};
use crate::buffer::StalenessGate;
use crate::buffer::meeting::{Meeting, Published};
use crate::config::Loaded;
use crate::prompt::PromptBuilder;
use crate::shard::ShardMeta;
use crate::train::checkpoint::PublishedWeights;

/// A trainer whose episodes others sample.
pub struct PublishingJob {
    /// The configuration, with `async.enabled`.
    pub loaded: Loaded,
    /// Where it meets them: a folder, or the URL of a prefix of an object store.
    pub place: String,
    /// Whether an earlier run of the same name is moved aside.
    pub fresh: bool,
    /// Fires when no further step is to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// Trains on what rollouters sample until the last step, until the epochs have ended, or until it is asked to stop.
pub async fn train_publishing(mut job: PublishingJob) -> Result<RunEnd, PipelineError> {
    let (observer, _watchdog) = watched(&job.observer, job.loaded.config.run.no_progress.0);
    job.observer = observer;
    let observer = Arc::clone(&job.observer);
    let (loaded, fresh) = (job.loaded.clone(), job.fresh);
    let mut run = blocking(move || OpenRun::open(&loaded, fresh, &observer)).await??;
    let result = steps(&job, &mut run).await;
    run.conclude(result)
}

async fn steps(job: &PublishingJob, run: &mut OpenRun) -> Result<RunEnd, PipelineError> {
    let config = &job.loaded.config;
    let path = config.data.train.clone().ok_or(PipelineError::MissingKey {
        key: "data.train",
        why: "the tasks that rollouters sample, whose order says which group is which",
    })?;
    let prepared = run.dir.tasks();
    let tasks = blocking(move || TaskSet::load(&path, &prepared)).await??;
    if !config.data.val.is_empty() && (config.eval.every > 0 || config.eval.before_train) {
        (job.observer)(PipelineEvent::Warning(
            "a trainer that only publishes runs no sandboxes, so `[eval]` is not followed; validate a checkpoint with \
             `lego rollout --eval --set policy.model=…`"
                .to_owned(),
        ));
    }
    let meeting = Meeting::open(&job.place)?;
    let folder = meeting.local_weights().unwrap_or_else(|| run.dir.weights());
    let outbound = PublishedTo {
        store: PublishedWeights::open(&folder, &tokenizer_dir(config))?,
        meeting: meeting.clone(),
    };
    let version = run.version();
    outbound.publish(version, run.trainer()?.weights()).await?;
    let order = GroupOrder::new(config, &tasks);
    let first = Published {
        v: Published::VERSION,
        // Above what an earlier start may have said, so that who listens hears that it lives.
        beat: meeting.published().await?.map_or(0, |before| before.beat) + 1,
        finished: false,
        step: run.step,
        version,
        weights: PublishedWeights::name(version),
        order: order.identity(config),
        settled_step: 0,
        cursor: 0,
        settled_groups: 0,
        begin_below: 0,
    };
    let prompt = PromptBuilder::load(&tokenizer_dir(config), config.policy.chat_template.as_deref())?;
    let policy = ShardMeta {
        run_id: String::new(),
        producer: String::new(),
        tokenizer_sha256: prompt.tokenizer().sha256().to_owned(),
        template_sha256: prompt.template().sha256().to_owned(),
        vocab_size: run.trainer()?.config().vocab_size as u32,
    };
    let section = &config.r#async;
    let gate = StalenessGate::new(config.groups_per_update(), section.trigger_sync_step, section.staleness);
    let sampling = Elsewhere::begin(
        meeting,
        order,
        run.ledger.view(),
        first,
        gate.capacity(),
        policy,
        &job.observer,
    )
    .await?;
    let sides = Sides {
        config,
        stop: &job.stop,
        observer: &job.observer,
        updater: Arc::new(updater(config, Some(config.rollout.group_size as usize))?),
        outlet: Outlet::Meeting(&outbound),
    };
    let validations = Validations::never(config, run.dir.clone(), Arc::clone(&job.observer));
    train(sides, sampling, validations, run).await
}
