//! What stops a preparation. A single bad record does not: it is rejected with its reason.

use crate::task::TaskError;

/// What stops a preparation; every message names the source.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The operating system refused; the message of `source` names the path.
    #[error("{source}")]
    Io {
        /// Names operation and path.
        #[from]
        source: std::io::Error,
    },
    /// A task or an index that cannot be read or written.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Records of a family that is recognised, and not converted yet.
    #[error("{name}:{line}: {family} records are not supported yet; convertible are records with their files inline")]
    Unsupported {
        /// The source.
        name: String,
        /// From 1.
        line: usize,
        /// Which family.
        family: &'static str,
    },
    /// A source that cannot be split into records.
    #[error("{name}:{line}: {reason}")]
    Source {
        /// The source.
        name: String,
        /// From 1.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
    /// A report of an earlier preparation that does not parse.
    #[error("{name}: {reason}; delete the folder to prepare it again")]
    Report {
        /// The file.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
}
