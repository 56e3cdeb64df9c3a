//! `[train.rollout_correction]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RatioBounds;

/// What makes up for an engine whose probabilities are not those of the trainer's weights: weights of the loss, and
/// tokens that are left out. The ratio is that of the trainer's probability to the engine's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutCorrectionSection {
    /// What the loss of a token is weighted by.
    pub rollout_is: RolloutIs,
    /// Bounds of that weight: `"2"` cuts it off there, `"0.5_5"` makes it 0 outside; absent: `"2"`.
    pub rollout_is_threshold: Option<RatioBounds>,
    /// Whether the weights of a step are scaled to a mean of 1.
    pub rollout_is_batch_normalize: bool,
    /// Which tokens leave the loss: each rule is applied, and a token stays that all of them let pass.
    pub rollout_rs: Vec<RejectionRule>,
    /// Bounds, one for all rules or one for each: of the ratio for k1 (`"0.5_2"`; `"2"` is `"0.5_2"`), else the most.
    pub rollout_rs_threshold: Vec<RatioBounds>,
}

/// What the loss of a token is weighted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RolloutIs {
    /// Nothing.
    #[default]
    None,
    /// Its own ratio.
    Token,
    /// The product of its row's ratios.
    Sequence,
}

macro_rules! rejection_rules {
    ($($(#[$meta:meta])* $name:ident = $text:literal,)*) => {
        /// A statistic that rejects where it is out of bounds: of the token itself, or of its row.
        ///
        /// With d = trainer − engine log-prob: k1 = −d, k2 = ½d², k3 = e^d − d − 1.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum RejectionRule {
            $($(#[$meta])* $name,)*
        }

        impl RejectionRule {
            /// Its name in run.toml.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

rejection_rules! {
    /// k1 of the token.
    TokenK1 = "token_k1",
    /// k2 of the token.
    TokenK2 = "token_k2",
    /// k3 of the token.
    TokenK3 = "token_k3",
    /// Sum of k1 over the row.
    SeqSumK1 = "seq_sum_k1",
    /// Sum of k2 over the row.
    SeqSumK2 = "seq_sum_k2",
    /// Sum of k3 over the row.
    SeqSumK3 = "seq_sum_k3",
    /// Mean of k1 over the row.
    SeqMeanK1 = "seq_mean_k1",
    /// Mean of k2 over the row.
    SeqMeanK2 = "seq_mean_k2",
    /// Mean of k3 over the row.
    SeqMeanK3 = "seq_mean_k3",
    /// Largest k2 of the row.
    SeqMaxK2 = "seq_max_k2",
    /// Largest k3 of the row.
    SeqMaxK3 = "seq_max_k3",
}
