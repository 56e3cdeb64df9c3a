//! The trainer: gradients of policy objectives over rows of tokens, AdamW, snapshots of the weights.
//!
//! Weights and optimizer state are on the host whatever computes the gradients. A micro-batch is what one call of
//! [`Trainer::accumulate`] gets; how rows become episodes, groups or losses is not known here.

#[cfg(test)]
mod critic_tests;
mod fused;
#[cfg(test)]
mod moe_tests;
mod optimizer;
mod reference;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use crate::config::ModelConfig;
use crate::lora::{Lora, LoraSpec};
use crate::objective::{LossStats, Objective, ValueStats};
use crate::row::{LogProbs, Row, Sequence, ValueRow, check_rows, check_sequences, check_temperature, check_value_rows};
use crate::weights::{Weights, WeightsError};

pub use optimizer::AdamW;
use optimizer::Moments;

/// What computes the gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The CPU: burn's flex backend and autodiff over fused operations.
    Cpu,
    /// The CPU with burn's own operations only: several times slower; what the fused ones are checked against, and what
    /// runs on a GPU.
    CpuReference,
    /// An NVIDIA GPU by its index, through burn.
    Cuda(usize),
}

/// Why a trainer refuses.
#[derive(Debug, thiserror::Error)]
pub enum TrainerError {
    #[error("no CUDA device can be used: {reason}")]
    NoCuda { reason: String },
    #[error("row {row}: {problem}")]
    Row { row: usize, problem: String },
    #[error("`{name}` should be {expected}, found {found}")]
    Number {
        name: &'static str,
        found: f64,
        expected: &'static str,
    },
    #[error("the gradient is not finite (norm {norm}); the step was not taken and the gradients were dropped")]
    NonFiniteGradient { norm: f64 },
    #[error("these weights are not those of {expected}")]
    Head { expected: &'static str },
    #[error("weights of another shape than this trainer's: {0}")]
    OtherModel(String),
    #[error(transparent)]
    Weights(#[from] WeightsError),
    #[error("adapters: {problem}")]
    Lora { problem: String },
    #[error("{}: not these adapters: {problem}", path.display())]
    Adapters { path: PathBuf, problem: String },
    #[error("{}: not this model's optimizer state: {problem}", path.display())]
    OptimizerState { path: PathBuf, problem: String },
}

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepStats {
    /// Global L2 norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Number of steps taken so far, this one included.
    pub step: u64,
}

/// What a backend of the trainer does; inputs have been checked.
trait Gradients: Send + Sync {
    /// Other weights; with adapters, those that are merged in them and alone learn.
    fn set_weights(&mut self, weights: &Weights, lora: Option<&Lora>);
    fn log_probs(&self, sequences: &[Sequence<'_>], temperature: f32, micro_batch_tokens: usize) -> Vec<LogProbs>;
    /// Adds the gradient of `Σ coefficient · L`.
    fn accumulate(&mut self, rows: &[Row<'_>], objective: &Objective) -> LossStats;
    /// A critic's value of every response position.
    fn values(&self, sequences: &[Sequence<'_>], micro_batch_tokens: usize) -> Vec<Vec<f32>>;
    /// Adds the gradient of a critic's `Σ coefficient · loss`.
    fn accumulate_values(&mut self, rows: &[ValueRow<'_>], clip: f32) -> ValueStats;
    /// Whether each layer is run again on the way back, so that only its input need be kept.
    fn set_recompute(&mut self, recompute: bool);
    /// The accumulated gradient by slot, or by adapter; none accumulated any more.
    fn take(&mut self) -> Vec<Vec<f32>>;
}

/// Holds the weights of a policy, or of a critic, and improves them.
pub struct Trainer {
    /// As they are used: with adapters, the merged ones.
    weights: Weights,
    pub(crate) lora: Option<Lora>,
    device: Device,
    gradients: Box<dyn Gradients>,
    optimizer: AdamW,
    moments: Moments,
}

impl Trainer {
    /// A trainer over `weights` with fresh optimizer state.
    ///
    /// # Errors
    /// [`TrainerError::NoCuda`] where a GPU is asked for and cannot be had.
    pub fn new(weights: Weights, device: Device, optimizer: AdamW) -> Result<Self, TrainerError> {
        Self::build(weights, None, device, optimizer)
    }

    /// A trainer of fresh adapters over `base`, which itself never changes and is called `name` in the adapters' files. Until the
    /// first step it computes what `base` does.
    ///
    /// # Errors
    /// [`TrainerError::Lora`] where the adapters do not fit the model, else as [`Trainer::new`].
    pub fn with_adapters(
        base: Weights,
        name: &str,
        spec: LoraSpec,
        seed: u64,
        device: Device,
        optimizer: AdamW,
    ) -> Result<Self, TrainerError> {
        let lora = Lora::new(base, name, spec, seed)?;
        Self::build(lora.merged(), Some(lora), device, optimizer)
    }

    fn build(weights: Weights, lora: Option<Lora>, device: Device, optimizer: AdamW) -> Result<Self, TrainerError> {
        let gradients: Box<dyn Gradients> = match device {
            Device::Cpu => Box::new(fused::Fused::new(&weights, lora.as_ref())),
            Device::CpuReference => reference::on_cpu(&weights, lora.as_ref()),
            Device::Cuda(index) => reference::on_cuda(&weights, lora.as_ref(), index)?,
        };
        let moments = Moments::new(&trained(&weights, lora.as_ref()));
        Ok(Self {
            weights,
            lora,
            device,
            gradients,
            optimizer,
            moments,
        })
    }

    /// Has each layer run again on the way back, whatever the size of a micro-batch: its input alone is kept, and no probabilities
    /// over the vocabulary. Gradients stay the same; [`Device::Cpu`] alone follows it.
    pub fn set_recompute(&mut self, recompute: bool) {
        self.gradients.set_recompute(recompute);
    }

    /// Log-probs and entropies of every response position under `logits / temperature`, without gradients. About
    /// `micro_batch_tokens` tokens are in flight at a time.
    ///
    /// # Errors
    /// [`TrainerError::Row`] names the sequence that cannot be scored.
    pub fn log_probs(
        &self,
        sequences: &[Sequence<'_>],
        temperature: f32,
        micro_batch_tokens: usize,
    ) -> Result<Vec<LogProbs>, TrainerError> {
        self.check_head(false)?;
        check_temperature(temperature)?;
        check_sequences(sequences, self.weights.config())?;
        Ok(self.gradients.log_probs(sequences, temperature, micro_batch_tokens))
    }

    /// Adds the gradient of one micro-batch, `Σ coefficient · L` over all masked positions of `rows`.
    ///
    /// # Errors
    /// [`TrainerError::Row`] names the row that does not fit; nothing has been added then.
    pub fn accumulate(&mut self, rows: &[Row<'_>], objective: &Objective) -> Result<LossStats, TrainerError> {
        self.check_head(false)?;
        check_rows(rows, objective, self.weights.config())?;
        Ok(self.gradients.accumulate(rows, objective))
    }

    /// The values of a critic: of the state before each response token. About `micro_batch_tokens` tokens are in flight at
    /// a time.
    ///
    /// # Errors
    /// [`TrainerError::Row`] names the sequence that cannot be read.
    pub fn values(&self, sequences: &[Sequence<'_>], micro_batch_tokens: usize) -> Result<Vec<Vec<f32>>, TrainerError> {
        self.check_head(true)?;
        check_sequences(sequences, self.weights.config())?;
        Ok(self.gradients.values(sequences, micro_batch_tokens))
    }

    /// Adds the gradient of a critic's micro-batch: the value loss of [`crate::value_loss`] over all masked positions.
    ///
    /// # Errors
    /// [`TrainerError::Row`] names the row that does not fit; nothing has been added then.
    pub fn accumulate_values(&mut self, rows: &[ValueRow<'_>], clip: f32) -> Result<ValueStats, TrainerError> {
        self.check_head(true)?;
        check_value_rows(rows, clip, self.weights.config())?;
        Ok(self.gradients.accumulate_values(rows, clip))
    }

    fn check_head(&self, value: bool) -> Result<(), TrainerError> {
        if self.weights.config().value_head == value {
            return Ok(());
        }
        Err(TrainerError::Head {
            expected: if value { "a critic" } else { "a policy" },
        })
    }

    /// One AdamW step with the accumulated gradient, its global norm first cut to `grad_clip`; the gradient is used up.
    ///
    /// # Errors
    /// [`TrainerError::NonFiniteGradient`] and [`TrainerError::Number`]; weights and moments are then untouched.
    pub fn apply(&mut self, lr: f64, grad_clip: Option<f64>) -> Result<StepStats, TrainerError> {
        for (name, value) in [("lr", Some(lr)), ("grad_clip", grad_clip)] {
            if let Some(found) = value
                && !(found >= 0.0 && found.is_finite())
            {
                return Err(TrainerError::Number {
                    name,
                    found,
                    expected: "a number of at least 0",
                });
            }
        }
        let gradients = self.gradients.take();
        let norm = optimizer::global_norm(&gradients);
        if !norm.is_finite() {
            return Err(TrainerError::NonFiniteGradient { norm });
        }
        // As torch.nn.utils.clip_grad_norm_ has it.
        let clip = grad_clip.map_or(1.0, |max| (max / (norm + 1e-6)).min(1.0));
        let (moments, optimizer) = (&mut self.moments, &self.optimizer);
        if let Some(lora) = &mut self.lora {
            moments.step(optimizer, lr, clip, lora.values_mut(), &gradients);
            self.weights = lora.merged();
        } else {
            moments.step(optimizer, lr, clip, self.weights.slots_mut(), &gradients);
        }
        self.gradients.set_weights(&self.weights, self.lora.as_ref());
        Ok(StepStats {
            grad_norm: norm,
            step: self.moments.steps(),
        })
    }

    /// The accumulated gradient under the Hugging Face names, for checks against other implementations; it stays
    /// accumulated no longer. Of an adapter A and then B, in one, by its module's name and `.lora`.
    pub fn take_gradients(&mut self) -> Vec<(String, Vec<f32>)> {
        let names = trained(&self.weights, self.lora.as_ref())
            .into_iter()
            .map(|(name, _)| name);
        names.zip(self.gradients.take()).collect()
    }

    /// Forgets what has been accumulated.
    pub fn discard_gradients(&mut self) {
        self.gradients.take();
    }

    /// A snapshot; it shares memory with the trainer until the next step.
    pub fn weights(&self) -> Weights {
        self.weights.clone()
    }

    /// Whether adapters alone are trained.
    pub fn has_adapters(&self) -> bool {
        self.lora.is_some()
    }

    /// Writes the adapters, if there are any, as PEFT has them into `dir`, which exists.
    ///
    /// # Errors
    /// I/O.
    pub fn save_adapters(&self, dir: &Path) -> Result<(), TrainerError> {
        self.lora.as_ref().map_or(Ok(()), |lora| lora.save(dir))
    }

    /// Replaces the adapters by those in `dir`; gradients are dropped, optimizer state stays.
    ///
    /// # Errors
    /// [`TrainerError::Adapters`] where they are of another size or of other matrices.
    pub fn load_adapters(&mut self, dir: &Path) -> Result<(), TrainerError> {
        let mut lora = self.lora.clone().ok_or_else(|| TrainerError::Adapters {
            path: dir.to_owned(),
            problem: "the trainer has none".to_owned(),
        })?;
        lora.load(dir)?;
        self.gradients.take();
        self.weights = lora.merged();
        self.gradients.set_weights(&self.weights, Some(&lora));
        self.lora = Some(lora);
        Ok(())
    }

    /// Replaces the weights; gradients are dropped, optimizer state stays.
    ///
    /// # Errors
    /// [`TrainerError::OtherModel`] when the tensors differ in name or shape, or adapters are trained.
    pub fn load_weights(&mut self, weights: Weights) -> Result<(), TrainerError> {
        if self.has_adapters() {
            return Err(TrainerError::OtherModel(
                "whole weights where adapters are trained".to_owned(),
            ));
        }
        if weights.parameters() != self.weights.parameters() {
            let pairs = weights.parameters().iter().zip(self.weights.parameters());
            let other = pairs
                .clone()
                .find(|(a, b)| a != b)
                .map_or("another number of tensors".to_owned(), |(a, b)| {
                    format!("`{}` {:?} where `{}` {:?} is trained", a.name, a.shape, b.name, b.shape)
                });
            return Err(TrainerError::OtherModel(other));
        }
        self.gradients.take();
        self.gradients.set_weights(&weights, None);
        self.weights = weights;
        Ok(())
    }

    /// Writes the optimizer state (`exp_avg.*`, `exp_avg_sq.*`, step) as safetensors, fsynced.
    ///
    /// # Errors
    /// I/O.
    pub fn save_optimizer(&self, file: &Path) -> Result<(), TrainerError> {
        self.moments.save(file, &trained(&self.weights, self.lora.as_ref()))
    }

    /// Reads what [`Trainer::save_optimizer`] wrote.
    ///
    /// # Errors
    /// I/O, or a file that does not fit this model; the state is then as before.
    pub fn load_optimizer(&mut self, file: &Path) -> Result<(), TrainerError> {
        self.moments = Moments::load(file, &trained(&self.weights, self.lora.as_ref()))?;
        Ok(())
    }

    /// Steps taken so far.
    pub fn step(&self) -> u64 {
        self.moments.steps()
    }

    pub fn device(&self) -> Device {
        self.device
    }

    pub fn config(&self) -> &ModelConfig {
        self.weights.config()
    }
}

/// Name and shape of what is trained, in the order of its gradients.
fn trained(weights: &Weights, lora: Option<&Lora>) -> Vec<(String, Vec<usize>)> {
    match lora {
        Some(lora) => lora.parameters(),
        None => weights
            .parameters()
            .iter()
            .map(|p| (p.name.clone(), p.shape.clone()))
            .collect(),
    }
}

/// Whether [`Device::Cuda`] can be used here: compiled in, and a driver present.
///
/// # Errors
/// [`TrainerError::NoCuda`] says what is lacking.
pub fn cuda_available() -> Result<(), TrainerError> {
    reference::cuda_available()
}
