//! What can go wrong with a checkpoint.

use std::io;
use std::path::{Path, PathBuf};

use lego_policy::{TrainerError, WeightsError};

use super::export::Wanted;

/// A checkpoint that could not be written or read. Those already complete are untouched.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A state file that is not one.
    #[error("{}: not a checkpoint's state: {reason}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file that is missing or shorter than it was written.
    #[error("{}: expected {expected} bytes, found {found}; the checkpoint is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Its size when it was written.
        expected: u64,
        /// Its size now; 0 where it is gone.
        found: u64,
    },
    /// No checkpoint is the one that was asked for.
    #[error("{}: no {wanted}", folder.display())]
    None {
        /// The run's folder of checkpoints.
        folder: PathBuf,
        /// Which one.
        wanted: Wanted,
    },
    /// A place to export to that holds something.
    #[error("{} is there already and not empty; name a folder that is not there yet", path.display())]
    Occupied {
        /// The place.
        path: PathBuf,
    },
    /// The weights.
    #[error("checkpoint {}: {source}", path.display())]
    Weights {
        /// The checkpoint.
        path: PathBuf,
        /// What was wrong.
        #[source]
        source: WeightsError,
    },
    /// The optimizer.
    #[error("checkpoint {}: {source}", path.display())]
    Optimizer {
        /// The checkpoint.
        path: PathBuf,
        /// What was wrong.
        #[source]
        source: TrainerError,
    },
}

/// Names the action and the path of a file system error.
pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    move |source| CheckpointError::Io { action, path, source }
}
