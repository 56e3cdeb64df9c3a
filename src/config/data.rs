//! `[data]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Tasks to train and validate on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DataSection {
    /// Task index (Parquet), or a JSONL of inline records, which is prepared into the run directory.
    #[schemars(extend("format" = "path"))]
    pub train: Option<PathBuf>,
    /// The same, for validation; several files are several series.
    #[schemars(extend("format" = "path"))]
    pub val: Vec<PathBuf>,
    /// Whether each epoch draws the tasks in its own order.
    pub shuffle: bool,
    /// Times through the training tasks at most; absent: as many as the steps need.
    #[schemars(range(min = 1))]
    pub epochs: Option<u32>,
    /// Prompt tokens of a row; what is longer moves into the response with mask 0.
    #[schemars(range(min = 1))]
    pub max_prompt_tokens: u32,
    /// Response tokens of a row.
    #[schemars(range(min = 1))]
    pub max_response_tokens: u32,
}

impl Default for DataSection {
    fn default() -> Self {
        Self {
            train: None,
            val: Vec::new(),
            shuffle: true,
            epochs: None,
            max_prompt_tokens: 16_384,
            max_response_tokens: 114_688,
        }
    }
}
