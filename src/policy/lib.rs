//! The policy: its shape and weights, decoding with a key-value cache, sampling, losses, gradients, AdamW, and
//! safetensors in and out.
//!
//! Plain slices at the border. Everything that touches burn is in this package, and nothing of the rest of the toolkit
//! is known here: no episodes, groups, advantages or files other than a model's own.

mod config;
mod decode;
mod decoder;
mod kernels;
mod layout;
mod lora;
mod objective;
mod row;
mod sampling;
#[cfg(test)]
mod test_models;
mod trainer;
mod weights;

pub use config::{ConfigError, Family, ModelConfig, Moe, StoredType};
pub use decode::{DecodeError, DecodeModel, KvCache, Logits, Slot, SlotLogits};
pub use decoder::experts::NO_EXPERT;
pub use lora::{LoraSpec, LoraTarget};
pub use objective::{KlEstimator, KlTerm, LossStats, Objective, PolicyLoss, ValueStats, evaluate, value_loss};
pub use row::{LogProbs, Row, Sequence, ValueRow};
pub use sampling::{Sampled, Sampler, Sampling, SamplingError};
pub use trainer::{AdamW, Device, StepStats, Trainer, TrainerError, cuda_available};
pub use weights::{HostTensor, Weights, WeightsError};
