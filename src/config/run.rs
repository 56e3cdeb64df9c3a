//! `[run]`

use std::path::PathBuf;

use super::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Name, folder and seed of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunSection {
    /// Name of the run; its folder below `dir`. Empty: the name of the folder that holds run.toml.
    pub name: String,
    /// Where run directories are kept.
    #[schemars(extend("format" = "path"))]
    pub dir: PathBuf,
    /// Seed of every random choice of the run.
    pub seed: u64,
    /// Groups runs on a board.
    pub project: String,
    /// Where nothing has happened for so long, it is said what the run is busy with.
    pub no_progress: HumanDuration,
}

impl Default for RunSection {
    fn default() -> Self {
        Self {
            name: String::new(),
            dir: PathBuf::from("runs"),
            seed: 42,
            project: "lego".to_owned(),
            no_progress: HumanDuration::from_secs(30 * 60),
        }
    }
}
