//! What can be wrong with a run config, as data: `commands` draws it.

use std::path::PathBuf;

use super::source::Location;

/// Why a run config cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read `{}`", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Who asked for it, where another file did.
        wanted_by: Option<Location>,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Something in it is wrong; every fault that was found, in the order of the keys.
    #[error("{} ({}{})", faults[0].problem, faults[0].key_or_place(), more(faults.len()))]
    Invalid {
        /// At least one.
        faults: Vec<Fault>,
    },
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq)]
pub struct Fault {
    /// The whole key, `rollout.group_size`; empty where no key is meant.
    pub key: String,
    /// What is wrong.
    pub problem: Problem,
    /// Where it was written; absent where it was not written at all.
    pub at: Option<Location>,
    /// What to do about it.
    pub help: Option<String>,
}

/// What is wrong.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Problem {
    /// No TOML.
    #[error("{0}")]
    Syntax(String),
    /// No such key.
    #[error("unknown key `{found}`, expected one of {}", quoted(expected))]
    UnknownKey {
        /// The key.
        found: String,
        /// Those that there are.
        expected: Vec<String>,
    },
    /// No such choice.
    #[error("unknown value `{found}`, expected one of {}", quoted(expected))]
    UnknownValue {
        /// The value.
        found: String,
        /// Those that there are.
        expected: Vec<String>,
    },
    /// A key, section or value that the documentation names but no part uses yet.
    #[error("`{0}` is not supported yet")]
    NotSupportedYet(String),
    /// The wrong type, or a number out of range.
    #[error("expected {expected}, found {found}")]
    WrongValue {
        /// In people's words.
        expected: String,
        /// The same.
        found: String,
    },
    /// Values that do not go together, or a value that is missing.
    #[error("{0}")]
    Conflict(String),
}

impl Fault {
    /// The key, else the place.
    fn key_or_place(&self) -> String {
        match &self.at {
            Some(at) if self.key.is_empty() => at.to_string(),
            Some(at) => format!("{} at {at}", self.key),
            None => self.key.clone(),
        }
    }
}

impl From<Fault> for ConfigError {
    fn from(fault: Fault) -> Self {
        Self::Invalid { faults: vec![fault] }
    }
}

fn more(faults: usize) -> String {
    if faults > 1 {
        format!(", and {} more", faults - 1)
    } else {
        String::new()
    }
}

/// `a`, `b`, `c`.
fn quoted(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
