//! What an update says about itself.

use std::collections::BTreeMap;

use super::filter::DropReason;
use crate::trajectory::EpisodeId;

/// Values of one step by their standard names.
pub type Metrics = BTreeMap<String, f64>;

/// Why a step took no optimizer step. It is counted (`training/skipped_steps`), never an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// Every episode was dropped, or none was given.
    NoEpisodes,
    /// In no group could the episodes be told apart, or nothing in them was sampled.
    NoSignal,
}

impl std::fmt::Display for Skip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoEpisodes => "no episode is left after the filter",
            Self::NoSignal => "no token is left to learn from: in every group all rewards are equal",
        })
    }
}

/// One trainer step.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepReport {
    /// By standard name.
    pub metrics: Metrics,
    /// Episodes that this update used: in the loss or in a baseline.
    pub consumed: Vec<EpisodeId>,
    /// Episodes that the filter left out.
    pub dropped: Vec<(EpisodeId, DropReason)>,
    /// Optimizer steps taken.
    pub updates: u32,
    /// Set where none was.
    pub skipped: Option<Skip>,
}
