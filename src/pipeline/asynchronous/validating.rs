//! Validations beside sampling and updates: one at a time, of the weights of one step where the engine is in this process.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use lego_policy::Weights;
use tokio_util::sync::CancellationToken;

use crate::config::RunConfig;
use crate::pipeline::evaluation::{Evaluation, evaluate};
use crate::pipeline::lineage::eval_writer;
use crate::pipeline::training::Online;
use crate::pipeline::{PipelineError, PipelineEvent, PipelineObserver};
use crate::rollout::{Observer, RolloutEvent, TrialContext};
use crate::run_dir::RunDir;
use crate::shard::{ShardWriter, WriterOptions};
use crate::trajectory::PolicyVersion;

/// Time between two words on how a validation goes.
const TOLD_EVERY: Duration = Duration::from_secs(10);

/// Weights to validate.
pub(in crate::pipeline) struct Snapshot {
    pub step: u32,
    pub version: PolicyVersion,
    pub weights: Weights,
}

/// A validation that has ended; without a score where it was asked to stop.
pub(in crate::pipeline) struct Scored {
    pub step: u32,
    pub version: PolicyVersion,
    pub evaluation: Option<Evaluation>,
    pub seconds: f64,
}

/// The one that runs, and the one that waits for it.
pub(in crate::pipeline) struct Validations<'a> {
    /// Absent where nothing is sampled here.
    online: Option<&'a Online>,
    config: &'a RunConfig,
    dir: RunDir,
    lineage: u32,
    stop: CancellationToken,
    observer: PipelineObserver,
    running: Option<LocalBoxFuture<'a, Result<Scored, PipelineError>>>,
    waiting: Option<Snapshot>,
    /// Given up since another was due.
    pub cut: u64,
}

impl<'a> Validations<'a> {
    pub(in crate::pipeline) fn new(
        online: &'a Online,
        config: &'a RunConfig,
        dir: RunDir,
        lineage: u32,
        stop: CancellationToken,
        observer: PipelineObserver,
    ) -> Self {
        Self {
            online: Some(online),
            config,
            dir,
            lineage,
            stop,
            observer,
            running: None,
            waiting: None,
            cut: 0,
        }
    }

    /// None ever, where nothing is sampled here.
    pub(in crate::pipeline) fn never(config: &'a RunConfig, dir: RunDir, observer: PipelineObserver) -> Self {
        Self {
            online: None,
            config,
            dir,
            lineage: 0,
            stop: CancellationToken::new(),
            observer,
            running: None,
            waiting: None,
            cut: 0,
        }
    }

    /// Whether there is anything to validate on.
    pub(in crate::pipeline) fn is_possible(&self) -> bool {
        self.online.is_some_and(|online| !online.validation.is_empty())
    }

    /// Whether each is of the weights of one step, whatever is published meanwhile.
    pub(in crate::pipeline) fn are_exact(&self) -> bool {
        self.online
            .is_some_and(|online| online.stack.can_serve_beside(self.config))
    }

    /// Whether one runs or waits.
    pub(in crate::pipeline) fn is_busy(&self) -> bool {
        self.running.is_some() || self.waiting.is_some()
    }

    /// Validates these weights as soon as the one that runs has ended. One that waits already is given up;
    /// gives its step.
    pub(in crate::pipeline) fn add(&mut self, snapshot: Snapshot) -> Option<u32> {
        let step = snapshot.step;
        let given_up = self.waiting.replace(snapshot);
        if let Some(given_up) = &given_up {
            self.cut += 1;
            (self.observer)(PipelineEvent::Warning(format!(
                "step {} is not validated: the validation before it still ran when step {step} was due",
                given_up.step
            )));
        }
        self.begin();
        given_up.map(|given_up| given_up.step)
    }

    /// The next one that ends; never, while none runs. Safe to drop.
    pub(in crate::pipeline) async fn next(&mut self) -> Result<Scored, PipelineError> {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let scored = running.await;
        self.running = None;
        self.begin();
        scored
    }

    fn begin(&mut self) {
        if self.running.is_some() {
            return;
        }
        if let (Some(online), Some(snapshot)) = (self.online, self.waiting.take()) {
            let (config, dir, lineage) = (self.config, self.dir.clone(), self.lineage);
            let (stop, observer) = (self.stop.clone(), Arc::clone(&self.observer));
            self.running = Some(Box::pin(async move {
                validate(online, config, &dir, lineage, snapshot, &stop, &observer).await
            }));
        }
    }
}

/// An observer of a validation's trials. The bar on the terminal is the training trials'.
fn told_now_and_then(step: u32, observer: &PipelineObserver) -> Observer {
    let watch = Arc::clone(observer);
    let progress = Mutex::new((Instant::now(), 0, 0));
    Arc::new(move |event| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, ended, trials) = &mut *progress;
        match event {
            RolloutEvent::Planned { trials: planned } => *trials = planned,
            RolloutEvent::Finished { .. } => *ended += 1,
            RolloutEvent::Retried { .. } | RolloutEvent::ShardWritten(_) => watch(PipelineEvent::Rollout(event)),
            RolloutEvent::Started { .. } => {}
        }
        if told.elapsed() >= TOLD_EVERY {
            *told = Instant::now();
            watch(PipelineEvent::Validating {
                step,
                ended: *ended,
                trials: *trials,
            });
        }
    })
}

async fn validate(
    online: &Online,
    config: &RunConfig,
    dir: &RunDir,
    lineage: u32,
    snapshot: Snapshot,
    stop: &CancellationToken,
    observer: &PipelineObserver,
) -> Result<Scored, PipelineError> {
    let began = Instant::now();
    let Snapshot { step, version, weights } = snapshot;
    let beside = if online.stack.can_serve_beside(config) {
        Some(online.stack.beside(config, version, weights).await?)
    } else {
        None
    };
    let of = beside.as_ref().map_or(&online.stack.context, |beside| &beside.context);
    let context = Arc::new(TrialContext {
        observer: told_now_and_then(step, observer),
        ..TrialContext::clone(of)
    });
    let mut writer = ShardWriter::new(
        &dir.eval(),
        &eval_writer(lineage),
        online.stack.shard_meta.clone(),
        WriterOptions::default(),
    )?;
    let evaluation = evaluate(&context, config, &online.validation, step, &mut writer, stop).await;
    if let Some(beside) = beside {
        beside.close().await;
    }
    Ok(Scored {
        step,
        version,
        evaluation: evaluation?,
        seconds: began.elapsed().as_secs_f64(),
    })
}
