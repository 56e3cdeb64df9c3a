//! What can go wrong with a sandbox. All of it is the environment's doing, never the policy's.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failure of the environment.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It could not be started.
    #[error("sandbox `{name}` could not be started: {reason}")]
    Start {
        /// Of the sandbox.
        name: String,
        /// What the system said.
        reason: String,
    },
    /// What was asked for cannot be given.
    #[error("sandbox `{name}` cannot be as it is asked for: {reason}")]
    Unfit {
        /// Of the sandbox.
        name: String,
        /// What the engine said.
        reason: String,
    },
    /// A command could not be run, or how it ended could not be known.
    #[error("sandbox `{name}` could not run a command: {reason}")]
    Exec {
        /// Of the sandbox.
        name: String,
        /// What the system said.
        reason: String,
    },
    /// A file could not be moved in or out.
    #[error("sandbox `{name}` could not transfer `{path}`")]
    Transfer {
        /// Of the sandbox.
        name: String,
        /// Inside.
        path: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The path is not there inside.
    #[error("`{path}` is not in sandbox `{name}`")]
    NotFound {
        /// Of the sandbox.
        name: String,
        /// Inside.
        path: String,
    },
    /// An image could not be had.
    #[error("image `{image}`: {reason}")]
    Image {
        /// Its name.
        image: String,
        /// The engine's words.
        reason: String,
        /// Whether no other try can help: there is no such image, or its Dockerfile is wrong.
        last: bool,
    },
    /// An image could not be brought to a registry.
    #[error("image `{image}` could not be pushed: {reason}")]
    Push {
        /// Its name there.
        image: String,
        /// The words of engine and registry.
        reason: String,
    },
    /// The container engine cannot be used.
    #[error("{what}: {reason}")]
    Engine {
        /// What was tried.
        what: &'static str,
        /// Its words, or what they mean.
        reason: String,
    },
    /// Another program makes them.
    #[error("this run makes no sandboxes of its own: Harbor runs its trials")]
    Elsewhere,
    /// What killed owners left could not be removed.
    #[error("left-over sandboxes in `{root}` could not be removed")]
    Reap {
        /// Folder of the sandboxes.
        root: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It ended, as whoever keeps it says.
    #[error("sandbox `{name}` ended: {reason}")]
    Ended {
        /// Of the sandbox.
        name: String,
        /// Their words.
        reason: String,
        /// Whether what ran inside brought it about, by using more than it may.
        by_inside: bool,
    },
    /// It is gone already.
    #[error("sandbox `{0}` is gone")]
    Gone(String),
    /// The setup did not end in time.
    #[error("sandbox `{name}` was not ready within {waited:?}")]
    Timeout {
        /// Of the sandbox.
        name: String,
        /// The bound.
        waited: Duration,
    },
}

impl SandboxError {
    /// Whether no other try can help.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Image { last: true, .. } | Self::Unfit { .. } | Self::Elsewhere
        )
    }

    /// Whether more was to be moved than is taken.
    pub fn is_too_large(&self) -> bool {
        matches!(self, Self::Transfer { source, .. } if source.kind() == io::ErrorKind::FileTooLarge)
    }
}

/// An error with what is behind it: the client's own text leaves that out.
pub(in crate::sandbox) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(error) = next {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        next = error.source();
    }
    text
}
