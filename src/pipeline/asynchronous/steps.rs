//! The loop that joins both sides: begins groups while the gate is open, updates as soon as enough are complete.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::LocalBoxFuture;
use tokio_util::sync::CancellationToken;

use super::account::Served;
use super::groups::Groups;
use super::here::Here;
use super::rollouter::Rollouter;
use super::sampling::{CompleteGroup, Sampling, Told};
use super::update::{Done, Outlet, Work, update};
use super::validating::{Snapshot, Validations};
use crate::buffer::{GroupQueue, StalenessGate};
use crate::config::RunConfig;
use crate::metrics::StepMetrics;
use crate::pipeline::lineage::trainer_writer;
use crate::pipeline::run::{OpenRun, RunEnd};
use crate::pipeline::sampled::{refuse_failed, take_silent_groups};
use crate::pipeline::training::{Online, OnlineJob};
use crate::pipeline::{Evaluation, PipelineError, PipelineEvent, PipelineObserver};
use crate::rollout::RolloutEvent;
use crate::shard::{ShardWriter, WriterOptions};
use crate::train::Updater;
use crate::trajectory::{Episode, EpisodeId, GroupId};

/// How often rows are looked at that wait to become durable.
const TICK: Duration = Duration::from_secs(1);

/// Why the ledger drops a group that was complete.
const STALE: &str = "stale";
const SILENT: &str = "no_signal_replaced";

/// Trains until the last step, until the epochs have ended, or until it is asked to stop.
pub(in crate::pipeline) async fn steps(
    online: &Online,
    job: &OnlineJob,
    run: &mut OpenRun,
) -> Result<RunEnd, PipelineError> {
    let config = &job.loaded.config;
    let context = &online.stack.context;
    let writer = ShardWriter::new(
        &run.dir.rollouts(),
        &trainer_writer(run.lineage),
        online.stack.shard_meta.clone(),
        WriterOptions {
            flush_after: config.rollout.flush.0,
            ..WriterOptions::default()
        },
    )?;
    let required = config.groups_per_update() as usize;
    let groups = Groups::new(online, config, run.dir.clone(), required, (run.drawn_step, run.cursor));
    let sampling = Here::new(
        groups,
        Rollouter::new(context, config.sandbox.concurrency as usize, writer),
        context,
    );
    let (stop, observer) = (job.stop.clone(), Arc::clone(&job.observer));
    let validations = Validations::new(online, config, run.dir.clone(), run.lineage, stop, observer);
    let sides = Sides {
        config,
        stop: &job.stop,
        observer: &job.observer,
        updater: Arc::clone(&online.updater),
        outlet: Outlet::Engine {
            stack: &online.stack,
            partial: config.r#async.partial_rollout,
        },
    };
    train(sides, sampling, validations, run).await
}

/// Trains on the groups that come.
pub(in crate::pipeline) async fn train<S: Sampling>(
    sides: Sides<'_>,
    sampling: S,
    validations: Validations<'_>,
    run: &mut OpenRun,
) -> Result<RunEnd, PipelineError> {
    let end = run.begin(sides.config.train.steps, sides.observer);
    let mut both = Both::new(sides, sampling, validations, run, end);
    let result = both.go_on(run).await;
    // Also after a failure: finished episodes are not lost.
    both.sampling.leave(result.is_ok() && !both.end.interrupted).await?;
    result.map(|()| both.end)
}

/// What the trainer's side of a run is made of.
pub(in crate::pipeline) struct Sides<'a> {
    pub config: &'a RunConfig,
    /// Fires when no more work is to begin.
    pub stop: &'a CancellationToken,
    pub observer: &'a PipelineObserver,
    pub updater: Arc<Updater>,
    /// Where its weights go.
    pub outlet: Outlet<'a>,
}

/// An update under way.
pub(super) struct Updating<'a>(Option<LocalBoxFuture<'a, Result<Done, PipelineError>>>);

impl Updating<'_> {
    /// The update's end; never, while there is none. Safe to drop.
    async fn next(&mut self) -> Result<Done, PipelineError> {
        let Some(update) = &mut self.0 else {
            return std::future::pending().await;
        };
        let done = update.await;
        self.0 = None;
        done
    }
}

