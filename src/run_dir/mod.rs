//! The run directory: where everything of a run is, who is writing it, and how far it has come.
//!
//! Everything that watches a run (dashboard, diagnose) reads only this. Nothing here knows how a step is
//! computed.

mod crc32c;
mod discover;
mod error;
mod events;
mod history;
mod layout;
mod lock;
mod metrics_line;
mod rewind;
mod state;
mod step_log;
mod trial_result;

pub use discover::{RunSummary, discover};
pub use error::RunDirError;
pub use events::EventWriter;
pub use history::{Column, History};
pub use layout::RunDir;
pub use lock::{LockHolder, RunLock};
pub use state::{Phase, RunState};
pub use step_log::{StepLog, read_metrics};
pub use trial_result::{
    AgentInfo, AgentResult, ExceptionInfo, ModelInfo, ReportSummary, StepResult, TimeSpan, TrialConfigRef, TrialResult,
    TrialTaskRef, VerifierResult,
};

/// The JSON Schemas of this module's files, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("run-state", schemars::schema_for!(RunState)),
        ("run-summary", schemars::schema_for!(RunSummary)),
        ("trial-result", schemars::schema_for!(TrialResult)),
    ]
}

#[cfg(test)]
mod tests;
