//! `[eval]`, `[checkpoint]` and `[log]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Validation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EvalSection {
    /// Steps between two validations; 0 is never.
    pub every: u32,
    /// Whether the untrained policy is validated first.
    pub before_train: bool,
    /// Samples a task.
    #[schemars(range(min = 1))]
    pub samples: u32,
    /// Softmax temperature of the samples.
    #[schemars(range(min = 0.0))]
    pub temperature: f32,
    /// Whether each task is also answered once greedily.
    pub greedy: bool,
}

impl Default for EvalSection {
    fn default() -> Self {
        Self {
            every: 10,
            before_train: true,
            samples: 1,
            temperature: 1.0,
            greedy: false,
        }
    }
}

/// Checkpoints.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckpointSection {
    /// Steps between two checkpoints.
    #[schemars(range(min = 1))]
    pub every: u32,
    /// Newest checkpoints kept, beside the best by each validation set.
    #[schemars(range(min = 1))]
    pub keep: u32,
}

impl Default for CheckpointSection {
    fn default() -> Self {
        Self { every: 10, keep: 3 }
    }
}

/// Logs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogSection {
    /// Whether TensorBoard event files are written.
    pub tensorboard: bool,
    /// Steps between two rows on the terminal.
    #[schemars(range(min = 1))]
    pub console_every: u32,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            tensorboard: true,
            console_every: 1,
        }
    }
}
