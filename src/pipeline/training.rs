//! What online training is made of, whichever way its two sides go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::blocking::blocking;
use super::first::First;
use super::run::OpenRun;
use super::stack::{Stack, StackOptions, Work};
use super::updating::updater;
use super::{PipelineError, PipelineEvent, PipelineObserver, TaskEntry, TaskOrder, TaskSet, plans};
use crate::config::{Loaded, RunConfig};
use crate::rollout::TrialPlan;
use crate::train::Updater;

/// An online run to do, or to go on with.
pub struct OnlineJob {
    /// The configuration.
    pub loaded: Loaded,
    /// Whether an earlier run of the same name is moved aside.
    pub fresh: bool,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more work is to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// What stays the same over the steps.
pub(super) struct Online {
    pub stack: Stack,
    train: TaskSet,
    pub validation: Vec<TaskEntry>,
    pub order: TaskOrder,
    pub updater: Arc<Updater>,
}

impl Online {
    pub(super) async fn start(job: &OnlineJob, run: &OpenRun) -> Result<Self, PipelineError> {
        let config = &job.loaded.config;
        let path = config.data.train.clone().ok_or(PipelineError::MissingKey {
            key: "data.train",
            why: "the tasks to train on; pass --shards to train from files alone",
        })?;
        let (prepared, val_paths) = (run.dir.tasks(), config.data.val.clone());
        let (train, validation) = blocking(move || {
            let train = TaskSet::load(&path, &prepared)?;
            let validation = val_paths
                .iter()
                .map(|path| TaskSet::load(path, &prepared))
                .collect::<Result<Vec<_>, _>>()?;
            Ok::<_, PipelineError>((train, validation))
        })
        .await??;
        for warning in train
            .warnings
            .iter()
            .chain(validation.iter().flat_map(|set| &set.warnings))
        {
            (job.observer)(PipelineEvent::Warning(warning.clone()));
        }
        let Some(sample) = train.tasks.first() else {
            return Err(PipelineError::Nothing("data.train holds no task".to_owned()));
        };
        let order = TaskOrder::new(
            train.tasks.len(),
            config.run.seed,
            config.data.shuffle,
            config.data.epochs,
        );
        let updater = Arc::new(updater(config, Some(config.rollout.group_size as usize))?);
        let first = First::Trainer {
            weights: run.trainer()?.weights(),
            version: run.version(),
            folder: run.dir.weights(),
        };
        let stack = Stack::start(
            config,
            &job.stack,
            Work {
                run_id: &run.dir.name(),
                trials: &run.dir.trials(),
                sample: &sample.task,
                keeps_patches: false,
            },
            first,
            &job.observer,
            &job.stop,
        )
        .await?;
        Ok(Self {
            stack,
            train,
            validation: validation.into_iter().flat_map(TaskSet::into_validation).collect(),
            order,
            updater,
        })
    }

    /// While a step is sampled, the images of the next one's tasks come.
    pub(super) fn fetch_ahead(&self, next: usize, cursor: u64) {
        let (picked, _) = self.order.take(cursor, next, &mut BTreeSet::new());
        let tasks = picked.iter().map(|&index| Arc::clone(&self.train.tasks[index].task));
        self.stack.context.fetch_ahead(tasks.collect());
    }

    pub(super) fn plans(&self, config: &RunConfig, step: u32, picked: &[usize]) -> Vec<TrialPlan> {
        picked
            .iter()
            .flat_map(|&index| plans::training(config, &self.train.tasks[index], step))
            .collect()
    }
}
