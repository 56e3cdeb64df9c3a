//! Which weights engines serve before anything is sampled.

use std::path::PathBuf;

use lego_policy::Weights;

use crate::trajectory::PolicyVersion;

/// What is to be served first.
pub(super) enum First {
    /// None: agents that ask no model run. Whoever asks is told that there is none.
    Nobody,
    /// The weights of `policy.model`; servers in other processes serve what they were started with.
    Model,
    /// A trainer's weights: nothing is sampled before every engine serves them.
    Trainer {
        weights: Weights,
        version: PolicyVersion,
        /// Where those go that servers load.
        folder: PathBuf,
    },
}

impl First {
    pub(super) fn version(&self) -> PolicyVersion {
        match self {
            Self::Model | Self::Nobody => PolicyVersion::default(),
            Self::Trainer { version, .. } => *version,
        }
    }
}
