//! The agent's own log: one JSON object a line, written as it happens.
//!
//! For people. What trains is what the proxy recorded.

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::scaffold::{AgentReport, ScaffoldError};

/// `trajectory.jsonl` of one episode: lines `{"t": seconds, "message": …}`, the last one `{"t", "report"}` or `{"t", "error"}`.
pub(super) struct Transcript {
    file: fs_err::File,
    began: Instant,
}

impl Transcript {
    pub(super) fn create(path: &Path) -> Result<Self, ScaffoldError> {
        let file = fs_err::File::create(path).map_err(|error| failed(&error))?;
        Ok(Self {
            file,
            began: Instant::now(),
        })
    }

    pub(super) fn message(&mut self, message: &Value) -> Result<(), ScaffoldError> {
        self.line(&json!({"t": self.seconds(), "message": message}))
    }

    pub(super) fn end(&mut self, report: &AgentReport) -> Result<(), ScaffoldError> {
        self.line(&json!({"t": self.seconds(), "report": report}))
    }

    pub(super) fn failure(&mut self, error: &ScaffoldError) -> Result<(), ScaffoldError> {
        self.line(&json!({"t": self.seconds(), "error": error.to_string()}))
    }

    fn seconds(&self) -> f32 {
        self.began.elapsed().as_secs_f32()
    }

    fn line(&mut self, line: &Value) -> Result<(), ScaffoldError> {
        writeln!(self.file, "{line}").map_err(|error| failed(&error))
    }
}

fn failed(error: &std::io::Error) -> ScaffoldError {
    ScaffoldError::Setup {
        agent: "builtin".to_owned(),
        reason: format!("its log could not be written: {error}"),
    }
}
