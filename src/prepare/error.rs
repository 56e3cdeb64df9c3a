//! What stops a preparation. A single bad record does not: it is rejected with its reason.

use std::path::PathBuf;

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
    /// Another preparation writes the folder.
    #[error("{}: another `lego prepare` is writing it; wait for it to end, or name another folder with -o", out.display())]
    InUse {
        /// The folder.
        out: PathBuf,
    },
    /// It was asked to stop before all records were done.
    #[error("stopped before all records were converted")]
    Stopped,
    /// A task or an index that cannot be read or written.
    #[error(transparent)]
    Task(#[from] TaskError),
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
    /// Tasks that cannot be split as asked.
    #[error("split `{name}`: {reason}")]
    Split {
        /// Its name.
        name: String,
        /// What stands against it.
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
