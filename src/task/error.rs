//! What can be wrong with a task or an index.

use std::path::PathBuf;

/// What can be wrong with a task or an index; every message names the file.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// The operating system refused; the message of `source` names the path.
    #[error("{source}")]
    Io {
        /// Names operation and path.
        #[from]
        source: std::io::Error,
    },
    /// A file that makes a folder a task is not there.
    #[error("{}: not a task: `{file}` is missing; expected {what}", dir.display())]
    Missing {
        /// The task folder.
        dir: PathBuf,
        /// The file, relative to it.
        file: String,
        /// What the file holds.
        what: &'static str,
    },
    /// A folder whose name cannot be a task's id.
    #[error("{}: the folder's name is not UTF-8, so it cannot be a task's id; rename it", dir.display())]
    Name {
        /// The folder.
        dir: PathBuf,
    },
    /// task.toml does not parse, or a value has the wrong type.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Manifest {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What was expected and what was found.
        message: String,
    },
    /// Values that are right each, but not together.
    #[error("{}: {message}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// Which ones, and what to do.
        message: String,
    },
    /// `${NAME}` in an environment table has no value on this machine.
    #[error(
        "{}: `env.{key}` needs the environment variable `{variable}`, which is not set; set it, or write `${{{variable}:-default}}`",
        path.display()
    )]
    Variable {
        /// task.toml.
        path: PathBuf,
        /// Key of the table.
        key: String,
        /// The missing variable.
        variable: String,
    },
    /// A task index that cannot be read or written.
    #[error("{}: not a readable task index: {reason}", path.display())]
    Index {
        /// The file.
        path: PathBuf,
        /// Damage, missing column, wrong type.
        reason: String,
    },
}
