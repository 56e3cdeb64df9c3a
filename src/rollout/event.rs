//! What happens during a rollout, as a stream of facts for whoever watches.

use std::path::PathBuf;
use std::sync::Arc;

use crate::trajectory::{Outcome, TrialId};

/// One fact.
#[derive(Debug, Clone)]
pub enum RolloutEvent {
    /// So many trials are about to run.
    Planned {
        /// How many.
        trials: usize,
    },
    /// A trial left the queue.
    Started {
        /// Which.
        trial: TrialId,
        /// Its readable name.
        name: String,
    },
    /// An infrastructure failure is tried again.
    Retried {
        /// Readable name of the trial.
        name: String,
        /// The try that failed, from 0.
        attempt: u32,
        /// Why.
        reason: String,
    },
    /// A trial ended.
    Finished {
        /// Which.
        trial: TrialId,
        /// Its readable name.
        name: String,
        /// How.
        outcome: Outcome,
        /// Its reward, where it has a valid one.
        reward: Option<f32>,
        /// What went wrong, where it has none.
        reason: Option<String>,
        /// Seconds from start to end.
        seconds: f32,
        /// Tokens sampled.
        tokens: u64,
    },
    /// Rows became durable.
    ShardWritten(PathBuf),
}

/// Whoever watches. It must not block.
pub type Observer = Arc<dyn Fn(RolloutEvent) + Send + Sync>;
