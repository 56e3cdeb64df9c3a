//! Turns episodes into better weights: filters, advantages, aggregation, batches, updates, checkpoints.
//!
//! The tensor arithmetic is the policy package's; what this module hands to it are tokens, masks and
//! plain coefficients. It reads finished episodes and never samples: it must not import `rollout`.

pub mod advantage;
mod aggregate;
mod batch;
pub mod checkpoint;
pub mod correction;
mod credit;
mod critic;
mod error;
mod fidelity;
mod filter;
mod group;
mod log_probs;
mod lora;
mod measure;
mod offline;
mod optimize;
mod recipe;
mod report;
mod routing;
mod schedule;
mod update;

#[cfg(test)]
mod fixture;

pub use advantage::Algorithm;
pub use aggregate::{SequenceTokens, token_coefficients};
pub use batch::{TrainRow, cut_micro_batches, split_mini_batches};
pub use error::TrainError;
pub use fidelity::{Fidelity, compare_log_probs};
pub use filter::{DropReason, Filter, FilterError, Filtered};
pub use lora::lora_spec;
pub use offline::{OfflineError, OfflinePlan, ShardEntry};
pub use recipe::{CriticRecipe, Recipe, RecipeError};
pub use report::{Metrics, Skip, StepReport};
pub use schedule::{Schedule, ScheduleError};
pub use update::{UpdateSettings, Updater, Window};
