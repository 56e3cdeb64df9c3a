//! `state.json`: what a run must know to continue, and what the checkpoint is made of.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::error::{CheckpointError, io_error};
use crate::trajectory::PolicyVersion;

/// Version of the layout of `state.json`.
pub const STATE_VERSION: u32 = 1;

/// Counters and cursors at the end of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointState {
    /// Layout of this file.
    pub schema_version: u32,
    /// Trainer steps done.
    pub step: u64,
    /// The weights: which start of the run they come from, and the optimizer steps they have seen.
    pub version: PolicyVersion,
    /// Tasks drawn so far; the seed and it give the rest of the order.
    pub data_cursor: u64,
    /// Steps of which every group was drawn and trained on or dropped, where groups train in another order than they
    /// are drawn in: `data_cursor` is then where the next one begins. Absent: it is `step`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_step: Option<u64>,
    /// Last ledger entry that belongs to this checkpoint; later ones are void on resume.
    pub ledger_seq: u64,
    /// Seed of the run. Random streams are drawn from it and the step, so that no generator's state is kept.
    pub seed: u64,
    /// SHA-256 of the resolved configuration.
    pub config_digest: String,
    /// Size in bytes of each file of the checkpoint. Filled in by the writer.
    #[serde(default)]
    pub files: BTreeMap<String, u64>,
}

impl CheckpointState {
    /// Reads it and checks that the checkpoint's files have their sizes.
    pub(super) fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(FILE);
        let text = fs_err::read_to_string(&path).map_err(io_error("read", &path))?;
        let state: Self = serde_json::from_str(&text).map_err(|error| CheckpointError::State {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        if state.schema_version != STATE_VERSION {
            let reason = format!(
                "schema_version {}; this build reads {STATE_VERSION}",
                state.schema_version
            );
            return Err(CheckpointError::State { path, reason });
        }
        for (name, &expected) in &state.files {
            let path = folder.join(name);
            let found = fs_err::metadata(&path).map_or(0, |metadata| metadata.len());
            if found != expected {
                return Err(CheckpointError::Damaged { path, expected, found });
            }
        }
        Ok(state)
    }
}

/// Its name.
pub(super) const FILE: &str = "state.json";
