//! Checkpoints: `checkpoints/step_000012/`, complete or absent (trainer.md §9).
//!
//! A checkpoint is written under a temporary name, synced, and renamed; `latest` moves last. Readers take
//! the newest complete one, whatever a crash left beside it. What the policy was trained on is not here but
//! in the ledger, whose position the checkpoint records: consumption counts once that checkpoint is complete.

mod error;
mod export;
mod files;
mod published;
mod state;
mod store;

pub use error::CheckpointError;
pub use export::Wanted;
pub use published::PublishedWeights;
pub use state::{CheckpointState, STATE_VERSION};
pub use store::{Checkpoint, CheckpointStore};
