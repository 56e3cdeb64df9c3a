//! Scaffolds: agents behind thin adapters.
//!
//! An adapter starts an agent for one task and reads how it ended. It adds no prompt of ours to an agent
//! that is not ours, and never sees tokens: the proxy records those.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::sandbox::{Sandbox, SandboxError};
use crate::task::Task;

/// An agent.
#[async_trait]
pub trait Scaffold: Send + Sync {
    /// Its name in run.toml.
    fn name(&self) -> &str;

    /// The agent's own version.
    fn version(&self) -> &str;

    /// Works on the task until the agent ends, its limits are reached or it is cancelled.
    ///
    /// # Errors
    /// Only for failures that are not the agent's: the sandbox's or the model endpoint's.
    async fn run(&self, job: AgentJob) -> Result<AgentEnd, ScaffoldError>;
}

/// What an agent is given.
pub struct AgentJob {
    /// The task.
    pub task: Arc<Task>,
    /// What the agent is told.
    pub instruction: String,
    /// Where its commands run.
    pub sandbox: Arc<dyn Sandbox>,
    /// Base URL of its session as the process that calls the model reaches it, without `/v1`.
    pub session_url: String,
    /// Bearer token of its session.
    pub session_token: String,
    /// Served model name.
    pub model: String,
    /// Model calls at most.
    pub max_turns: u32,
    /// Answers without a tool call, in sequence, at most.
    pub max_consecutive_no_tool: u32,
    /// Time for the whole run.
    pub timeout: Duration,
    /// Host folder for its logs.
    pub logs: std::path::PathBuf,
    /// Fires when the trial is to stop.
    pub cancel: CancellationToken,
}

impl AgentJob {
    /// Host folder for the agent's logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }
}

/// How the agent ended. All of these are the policy's doing, and are graded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentEnd {
    /// By itself.
    Completed,
    /// At its turn cap.
    MaxTurns,
    /// The window or the output budget was exhausted.
    Overlong,
    /// Out of time.
    Timeout,
    /// It crashed or exited non-zero.
    Failed {
        /// Exit code, where there is one.
        exit_code: Option<i32>,
        /// What it said last.
        detail: String,
    },
}

/// A failure that is not the agent's.
#[derive(Debug, thiserror::Error)]
pub enum ScaffoldError {
    /// The sandbox failed.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The model endpoint failed.
    #[error("the model endpoint failed: {0}")]
    Model(String),
    /// The trial was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The adapter's own set-up failed.
    #[error("agent `{agent}` could not be set up: {reason}")]
    Setup {
        /// Scaffold.
        agent: String,
        /// Why.
        reason: String,
    },
}
