//! What can go wrong around an agent. None of it is the policy's doing.

use crate::sandbox::SandboxError;

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
