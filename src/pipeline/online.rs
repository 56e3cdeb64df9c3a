//! Online training, synchronous: generate, verify, update, publish, in lockstep.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::blocking::blocking;
use super::evaluation::{Evaluation, evaluate};
use super::first::First;
use super::generate::generate;
use super::lineage::{eval_writer, trainer_writer};
use super::meter;
use super::run::{OpenRun, RunEnd};
use super::sampled::{Durable, Sampled, refuse_failed, take_silent_groups};
use super::stack::{Stack, StackOptions, Work};
use super::updating::{settle, tell_of_mismatch, tell_of_skip, updater};
use super::{Phase, PipelineError, PipelineEvent, PipelineObserver, TaskEntry, TaskOrder, TaskSet, plans};
use crate::config::{Loaded, RunConfig};
use crate::metrics::StepMetrics;
use crate::rollout::TrialPlan;
use crate::shard::{ShardWriter, WriterOptions};
use crate::train::{StepReport, Updater};
use crate::trajectory::Episode;

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

/// Trains until the last step, or until it is asked to stop.
pub async fn train_online(job: OnlineJob) -> Result<RunEnd, PipelineError> {
    let observer = Arc::clone(&job.observer);
    let (loaded, fresh) = (job.loaded.clone(), job.fresh);
    let mut run = blocking(move || OpenRun::open(&loaded, fresh, &observer)).await??;
    let ended = Online::start(&job, &run).await;
    let result = match ended {
        Ok(online) => {
            let result = online.steps(&job, &mut run).await;
            online.stack.close().await;
            result
        }
        Err(error) => Err(error),
    };
    run.conclude(result)
}

/// What stays the same over the steps.
struct Online {
    stack: Stack,
    train: TaskSet,
    validation: Vec<TaskEntry>,
    order: TaskOrder,
    updater: Arc<Updater>,
}

impl Online {
    async fn start(job: &OnlineJob, run: &OpenRun) -> Result<Self, PipelineError> {
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

    async fn steps(&self, job: &OnlineJob, run: &mut OpenRun) -> Result<RunEnd, PipelineError> {
        let config = &job.loaded.config;
        let steps = config.train.steps;
        let mut end = run.begin(steps, &job.observer);
        let mut told_of_mismatch = false;
        if run.step == 0 && config.eval.before_train {
            let mut metrics = StepMetrics::new(0, jiff::Timestamp::now());
            if self.evaluate(job, run, 0, &mut metrics).await?.is_some() {
                run.log.append(&metrics)?;
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
            (job.observer)(PipelineEvent::Phase {
                step,
                phase: Phase::Update,
            });
            let report = self.update(run, step, sampled.episodes).await?;
            let replaced: Vec<_> = sampled.replaced.into_iter().map(|episode| episode.episode_id).collect();
            settle(run, step, &report, &replaced)?;
            run.cursor = sampled.cursor;
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
            let mut score = None;
            if due {
                if let Some(evaluation) = self.evaluate(job, run, step, &mut metrics).await? {
                    score = evaluation.headline();
                } else if job.stop.is_cancelled() {
                    // Asked to stop in mid-validation: the step is sampled again from its durable rows.
                    run.step = step - 1;
                    break;
                }
            }
            metrics.set("timing_s/step", began.elapsed().as_secs_f64());
            metrics.set("perf/time_per_step", began.elapsed().as_secs_f64());
            run.log.append(&metrics)?;
            (job.observer)(PipelineEvent::Step { step, metrics });
            if step.is_multiple_of(config.checkpoint.every) || step == steps {
                let path = run.save()?;
                if let Some((series, score)) = score {
                    run.checkpoints.record_validation(&series, u64::from(step), score)?;
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
            self.fetch_ahead(config, cursor);
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

    /// While a step is sampled, the images of the next one's tasks come.
    fn fetch_ahead(&self, config: &RunConfig, cursor: u64) {
        let next = config.rollout.groups_per_step as usize;
        let (picked, _) = self.order.take(cursor, next, &mut BTreeSet::new());
        let tasks = picked.iter().map(|&index| Arc::clone(&self.train.tasks[index].task));
        self.stack.context.fetch_ahead(tasks.collect());
    }

    fn plans(&self, config: &RunConfig, step: u32, picked: &[usize]) -> Vec<TrialPlan> {
        picked
            .iter()
            .flat_map(|&index| plans::training(config, &self.train.tasks[index], step))
            .collect()
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
