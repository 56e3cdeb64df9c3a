//! Opening a run: its directory, lock, logs, ledger and the checkpoint that it goes on from.

use std::path::PathBuf;

use jiff::Timestamp;
use lego_policy::{AdamW, Trainer, Weights};

use super::blocking::blocking;
use super::settings::{changed_settings, refuse_other_run};
use super::validations::validations;
use super::{Evaluation, PipelineError, PipelineEvent, PipelineObserver, Validation, lineage, trainer};
use crate::buffer::Ledger;
use crate::config::{Loaded, RoutingReplay, RunConfig};
use crate::metrics::StepMetrics;
use crate::prompt::PromptBuilder;
use crate::run_dir::{Phase, RunDir, RunLock, RunState, StepLog, read_metrics};
use crate::shard::ShardMeta;
use crate::task::sha256_hex;
use crate::train::TrainError;
use crate::train::checkpoint::{CheckpointState, CheckpointStore};
use crate::trajectory::PolicyVersion;

/// Keys whose change makes it another run.
const IDENTITY: [&str; 6] = [
    "policy.model",
    "run.seed",
    "data.train",
    "train.lora.rank",
    "train.lora.alpha",
    "train.lora.targets",
];

/// How a run ended.
#[derive(Debug, Clone)]
pub struct RunEnd {
    /// The run directory.
    pub run_dir: PathBuf,
    /// Last step that is complete.
    pub step: u32,
    /// Steps of the run.
    pub steps: u32,
    /// Whether it was asked to stop before.
    pub interrupted: bool,
    /// Validations of the run, those of earlier starts included.
    pub validations: Vec<Validation>,
    /// The newest checkpoint.
    pub checkpoint: Option<PathBuf>,
}

/// Where the run of this configuration is kept.
pub fn run_directory(config: &RunConfig) -> PathBuf {
    config.run.dir.join(&config.run.name)
}

/// A run, open for training.
pub(super) struct OpenRun {
    pub dir: RunDir,
    /// Held as long as the run is open.
    _lock: RunLock,
    log: StepLog,
    pub ledger: Ledger,
    pub checkpoints: CheckpointStore,
    pub state: RunState,
    /// Absent only while it computes.
    trainer: Option<Trainer>,
    /// The critic of an advantage that needs one; absent too while it computes.
    critic: Option<Trainer>,
    /// Last complete step.
    pub step: u32,
    /// Tasks drawn so far, those of the steps up to `drawn_step`.
    pub cursor: u64,
    /// Steps of which every group is settled; other than `step` only where groups train out of order.
    pub drawn_step: u32,
    /// Last step that has a checkpoint.
    saved: u32,
    pub lineage: u32,
    /// The checkpoint that this start goes on from.
    resumed_from: Option<PathBuf>,
    config_digest: String,
    seed: u64,
    tokenizer: PathBuf,
}

/// Folder with the tokenizer files.
pub(super) fn tokenizer_dir(config: &RunConfig) -> PathBuf {
    config
        .policy
        .tokenizer
        .clone()
        .unwrap_or_else(|| config.policy.model.clone())
}

/// The trainer, and the critic if there is one, out of the run's hands.
pub(super) struct Lent {
    trainer: Trainer,
    critic: Option<Trainer>,
    lineage: u32,
}

impl Lent {
    /// The weights that the trainer holds.
    pub(super) fn version(&self) -> PolicyVersion {
        PolicyVersion {
            lineage: self.lineage,
            update: self.trainer.step(),
        }
    }

    /// A copy of them.
    pub(super) fn weights(&self) -> Weights {
        self.trainer.weights()
    }

    /// Computes off the threads that serve requests.
    pub(super) async fn compute<T: Send + 'static>(
        mut self,
        work: impl FnOnce(&mut Trainer, Option<&mut Trainer>) -> Result<T, TrainError> + Send + 'static,
    ) -> Result<(Self, Result<T, TrainError>), PipelineError> {
        blocking(move || {
            let result = work(&mut self.trainer, self.critic.as_mut());
            (self, result)
        })
        .await
    }
}

