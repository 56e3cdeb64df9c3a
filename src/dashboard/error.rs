//! What can be wrong with a board.

use std::path::PathBuf;

/// What can be wrong with a board.
#[derive(Debug, thiserror::Error)]
pub enum DashboardError {
    /// A folder that was named is not there.
    #[error("{}: no such folder or log; name the folder that holds your runs (`runs`), or a log with `step:` lines", .0.display())]
    NoFolder(PathBuf),
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// A run that is not there.
    #[error("no run `{wanted}`; there are: {known}")]
    NoRun {
        /// What was asked for.
        wanted: String,
        /// Those that are there.
        known: String,
    },
}
