//! state.json: how far a run has come, for those who watch it.

use std::io::Write as _;
use std::path::Path;

use fs_err as fs;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunDirError;
use crate::task::write_atomically;

pub(super) const STATE_FILE: &str = "state.json";
const SCHEMA_VERSION: u32 = 1;

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// A process works on it, or was killed while it did: the lock tells.
    Running,
    /// All steps are done.
    Finished,
    /// It stopped on an error.
    Failed,
    /// It was asked to stop; the same command resumes it.
    Interrupted,
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunState {
    /// Version of this file.
    pub schema_version: u32,
    /// What it is doing.
    pub state: Phase,
    /// When this was written.
    #[schemars(with = "String")]
    pub time: Timestamp,
    /// When the run first started.
    #[schemars(with = "String")]
    pub started_at: Timestamp,
    /// Steps done.
    pub step: u64,
    /// Steps planned; absent: not known.
    #[serde(default)]
    pub steps: Option<u64>,
    /// Starts of the run so far: the lineage of the weights that the next start publishes.
    #[serde(default)]
    pub starts: u32,
    /// What stopped it, for `failed`.
    #[serde(default)]
    pub message: Option<String>,
}

impl RunState {
    /// A run that begins now.
    pub fn new(state: Phase) -> Self {
        let now = Timestamp::now();
        Self {
            schema_version: SCHEMA_VERSION,
            state,
            time: now,
            started_at: now,
            step: 0,
            steps: None,
            starts: 0,
            message: None,
        }
    }

    /// The same run, now in another phase.
    pub fn become_phase(&mut self, state: Phase) {
        self.state = state;
        self.time = Timestamp::now();
    }

    pub(super) fn read(path: &Path) -> Result<Self, RunDirError> {
        let damaged = |reason: String| RunDirError::Damaged {
            path: path.to_owned(),
            reason,
        };
        let state: Self = serde_json::from_slice(&fs::read(path)?).map_err(|error| {
            damaged(format!(
                "not the state of a run ({error}); move the file away to go on from the last checkpoint, or start \
                 anew with --fresh"
            ))
        })?;
        if state.schema_version > SCHEMA_VERSION {
            let reason = format!(
                "schema_version {} is newer than {SCHEMA_VERSION}; upgrade lego to read it",
                state.schema_version
            );
            return Err(damaged(reason));
        }
        Ok(state)
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), RunDirError> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::from)?;
        write_atomically(path, |file| Ok(file.write_all(text.as_bytes())?))
    }
}
