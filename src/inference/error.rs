//! What can go wrong with an engine. A failure of the engine is never the policy's doing.

use std::time::Duration;

/// A failure of the engine, or a request that it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt leaves no room for an answer.
    #[error("prompt of {prompt} tokens does not fit into the window of {window}")]
    Window {
        /// Tokens asked.
        prompt: usize,
        /// Tokens that fit.
        window: usize,
    },
    /// Something in the request is out of range.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// It does not answer, or not in time.
    #[error("engine unavailable: {reason}")]
    Unavailable {
        /// What was seen.
        reason: String,
        /// When to try again, if known.
        retry_after: Option<Duration>,
    },
    /// What came back contradicts itself and is not used.
    #[error("response rejected: {0}")]
    Rejected(String),
    /// The weights could not be loaded.
    #[error("weights in `{path}` could not be served: {reason}")]
    Weights {
        /// The folder.
        path: String,
        /// Why.
        reason: String,
    },
    /// No recorded answer can be played.
    #[error("recording `{file}` has no answer for task `{task}`, turn {turn}: {reason}")]
    Recording {
        /// The recording.
        file: String,
        /// Instance id.
        task: String,
        /// Assistant turns that came before.
        turn: u32,
        /// What is missing.
        reason: String,
    },
}

impl EngineError {
    /// A server that was asked and is gone, or does not do what it should.
    pub(crate) fn lost(reason: &str) -> Self {
        Self::Unavailable {
            reason: reason.to_owned(),
            retry_after: None,
        }
    }
}
