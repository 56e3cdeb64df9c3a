//! Scaffolds: agents behind thin adapters.
//!
//! An adapter starts an agent for one task and reads how it ended. It adds no prompt of ours to an agent
//! that is not ours, and never sees tokens: the proxy records those.

mod builtin;
mod error;
mod nop;
mod oracle;
mod patch;
mod process;
mod registry;
mod report;
#[cfg(test)]
mod testing;

pub use builtin::{Builtin, BuiltinLimits, SYSTEM_PROMPT, bash_tool};
pub use error::ScaffoldError;
pub use nop::Nop;
pub use oracle::Oracle;
pub use patch::{Patch, WORK_PATCH};
pub use registry::{UnknownScaffold, by_name};
pub use report::{AgentEnd, AgentReport, CutLogs};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::sandbox::Sandbox;
use crate::task::Task;

/// An agent.
#[async_trait]
pub trait Scaffold: Send + Sync {
    /// Its name in run.toml.
    fn name(&self) -> &str;

    /// The agent's own version.
    fn version(&self) -> &str;

    /// Whether it is a program inside the sandbox. It then reaches the proxy as the sandbox does, the proxy counts
    /// its turns, and an end without a single model call is a failure of its set-up.
    fn runs_inside(&self) -> bool {
        false
    }

    /// What keeps it from running, as far as this machine's own files tell; `None`: nothing that can be seen from here.
    fn missing_here(&self) -> Option<String> {
        None
    }

    /// Looks whether the agent is there, in a sandbox that is made for that; learns its version.
    ///
    /// # Errors
    /// Where it is missing or another than asked for.
    async fn probe(&self, _sandbox: &dyn Sandbox) -> Result<(), ScaffoldError> {
        Ok(())
    }

    /// Works on the task until the agent ends, its limits are reached or it is cancelled.
    ///
    /// # Errors
    /// Only for failures that are not the agent's: the sandbox's or the model endpoint's.
    async fn run(&self, job: AgentJob) -> Result<AgentReport, ScaffoldError>;
}

/// What an agent is given.
pub struct AgentJob {
    /// The task.
    pub task: Arc<Task>,
    /// What the agent is told.
    pub instruction: String,
    /// Host folder with the solution, for the oracle.
    pub solution: std::path::PathBuf,
    /// Who its commands run as; `None` is the image's user.
    pub user: Option<String>,
    /// Where its commands run.
    pub sandbox: Arc<dyn Sandbox>,
    /// Base URL of its session as the process that calls the model reaches it, without `/v1`.
    pub session_url: String,
    /// Bearer token of its session.
    pub session_token: String,
    /// Served model name.
    pub model: String,
    /// Prompt and answer together, in tokens.
    pub window: usize,
    /// Tokens of one answer at most.
    pub max_tokens: u32,
    /// Model calls at most.
    pub max_turns: u32,
    /// Answers without a tool call, in sequence, at most.
    pub max_consecutive_no_tool: u32,
    /// Time for the whole run.
    pub timeout: Duration,
    /// Host folder for its logs.
    pub logs: std::path::PathBuf,
    /// Fires when the proxy takes no more calls of the session.
    pub no_more_calls: CancellationToken,
    /// Fires when the trial is to stop.
    pub cancel: CancellationToken,
}

impl AgentJob {
    /// Host folder for the agent's logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }
}
