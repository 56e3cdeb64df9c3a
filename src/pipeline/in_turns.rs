//! Online training in turns: generate, verify, update, publish, in lockstep.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::evaluation::{Evaluation, evaluate};
use super::generate::generate;
use super::lineage::{eval_writer, trainer_writer};
use super::meter;
use super::run::{OpenRun, RunEnd};
use super::sampled::{Durable, Sampled, refuse_failed, take_silent_groups};
use super::training::{Online, OnlineJob};
use super::updating::{settle, tell_of_mismatch, tell_of_skip};
use super::{Phase, PipelineError, PipelineEvent};
use crate::metrics::StepMetrics;
use crate::shard::{ShardWriter, WriterOptions};
use crate::train::StepReport;
use crate::trajectory::Episode;

impl Online {
    /// Trains until the last step, or until it is asked to stop.
    pub(super) async fn steps(&self, job: &OnlineJob, run: &mut OpenRun) -> Result<RunEnd, PipelineError> {
        let config = &job.loaded.config;
        let steps = config.train.steps;
        let mut end = run.begin(steps, &job.observer);
        let mut told_of_mismatch = false;
        if run.step == 0 && config.eval.before_train {
            let mut metrics = StepMetrics::new(0, jiff::Timestamp::now());
            if self.evaluate(job, run, 0, &mut metrics).await?.is_some() {
                run.log_step(&mut metrics)?;
                (job.observer)(PipelineEvent::Step { step: 0, metrics });
            }
        }
        while run.step < steps && !job.stop.is_cancelled() {
            let step = run.step + 1;
            let began = Instant::now();
            (job.observer)(PipelineEvent::Phase {
                step,
                phase: Phase::Generate,
            });
            self.stack.sampling_begins();
            let Some(sampled) = self.sample(job, run, step).await? else {
                break;
            };
            let mut metrics = StepMetrics::new(u64::from(step), jiff::Timestamp::now());
            meter::rollout(
                &mut metrics,
                &sampled.episodes,
                began.elapsed().as_secs_f64(),
                config.sandbox.concurrency,
            );
            self.stack.engine_figures(&mut metrics);
            (job.observer)(PipelineEvent::Phase {
                step,
                phase: Phase::Update,
            });
            let report = self.update(run, step, sampled.episodes).await?;
            let replaced: Vec<_> = sampled.replaced.into_iter().map(|episode| episode.episode_id).collect();
            settle(run, step, &report, &replaced)?;
            run.cursor = sampled.cursor;
            run.drawn_step = step;
            meter::update(&mut metrics, &report);
            tell_of_skip(step, &report, &job.observer);
            if let Some(warning) = tell_of_mismatch(step, &report.metrics, &config.engine).filter(|_| !told_of_mismatch)
            {
                told_of_mismatch = true;
                (job.observer)(PipelineEvent::Warning(warning));
            }
            (job.observer)(PipelineEvent::Phase {
                step,
                phase: Phase::Publish,
            });
            let publishing = Instant::now();
            if report.updates > 0 {
                self.stack.publish(run.version(), run.trainer()?.weights()).await?;
            }
            metrics.set("timing_s/sync_weights", publishing.elapsed().as_secs_f64());
            run.step = step;
            let due = config.eval.every > 0 && (step.is_multiple_of(config.eval.every) || step == steps);
            let mut scores = None;
            if due {
                if let Some(evaluation) = self.evaluate(job, run, step, &mut metrics).await? {
                    scores = Some(evaluation);
                } else if job.stop.is_cancelled() {
                    // Asked to stop in mid-validation: the step is sampled again from its durable rows.
                    run.step = step - 1;
                    break;
                }
            }
            metrics.set("timing_s/step", began.elapsed().as_secs_f64());
            metrics.set("perf/time_per_step", began.elapsed().as_secs_f64());
            run.log_step(&mut metrics)?;
            (job.observer)(PipelineEvent::Step { step, metrics });
            if step.is_multiple_of(config.checkpoint.every) || step == steps {
                let path = run.save()?;
                if let Some(evaluation) = scores {
                    run.record(step, &evaluation)?;
                }
                end.checkpoint = Some(path.clone());
                (job.observer)(PipelineEvent::Checkpoint(path));
            }
        }
        end.step = run.step;
        end.interrupted = run.step < steps && job.stop.is_cancelled();
        Ok(end)
    }