/// Both sides of a run.
pub(super) struct Both<'a, S> {
    pub(super) sides: Sides<'a>,
    pub(super) end: RunEnd,
    pub(super) required: usize,
    pub(super) sampling: S,
    pub(super) gate: StalenessGate,
    pub(super) queue: GroupQueue<CompleteGroup>,
    pub(super) updating: Updating<'a>,
    pub(super) validations: Validations<'a>,
    pub(super) served: Served,
    /// Steps whose update has begun.
    pub(super) taken: u32,
    /// Groups that `dynamic_sampling` may still replace before the next update.
    pub(super) extra: u32,
    pub(super) counts: Counts,
    /// Scores that wait for the line of a step.
    pub(super) ended_validations: VecDeque<StepMetrics>,
    /// The last step's score, until its checkpoint is there.
    pub(super) last_scores: Option<Evaluation>,
    /// Metrics that wait for the line of the next step.
    pub(super) next_line: StepMetrics,
    pub(super) told_of_mismatch: bool,
    pub(super) stopping: bool,
    /// The last step's line, while its validation runs.
    pub(super) last_line: Option<StepMetrics>,
    pub(super) clock: Clock,
}

#[derive(Default)]
pub(super) struct Counts {
    pub(super) generated: u64,
    pub(super) stale: u64,
}

/// Since when the step and the trainer's wait go on.
pub(super) struct Clock {
    pub(super) step: Instant,
    pub(super) idle: Option<Instant>,
    pub(super) waited: f64,
}

impl<'a, S: Sampling> Both<'a, S> {
    fn new(sides: Sides<'a>, sampling: S, validations: Validations<'a>, run: &OpenRun, end: RunEnd) -> Self {
        let section = &sides.config.r#async;
        let required = sides.config.groups_per_update();
        let gate = StalenessGate::new(required, section.trigger_sync_step, section.staleness);
        let bound = section.max_queue.map_or(gate.capacity(), u64::from);
        let now = Instant::now();
        Self {
            end,
            required: required as usize,
            sampling,
            gate,
            queue: GroupQueue::new(bound as usize),
            updating: Updating(None),
            validations,
            served: Served::new(run.version()),
            taken: run.step,
            extra: sides.config.rollout.max_extra_groups,
            counts: Counts::default(),
            ended_validations: VecDeque::new(),
            last_scores: None,
            next_line: StepMetrics::default(),
            told_of_mismatch: false,
            stopping: false,
            last_line: None,
            clock: Clock {
                step: now,
                idle: Some(now),
                waited: 0.0,
            },
            sides,
        }
    }

    async fn go_on(&mut self, run: &mut OpenRun) -> Result<(), PipelineError> {
        let steps = self.sides.config.train.steps;
        if run.step == 0 && steps > 0 && self.sides.config.eval.before_train && self.validations.is_possible() {
            let (version, weights) = (run.version(), run.trainer()?.weights());
            self.validations.add(Snapshot {
                step: 0,
                version,
                weights,
            });
        }
        self.plan_next();
        loop {
            if self.sides.stop.is_cancelled() && !self.stopping {
                self.stopping = true;
                self.sampling.stop();
            }
            self.sample(run).await?;
            self.take(run)?;
            if self.is_over(run, steps) {
                break;
            }
            let stop = self.sides.stop;
            tokio::select! {
                groups = self.sampling.next() => self.arrived(run, groups?)?,
                done = self.updating.next() => self.updated(run, done?)?,
                scored = self.validations.next() => self.scored(run, scored?)?,
                () = stop.cancelled(), if !self.stopping => {}
                () = tokio::time::sleep(TICK) => {}
            }
            self.sampling.flush(false)?;
        }
        if let Some(metrics) = self.last_line.take() {
            if self.stopping && self.validations.is_busy() {
                // Asked to stop in mid-validation: the step trains again on its durable rows.
                run.step -= 1;
            } else {
                let step = metrics.step as u32;
                self.write(run, metrics)?;
                self.checkpoint(run)?;
                if let Some(evaluation) = self.last_scores.take() {
                    run.record(step, &evaluation)?;
                }
            }
        } else if self.stopping {
            // What was trained on since the last one need not train again.
            self.sampling.flush(true)?;
            (run.drawn_step, run.cursor) = self.sampling.settled();
            self.end.checkpoint = run.save_last()?.or(self.end.checkpoint.take());
        }
        self.end.step = run.step;
        self.end.interrupted = run.step < steps && self.stopping;
        Ok(())
    }

    fn is_over(&self, run: &OpenRun, steps: u32) -> bool {
        if self.updating.0.is_some() {
            return false;
        }
        if self.stopping {
            return !self.sampling.is_running();
        }
        if run.step >= steps {
            return !self.validations.is_busy();
        }
        self.sampling.is_exhausted()
            && self.sampling.open_groups() == 0
            && self.queue.is_empty()
            && !self.validations.is_busy()
    }

    /// Begins groups while the gate is open and there is room for their trials.
    async fn sample(&mut self, run: &mut OpenRun) -> Result<(), PipelineError> {
        while !self.stopping
            && self.sampling.has_room()
            && self.gate.is_open()
            && !self.queue.is_full()
            && self.is_wanted()
        {
            let Some(complete) = self.sampling.draw(run.ledger.view()).await? else {
                break;
            };
            self.gate.begin();
            if let Some(complete) = complete {
                self.completed(run, complete)?;
            }
        }
        self.sampling.go();
        Ok(())
    }

