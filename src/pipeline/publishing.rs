//! `lego train --publish`: the trainer's side alone. Rollouters in other processes sample; both meet in a folder or bucket.

use std::io::Write as _;
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
use crate::run_dir::RunDir;
use crate::task::write_atomically;
use crate::train::checkpoint::PublishedWeights;
use crate::trajectory::TrialId;

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

/// A name of the run that no other has, also none that is in the same folder later.
fn own_name(dir: &RunDir) -> Result<String, PipelineError> {
    let path = dir.path().join("publishes_as");
    match fs_err::read_to_string(&path) {
        Ok(name) => Ok(name),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let name = TrialId::fresh().0;
            write_atomically(&path, |file| Ok::<_, PipelineError>(file.write_all(name.as_bytes())?))?;
            Ok(name)
        }
        Err(error) => Err(error.into()),
    }
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
    let run_name = own_name(&run.dir)?;
    let before = meeting.published().await?;
    if let Some(other) = before.as_ref().filter(|before| before.run != run_name) {
        return Err(PipelineError::Config(format!(
            "{} is where another run published (it came to step {}): its groups are not those of {}. Name another place, or, \
             where that run is not wanted any more, remove this one",
            meeting.place(),
            other.step,
            run.dir.path().display()
        )));
    }
    run.dir.note_place(meeting.place(), meeting.folder())?;
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
        beat: before.map_or(0, |before| before.beat) + 1,
        run: run_name,
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
    let policy = run.shard_policy(config)?;
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