    /// The step's episodes, those that an earlier start left on disk among them; `None` where the epochs have
    /// ended or no more work is to begin.
    async fn sample(&self, job: &OnlineJob, run: &OpenRun, step: u32) -> Result<Option<Sampled>, PipelineError> {
        let config = &job.loaded.config;
        let mut writer = ShardWriter::new(
            &run.dir.rollouts(),
            &trainer_writer(run.lineage),
            self.stack.shard_meta.clone(),
            WriterOptions {
                flush_after: config.rollout.flush.0,
                ..WriterOptions::default()
            },
        )?;
        let mut durable = Durable::of_step(&run.dir, step).await?;
        let mut cursor = run.cursor;
        let mut sampled = Sampled {
            episodes: Vec::new(),
            replaced: Vec::new(),
            cursor,
        };
        let mut taken = BTreeSet::new();
        let mut wanted = config.rollout.groups_per_step as usize;
        let mut extra = config.rollout.max_extra_groups as usize;
        while wanted > 0 {
            let (picked, after) = self.order.take(cursor, wanted, &mut taken);
            if picked.is_empty() {
                break;
            }
            cursor = after;
            self.fetch_ahead(config.rollout.groups_per_step as usize, cursor);
            let mut plans = self.plans(config, step, &picked);
            sampled.episodes.extend(durable.take(&mut plans));
            let planned = plans.len();
            let fresh = generate(
                &self.stack.context,
                plans,
                config.sandbox.concurrency as usize,
                &mut writer,
                &job.stop,
            )
            .await?;
            let short = fresh.len() < planned;
            sampled.episodes.extend(fresh);
            if short {
                return Ok(None);
            }
            wanted = 0;
            if config.rollout.dynamic_sampling && extra > 0 {
                let silent = take_silent_groups(&mut sampled.episodes, extra);
                wanted = silent
                    .iter()
                    .map(|episode| &episode.group_id)
                    .collect::<BTreeSet<_>>()
                    .len();
                extra -= wanted;
                sampled.replaced.extend(silent);
            }
        }
        refuse_failed(
            sampled.episodes.iter().chain(&sampled.replaced),
            &format!("step {step}"),
        )?;
        sampled.cursor = cursor;
        // The order of arrival depends on the machine; the update must not.
        sampled.episodes.sort_by(|a, b| a.episode_id.cmp(&b.episode_id));
        Ok((!sampled.episodes.is_empty()).then_some(sampled))
    }

    async fn update(&self, run: &mut OpenRun, step: u32, episodes: Vec<Episode>) -> Result<StepReport, PipelineError> {
        let updater = Arc::clone(&self.updater);
        run.with_trainer(move |trainer, critic| updater.step_with_critic(trainer, critic, u64::from(step), &episodes))
            .await
    }

    /// Validates the served policy; `None` where there is nothing to validate on or it was asked to stop.
    async fn evaluate(
        &self,
        job: &OnlineJob,
        run: &OpenRun,
        step: u32,
        metrics: &mut StepMetrics,
    ) -> Result<Option<Evaluation>, PipelineError> {
        (job.observer)(PipelineEvent::Phase {
            step,
            phase: Phase::Evaluate,
        });
        let mut writer = ShardWriter::new(
            &run.dir.eval(),
            &eval_writer(run.lineage),
            self.stack.shard_meta.clone(),
            WriterOptions::default(),
        )?;
        let began = Instant::now();
        let evaluation = evaluate(
            &self.stack.context,
            &job.loaded.config,
            &self.validation,
            step,
            &mut writer,
            &job.stop,
        )
        .await?;
        if let Some(evaluation) = &evaluation {
            metrics.set("timing_s/eval", began.elapsed().as_secs_f64());
            meter::evaluation(metrics, evaluation);
            (job.observer)(PipelineEvent::Evaluated {
                step,
                evaluation: evaluation.clone(),
            });
        }
        Ok(evaluation)
    }
}
