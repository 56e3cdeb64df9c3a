//! Why a command ended early: its kind (which decides the exit code), what happened and what to do.

use std::error::Error;

use lego::config::ConfigError;

use crate::exit::Exit;

/// Kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Flags, files or configuration that cannot be used.
    Usage,
    /// It ran and the answer is no.
    Negative,
    /// A service, device or folder that cannot be reached.
    Unavailable,
    /// Nothing to work on.
    NothingSelected,
    /// Whoever read our output has gone: nothing to say and nothing wrong.
    ClosedPipe,
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    pub(crate) report: Report,
    pub(crate) hint: Option<String>,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Report {
    /// A sentence, and the error below it where there is one.
    Message {
        text: String,
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Faults in a run config, drawn with their places.
    Config(ConfigError),
}

impl Failure {
    fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            report: Report::Message {
                text: text.into(),
                source: None,
            },
            hint: None,
        }
    }

    /// Flags, files or configuration that cannot be used.
    pub(crate) fn usage(text: impl Into<String>) -> Self {
        Self::new(Kind::Usage, text)
    }

    /// It ran and the answer is no.
    pub(crate) fn negative(text: impl Into<String>) -> Self {
        Self::new(Kind::Negative, text)
    }

    /// Something that is needed cannot be reached.
    pub(crate) fn unavailable(text: impl Into<String>) -> Self {
        Self::new(Kind::Unavailable, text)
    }

    /// Nothing to work on.
    pub(crate) fn nothing_selected(text: impl Into<String>) -> Self {
        Self::new(Kind::NothingSelected, text)
    }

    /// The error that caused it.
    pub(crate) fn source(mut self, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        if let Report::Message { source, .. } = &mut self.report {
            *source = Some(error.into());
        }
        self
    }

    /// What to do about it.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What the shell is told.
    pub(crate) fn exit(&self) -> Exit {
        match self.kind {
            Kind::Usage => Exit::Usage,
            Kind::Negative => Exit::Negative,
            Kind::Unavailable => Exit::Unavailable,
            Kind::NothingSelected => Exit::NothingSelected,
            Kind::ClosedPipe => Exit::Ok,
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self {
            kind: Kind::Usage,
            report: Report::Config(error),
            hint: None,
        }
    }
}

/// Failing to write output: a closed pipe is no failure, a full disk is.
impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::BrokenPipe {
            Self::new(Kind::ClosedPipe, "")
        } else {
            Self::unavailable("cannot write the output").source(error)
        }
    }
}
