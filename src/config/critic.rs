//! `[train.critic]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value function of advantage `gae`: a decoder of the policy's shape whose head gives one number.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CriticSection {
    /// Learning rate; absent: 1e-5.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub lr: Option<f64>,
    /// How far a value may move from what it was at the start of the update; absent: 0.5.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub cliprange_value: Option<f32>,
    /// Weight of later errors in the advantage (the λ of GAE); absent: 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub lambda: Option<f32>,
    /// First steps in which the critic alone learns; absent: 0.
    pub warmup: Option<u32>,
}

impl CriticSection {
    /// Keys that are written, by name.
    pub fn written(&self) -> Option<&'static str> {
        let written = [
            ("critic.lr", self.lr.is_some()),
            ("critic.cliprange_value", self.cliprange_value.is_some()),
            ("critic.lambda", self.lambda.is_some()),
            ("critic.warmup", self.warmup.is_some()),
        ];
        written.into_iter().find_map(|(key, written)| written.then_some(key))
    }
}
