//! What can be wrong with shards.

use std::path::PathBuf;

/// What can be wrong with shards; every message names the file or the episode.
#[derive(Debug, thiserror::Error)]
pub enum ShardError {
    /// The operating system refused; the message of `source` names the path.
    #[error("{source}")]
    Io {
        /// Names operation and path.
        #[from]
        source: std::io::Error,
    },
    /// A file that is damaged, cut short, or no shard at all.
    #[error("{file}: not a readable rollout shard: {reason}")]
    Damaged {
        /// Path or URL.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A shard that a newer release wrote.
    #[error("{file}: written with shard schema {found}, this release reads up to {newest}; upgrade lego to read it")]
    Newer {
        /// Path or URL.
        file: String,
        /// Its version.
        found: u32,
        /// Ours.
        newest: u32,
    },
    /// Rows that break an invariant of the schema.
    #[error("episode {episode}, segment {segment}: {reason}")]
    Invariant {
        /// Which episode.
        episode: String,
        /// Which segment of it.
        segment: i32,
        /// Which invariant, and what was found.
        reason: String,
    },
    /// A place that cannot be listed or reached.
    #[error("{place}: {reason}")]
    Place {
        /// Path or URL.
        place: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// A column that the schema does not have.
    #[error("no column `{name}` in a rollout shard; did you mean `{nearest}`?")]
    Column {
        /// What was asked for.
        name: String,
        /// The nearest that there is.
        nearest: &'static str,
    },
    /// Shards that do not fit each other or the policy.
    #[error("{file}: {what} is {found}, expected {expected}; its token ids mean something else here")]
    Mismatch {
        /// Path or URL.
        file: String,
        /// Tokenizer, template or vocabulary.
        what: &'static str,
        /// The file's.
        found: String,
        /// The policy's.
        expected: String,
    },
    /// A folder that cannot be written as a shard.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What Parquet said.
        reason: String,
    },
}

impl ShardError {
    /// A file that is damaged, cut short, or no shard.
    pub(super) fn damaged(file: &str, reason: &dyn std::fmt::Display) -> Self {
        Self::Damaged {
            file: file.to_owned(),
            reason: reason.to_string(),
        }
    }
}
