//! What can be wrong with a run directory.

use std::path::PathBuf;

/// What can be wrong with a run directory; every message names the path.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    /// The operating system refused; the message of `source` names the path.
    #[error("{source}")]
    Io {
        /// Names operation and path.
        #[from]
        source: std::io::Error,
    },
    /// Nothing is there.
    #[error("{}: no such folder", dir.display())]
    Missing {
        /// The folder.
        dir: PathBuf,
    },
    /// A folder that is no run directory.
    #[error("{}: not a run directory: `state.json` is missing", dir.display())]
    NotARun {
        /// The folder.
        dir: PathBuf,
    },
    /// Another process writes the run.
    #[error(
        "{}: in use by process {pid} on {host} since {since}; wait for it, stop it, or take another folder (`run.name`; of a rollout, -o)",
        dir.display()
    )]
    Locked {
        /// The run directory.
        dir: PathBuf,
        /// Its process.
        pid: u32,
        /// Its machine.
        host: String,
        /// Since when.
        since: String,
    },
    /// A process of another machine held the lock and did not release it; whether it lives cannot be told from here.
    #[error(
        "{}: process {pid} on {host} has not released this run; if it is gone, delete {}",
        dir.display(), dir.join("lock").display()
    )]
    ForeignLock {
        /// The run directory.
        dir: PathBuf,
        /// Its process.
        pid: u32,
        /// Its machine.
        host: String,
    },
    /// The folder is part of a run that a process is working on.
    #[error(
        "{}: lies in the run {}, which process {pid} on {host} is working on; name a folder outside of it",
        dir.display(), run.display()
    )]
    WithinLive {
        /// The folder.
        dir: PathBuf,
        /// The run directory.
        run: PathBuf,
        /// Its process.
        pid: u32,
        /// Its machine.
        host: String,
    },
    /// A file of the directory that does not parse.
    #[error("{}: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The place in it, what was expected and what was found.
        reason: String,
    },
}
