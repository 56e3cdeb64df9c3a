//! `[train.lora]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Low-rank adapters over a policy that stays as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LoraSection {
    /// Rows of an adapter's first factor, and columns of its second.
    #[schemars(range(min = 1))]
    pub rank: u32,
    /// What the adapters' product is multiplied by, times the rank.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub alpha: f64,
    /// Linear maps that have adapters; absent: all of attention, and those of MLPs without experts.
    #[schemars(length(min = 1))]
    pub targets: Option<Vec<LoraTargetName>>,
}

impl Default for LoraSection {
    fn default() -> Self {
        Self {
            rank: 16,
            alpha: 32.0,
            targets: None,
        }
    }
}

/// Linear maps of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoraTargetName {
    /// Queries.
    QProj,
    /// Keys.
    KProj,
    /// Values.
    VProj,
    /// What attention gives to the residual.
    OProj,
    /// The MLP's gate.
    GateProj,
    /// What the gate lets through.
    UpProj,
    /// What the MLP gives to the residual.
    DownProj,
}