impl OpenRun {
    /// Opens the run's directory, or starts it; goes on from its newest complete checkpoint. With `fresh` an
    /// earlier run of the same name is moved aside first, never removed.
    pub(super) fn open(loaded: &Loaded, fresh: bool, observer: &PipelineObserver) -> Result<Self, PipelineError> {
        let config = &loaded.config;
        let path = run_directory(config);
        if fresh && path.is_dir() {
            let aside = RunDir::open(&path)?.move_aside()?;
            observer(PipelineEvent::Warning(format!(
                "the earlier run is now {}",
                aside.display()
            )));
        }
        let resolved = loaded.to_resolved_toml();
        let dir = RunDir::create(&path)?;
        let lock = dir.lock()?;
        let mut state = dir.state()?;
        refuse_other_run(&dir, &resolved, &IDENTITY)?;
        if let Some(changed) = changed_settings(&dir, &resolved) {
            observer(PipelineEvent::Warning(format!(
                "going on with other settings than before: {changed}"
            )));
        }
        dir.write_config(&resolved)?;
        let checkpoints = CheckpointStore::open(dir.checkpoints(), config.checkpoint.keep as usize)?;
        let checkpoint = checkpoints.latest()?;
        let optimizer = AdamW {
            weight_decay: config.train.weight_decay,
            ..AdamW::default()
        };
        let weights = match &checkpoint {
            // Adapters lie over the model that they began with.
            Some(checkpoint) if config.train.lora.is_none() => checkpoint.weights()?,
            _ => Weights::load(&config.policy.model)?,
        };
        let critic = trainer::critic(config, checkpoint.as_ref(), &weights, optimizer)?;
        let mut trainer = trainer::policy(config, weights, optimizer)?;
        if config.train.routing_replay != RoutingReplay::Off && trainer.config().moe.is_none() {
            return Err(PipelineError::Config(TrainError::NoExperts.to_string()));
        }
        let (step, cursor, drawn_step) = match &checkpoint {
            Some(checkpoint) => {
                checkpoint.restore(&mut trainer)?;
                let state = &checkpoint.state;
                (state.step, state.data_cursor, state.data_step.unwrap_or(state.step))
            }
            None => (0, 0, 0),
        };
        if drawn_step != step && !config.r#async.enabled {
            return Err(PipelineError::Config(format!(
                "{} was trained with `async.enabled`, and its groups are not in the order of its steps: go on with it, or \
                 start another run from {}",
                path.display(),
                checkpoint
                    .as_ref()
                    .map(|checkpoint| checkpoint.path.display().to_string())
                    .unwrap_or_default()
            )));
        }
        // The line of step 0 is the validation of the untrained policy; it stands as long as a step builds on it.
        let (log, voided) = StepLog::open(&dir, checkpoint.as_ref().map(|_| step), config.log.tensorboard)?;
        let mut ledger = Ledger::open(&dir.ledger())?;
        let again = ledger.void_after(step)?;
        // Without them, what trained would train again.
        let settled = ledger.view().updates().last().copied().unwrap_or_default();
        if settled < step {
            return Err(PipelineError::Config(format!(
                "{}: expected what steps up to {step} trained, as the checkpoint has it; found nothing behind step {settled}: the \
                 file was cut off or removed. Put it back, or start another run from the checkpoint",
                dir.ledger().display()
            )));
        }
        if !again.is_empty() || voided > 0 {
            observer(PipelineEvent::Warning(format!(
                "going on from step {step}: {voided} logged steps after it are void, their {} episodes train again",
                again.len()
            )));
        }
        let lineage = lineage::next(&dir, &state, checkpoint.as_ref())?;
        state.starts = lineage + 1;
        state.steps = Some(u64::from(config.train.steps));
        state.step = step;
        state.become_phase(Phase::Running);
        dir.write_state(&state)?;
        Ok(Self {
            dir,
            _lock: lock,
            log,
            ledger,
            checkpoints,
            state,
            trainer: Some(trainer),
            critic,
            step: step as u32,
            cursor,
            drawn_step: drawn_step as u32,
            saved: step as u32,
            lineage,
            resumed_from: checkpoint.map(|checkpoint| checkpoint.path),
            config_digest: sha256_hex(resolved.as_bytes()),
            seed: config.run.seed,
            tokenizer: tokenizer_dir(config),
        })
    }

    /// The weights that the trainer holds.
    pub(super) fn version(&self) -> PolicyVersion {
        PolicyVersion {
            lineage: self.lineage,
            update: self.trainer().map_or(0, Trainer::step),
        }
    }

    /// The trainer.
    pub(super) fn trainer(&self) -> Result<&Trainer, PipelineError> {
        self.trainer.as_ref().ok_or_else(lost)
    }

    /// What shards must say of themselves for their token ids to mean what they mean to the policy.
    pub(super) fn shard_policy(&self, config: &RunConfig) -> Result<ShardMeta, PipelineError> {
        let prompt = PromptBuilder::load(&tokenizer_dir(config), config.policy.chat_template.as_deref())?;
        Ok(ShardMeta {
            run_id: String::new(),
            producer: String::new(),
            tokenizer_sha256: prompt.tokenizer().sha256().to_owned(),
            template_sha256: prompt.template().sha256().to_owned(),
            vocab_size: self.trainer()?.config().vocab_size as u32,
        })
    }

    /// Computes with the trainer and the critic, if there is one, off the threads that serve requests.
    pub(super) async fn with_trainer<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Trainer, Option<&mut Trainer>) -> Result<T, TrainError> + Send + 'static,
    ) -> Result<T, PipelineError> {
        let lent = self.lend()?;
        let (lent, result) = lent.compute(work).await?;
        self.take_back(lent);
        Ok(result?)
    }

    /// Gives the trainer away, for a computation beside which the run goes on.
    pub(super) fn lend(&mut self) -> Result<Lent, PipelineError> {
        Ok(Lent {
            trainer: self.trainer.take().ok_or_else(lost)?,
            critic: self.critic.take(),
            lineage: self.lineage,
        })
    }

    /// Takes back what `lend` gave.
    pub(super) fn take_back(&mut self, lent: Lent) {
        self.trainer = Some(lent.trainer);
        self.critic = lent.critic;
    }

    /// Writes a line of metrics, and that the run has come so far.
    pub(super) fn log_step(&mut self, metrics: &mut StepMetrics) -> Result<(), PipelineError> {
        // A validation may have taken long since the step's own work.
        metrics.time = Timestamp::now();
        self.log.append(metrics)?;
        self.state.step = self.state.step.max(metrics.step);
        self.state.time = metrics.time;
        Ok(self.dir.write_state(&self.state)?)
    }

    /// Writes the checkpoint of the current step.
    pub(super) fn save(&mut self) -> Result<PathBuf, PipelineError> {
        let state = CheckpointState {
            schema_version: crate::train::checkpoint::STATE_VERSION,
            step: u64::from(self.step),
            version: self.version(),
            data_cursor: self.cursor,
            data_step: (self.drawn_step != self.step).then_some(u64::from(self.drawn_step)),
            ledger_seq: self.ledger.next_seq(),
            seed: self.seed,
            config_digest: self.config_digest.clone(),
            files: std::collections::BTreeMap::new(),
        };
        let saved = self
            .checkpoints
            .save(self.trainer()?, self.critic.as_ref(), state, &self.tokenizer)?;
        self.saved = self.step;
        Ok(saved.path)
    }

    /// Notes a validation's scores, so that the best checkpoint by each set is kept.
    pub(super) fn record(&mut self, step: u32, evaluation: &Evaluation) -> Result<(), PipelineError> {
        for (set, score) in evaluation.by_set() {
            self.checkpoints.record_validation(set, u64::from(step), score)?;
        }
        Ok(())
    }

    /// The same for a run that ends here, where its last step has none.
    pub(super) fn save_last(&mut self) -> Result<Option<PathBuf>, PipelineError> {
        (self.step > self.saved).then(|| self.save()).transpose()
    }

    /// Tells where the run stands, and gives what its end will say.
    pub(super) fn begin(&self, steps: u32, observer: &PipelineObserver) -> RunEnd {
        let run_dir = self.dir.path().to_owned();
        observer(PipelineEvent::Opened {
            run_dir: run_dir.clone(),
            step: self.step,
            steps,
        });
        RunEnd {
            run_dir,
            step: self.step,
            steps,
            interrupted: false,
            validations: Vec::new(),
            checkpoint: self.resumed_from.clone(),
        }
    }

    /// Writes how the run ended, and hands that on.
    pub(super) fn conclude(&mut self, result: Result<RunEnd, PipelineError>) -> Result<RunEnd, PipelineError> {
        match &result {
            Ok(end) if end.interrupted => self.close(Phase::Interrupted, None)?,
            Err(PipelineError::Stopped) => self.close(Phase::Interrupted, None)?,
            Ok(_) => self.close(Phase::Finished, None)?,
            Err(error) => self.close(Phase::Failed, Some(error.to_string()))?,
        }
        let mut end = result?;
        end.validations = validations(&read_metrics(&self.dir.metrics())?);
        Ok(end)
    }

    /// Writes how the run ended.
    fn close(&mut self, phase: Phase, message: Option<String>) -> Result<(), PipelineError> {
        self.state.step = u64::from(self.step);
        self.state.message = message;
        self.state.become_phase(phase);
        Ok(self.dir.write_state(&self.state)?)
    }
}

fn lost() -> PipelineError {
    PipelineError::Worker("the trainer was lost in a computation that panicked".to_owned())
}
