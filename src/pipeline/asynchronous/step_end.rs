//! The end of an update, and of a validation: ledger, metrics, checkpoint.

use std::time::Instant;

use super::sampling::Sampling;
use super::steps::{Both, Counts};
use super::update::Done;
use super::validating::{Scored, Snapshot};
use crate::metrics::StepMetrics;
use crate::pipeline::run::OpenRun;
use crate::pipeline::updating::{settle, tell_of_mismatch, tell_of_skip};
use crate::pipeline::{PipelineError, PipelineEvent, meter};

impl<S: Sampling> Both<'_, S> {
    pub(super) fn updated(&mut self, run: &mut OpenRun, done: Done) -> Result<(), PipelineError> {
        let step = done.step;
        run.take_back(done.lent);
        settle(run, step, &done.report, &[])?;
        self.sampling.settle(&done.groups, run.ledger.view());
        self.gate.consumed(done.groups.len() as u64);
        if let Some(version) = done.published {
            self.served.add(version);
        }
        if done.in_step {
            self.gate.published();
        }
        self.tell(step);
        tell_of_skip(step, &done.report, self.sides.observer);
        if !self.told_of_mismatch
            && let Some(warning) = tell_of_mismatch(step, &done.report.metrics, &self.sides.config.engine)
        {
            self.told_of_mismatch = true;
            (self.sides.observer)(PipelineEvent::Warning(warning));
        }
        let mut metrics = StepMetrics::new(u64::from(step), jiff::Timestamp::now());
        let seconds = self.clock.step.elapsed().as_secs_f64();
        meter::rollout(
            &mut metrics,
            &done.episodes,
            seconds,
            self.sides.config.sandbox.concurrency,
        );
        meter::update(&mut metrics, &done.report);
        metrics.set("timing_s/gen", self.clock.waited);
        metrics.set("timing_s/sync_weights", done.sync_s);
        metrics.set("timing_s/step", seconds);
        metrics.set("perf/time_per_step", seconds);
        self.account(&mut metrics, seconds);
        let now = Instant::now();
        (self.clock.step, self.clock.idle) = (now, Some(now));
        run.step = step;
        if let Some((version, weights)) = done.snapshot {
            run.checkpoints.hold(u64::from(step));
            let given_up = self.validations.add(Snapshot { step, version, weights });
            if let Some(step) = given_up {
                run.checkpoints.release(u64::from(step));
            }
        }
        let is_last = step == self.sides.config.train.steps;
        if is_last && self.validations.is_busy() {
            // The slots are the validation's from here on.
            self.sampling.stop();
            self.last_line = Some(metrics);
            return Ok(());
        }
        self.write(run, metrics)?;
        if is_last || step.is_multiple_of(self.sides.config.checkpoint.every) {
            self.checkpoint(run)?;
        }
        Ok(())
    }

    /// What both sides did during the step.
    fn account(&mut self, metrics: &mut StepMetrics, seconds: f64) {
        metrics.extend(&std::mem::take(&mut self.next_line));
        let idle = if seconds > 0.0 {
            (self.clock.waited / seconds).min(1.0)
        } else {
            0.0
        };
        let mut set = |name: &str, value: f64| metrics.set(format!("fully_async/{name}"), value);
        set("trainer/idle_ratio", idle);
        if let Some(ratio) = self.sampling.idle_ratio() {
            set("rollouter/idle_ratio", ratio);
        }
        set("count/generated_samples", self.counts.generated as f64);
        set("count/dropped_stale_samples", self.counts.stale as f64);
        set("count/staleness_samples", self.gate.ahead() as f64);
        set("count/staleness_bound", self.gate.capacity() as f64);
        set("count/queued_samples", self.queue.len() as f64);
        set("count/active_samples", self.sampling.open_groups() as f64);
        set("count/cut_validations", self.validations.cut as f64);
        (self.counts, self.validations.cut) = (Counts::default(), 0);
    }

    pub(super) fn write(&mut self, run: &mut OpenRun, mut metrics: StepMetrics) -> Result<(), PipelineError> {
        // Of validations that ended meanwhile one a line; the last line has its own.
        if let Some(ended) = self.ended_validations.pop_front() {
            metrics.extend(&ended);
        }
        run.log.append(&metrics)?;
        let step = metrics.step as u32;
        (self.sides.observer)(PipelineEvent::Step { step, metrics });
        Ok(())
    }

    pub(super) fn checkpoint(&mut self, run: &mut OpenRun) -> Result<(), PipelineError> {
        (run.drawn_step, run.cursor) = self.sampling.settled();
        let path = run.save()?;
        self.end.checkpoint = Some(path.clone());
        (self.sides.observer)(PipelineEvent::Checkpoint(path));
        Ok(())
    }

    /// A validation's scores go into the line of the step during which it ends.
    pub(super) fn scored(&mut self, run: &mut OpenRun, scored: Scored) -> Result<(), PipelineError> {
        let step = scored.step;
        run.checkpoints.release(u64::from(step));
        let Some(evaluation) = scored.evaluation else {
            return Ok(());
        };
        let mut metrics = StepMetrics::new(u64::from(step), jiff::Timestamp::now());
        meter::evaluation(&mut metrics, &evaluation);
        metrics.set("timing_s/eval", scored.seconds);
        if !self.validations.are_exact() {
            let span = self.served.last().update.saturating_sub(scored.version.update);
            metrics.set("val/version_span", span as f64);
        }
        let is_last = self.last_line.as_ref().is_some_and(|line| line.step == u64::from(step));
        if is_last {
            // Its checkpoint is written when it has ended.
            self.last_scores = Some(evaluation.clone());
        } else {
            run.record(step, &evaluation)?;
        }
        (self.sides.observer)(PipelineEvent::Evaluated { step, evaluation });
        if step == 0 && run.step == 0 {
            run.log.append(&metrics)?;
            (self.sides.observer)(PipelineEvent::Step { step, metrics });
        } else if is_last {
            self.ended_validations.push_front(metrics);
        } else {
            metrics.set("val/of_step", f64::from(step));
            self.ended_validations.push_back(metrics);
        }
        Ok(())
    }
}
