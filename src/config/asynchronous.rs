//! `[async]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sampling and updates side by side.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AsyncSection {
    /// Whether trials go on while the trainer updates; else they take turns.
    pub enabled: bool,
    /// Groups begun ahead of the weights that they will train, as a share of those between two publications; 0 is as in
    /// turns.
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub staleness: f64,
    /// Updates between two publications of weights.
    #[schemars(range(min = 1))]
    pub trigger_sync_step: u32,
    /// Mini-batches of an update, which takes `train.mini_batch` × this many groups; absent: `rollout.groups_per_step`, as in
    /// turns.
    #[schemars(range(min = 1))]
    pub require_batches: Option<u32>,
    /// Whether answers that are being sampled go on under new weights; else they end before these are served.
    pub partial_rollout: bool,
    /// Complete groups that wait for the trainer at most, beyond which the oldest are dropped; absent: as many as
    /// `staleness` lets begin, so that none is.
    #[schemars(range(min = 1))]
    pub max_queue: Option<u32>,
}

impl Default for AsyncSection {
    fn default() -> Self {
        Self {
            enabled: false,
            staleness: 1.0,
            trigger_sync_step: 1,
            require_batches: None,
            partial_rollout: true,
            max_queue: None,
        }
    }
}