    /// Tells those who sample elsewhere how far they may go.
    pub(super) fn tell(&mut self, step: u32) {
        self.sampling.tell(Told {
            step,
            version: self.served.last(),
            released: self.gate.released(),
        });
    }

    /// Whether a group more would be trained on before the last step.
    fn is_wanted(&self) -> bool {
        let left = self.sides.config.train.steps.saturating_sub(self.taken) as usize * self.required;
        self.queue.len() + self.sampling.open_groups() < left
    }

    fn arrived(&mut self, run: &mut OpenRun, groups: Vec<CompleteGroup>) -> Result<(), PipelineError> {
        for group in groups {
            if self.sampling.is_elsewhere() {
                self.gate.begin();
            }
            self.completed(run, group)?;
        }
        Ok(())
    }

    fn completed(&mut self, run: &mut OpenRun, mut group: CompleteGroup) -> Result<(), PipelineError> {
        self.counts.generated += 1;
        if self.sides.config.rollout.dynamic_sampling && self.extra > 0 {
            let silent = take_silent_groups(&mut group.episodes, 1);
            if !silent.is_empty() {
                self.extra -= 1;
                return self.drop_group(run, &group.id, &silent, SILENT);
            }
        }
        if let Some(oldest) = self.queue.push(group) {
            self.counts.stale += 1;
            self.drop_group(run, &oldest.id, &oldest.episodes, STALE)?;
        }
        Ok(())
    }

    fn drop_group(
        &mut self,
        run: &mut OpenRun,
        id: &GroupId,
        episodes: &[Episode],
        reason: &str,
    ) -> Result<(), PipelineError> {
        let ids: Vec<EpisodeId> = episodes.iter().map(|episode| episode.episode_id.clone()).collect();
        // What the ledger knows is on disk. It is of the last complete step: a checkpoint that is written later, and knows
        // the group as settled, must not void it.
        self.sampling.flush(true)?;
        run.ledger.drop_episodes(u64::from(run.step), &ids, reason)?;
        self.gate.dropped(1);
        self.sampling.settle(std::slice::from_ref(id), run.ledger.view());
        self.tell(run.step);
        Ok(())
    }

    /// Begins an update where the trainer is free and enough groups are complete.
    fn take(&mut self, run: &mut OpenRun) -> Result<(), PipelineError> {
        let steps = self.sides.config.train.steps;
        let no_more = self.sampling.is_exhausted() && self.sampling.open_groups() == 0;
        let enough = self.queue.len() >= self.required || no_more && !self.queue.is_empty();
        if self.updating.0.is_some() || self.stopping || self.taken >= steps || !enough {
            return Ok(());
        }
        let taken = self.queue.take(self.required);
        // A row is durable before it trains.
        self.sampling.flush(true)?;
        let groups = taken.iter().map(|group| group.id.clone()).collect();
        let mut episodes: Vec<Episode> = taken.into_iter().flat_map(|group| group.episodes).collect();
        // The order of arrival depends on the machine; the update must not.
        episodes.sort_by(|a, b| a.episode_id.cmp(&b.episode_id));
        self.taken += 1;
        let step = self.taken;
        refuse_failed(&episodes, &format!("step {step}"))?;
        self.extra = self.sides.config.rollout.max_extra_groups;
        self.clock.waited = self
            .clock
            .idle
            .take()
            .map_or(0.0, |since| since.elapsed().as_secs_f64());
        self.served.measure(&mut self.next_line, &episodes);
        let trigger = self.sides.config.r#async.trigger_sync_step;
        let is_last = step == steps;
        let work = Work {
            step,
            episodes,
            groups,
            publish: is_last || step.is_multiple_of(trigger),
            served: self.served.last(),
            validate: self.validations.is_possible() && self.is_due(step),
        };
        let (updater, outlet) = (Arc::clone(&self.sides.updater), self.sides.outlet);
        let updating = update(updater, outlet, run.lend()?, work, self.sides.observer);
        self.updating = Updating(Some(Box::pin(updating)));
        self.plan_next();
        Ok(())
    }

    /// Tells how many trials the next update waits for.
    fn plan_next(&self) {
        let trials = self.required * self.sides.config.rollout.group_size as usize;
        (self.sides.observer)(PipelineEvent::Rollout(RolloutEvent::Planned { trials }));
    }

    pub(super) fn is_due(&self, step: u32) -> bool {
        let every = self.sides.config.eval.every;
        every > 0 && (step.is_multiple_of(every) || step == self.sides.config.train.steps)
    }
}
