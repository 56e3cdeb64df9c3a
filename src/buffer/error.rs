//! What can be wrong with a ledger.

use std::path::PathBuf;

/// What can be wrong with a ledger; every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// The operating system refused; the message of `source` names the path.
    #[error("{source}")]
    Io {
        /// Names operation and path.
        #[from]
        source: std::io::Error,
    },
    /// A line that is no entry, or an entry out of order.
    #[error("{}:{line}: {reason}", path.display())]
    Damaged {
        /// The ledger.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
    /// An episode that was consumed or dropped before, which must not train again.
    #[error("{}: episode {episode} was {fate} already; an episode trains at most once", path.display())]
    Twice {
        /// The ledger.
        path: PathBuf,
        /// The episode.
        episode: String,
        /// What became of it before.
        fate: String,
    },
}
