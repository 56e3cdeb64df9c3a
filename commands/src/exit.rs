//! What `lego` tells the shell.

use std::process::ExitCode;

/// Exit codes. Documented in the README; changing one is a breaking change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Exit {
    /// Done; also when the reader of the output has gone.
    Ok = 0,
    /// It ran and the answer is no.
    Negative = 1,
    /// Wrong flags, wrong run.toml, unreadable input.
    Usage = 2,
    /// Something that is needed cannot be reached.
    Unavailable = 3,
    /// Nothing was selected.
    NothingSelected = 4,
    /// A bug: a panic.
    Bug = 101,
    /// Interrupted; the same command continues.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}
