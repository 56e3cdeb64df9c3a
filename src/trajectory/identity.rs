//! Names of things that are sampled. Each is its own type, so that one cannot stand for another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A token id of the policy's vocabulary.
pub type TokenId = u32;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub String);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name!(
    /// One proxy session; 128 random bits in hexadecimal, since the sandboxed agent must not guess another's.
    SessionKey
);
name!(
    /// One attempt at a task: unique for ever (a UUIDv7), also across retries.
    TrialId
);
name!(
    /// One trial that counts; the segments of an episode share it.
    EpisodeId
);
name!(
    /// All episodes of one task sampled for one step.
    GroupId
);

/// Stands in front of the step in the names of validation's groups.
const VALIDATION: &str = "eval-";

impl GroupId {
    /// A group that is trained on: `<task>@<step>`.
    pub fn training(task_id: &str, step: u32) -> Self {
        Self(format!("{task_id}@{step}"))
    }

    /// A group that is scored only: `<task>@eval-<step>`.
    pub fn validation(task_id: &str, step: u32) -> Self {
        Self(format!("{task_id}@{VALIDATION}{step}"))
    }

    /// Whether it is scored only, and must never train.
    pub fn is_validation(&self) -> bool {
        self.0
            .rsplit_once('@')
            .is_some_and(|(_, step)| step.starts_with(VALIDATION))
    }

    /// Its episode of this number: `<group>#<index>`.
    pub fn episode(&self, index: u32) -> EpisodeId {
        EpisodeId(format!("{self}#{index}"))
    }
}

impl SessionKey {
    /// A fresh unguessable key.
    pub fn random() -> Self {
        Self(Uuid::new_v4().simple().to_string())
    }
}

impl TrialId {
    /// A fresh id that sorts by time.
    pub fn fresh() -> Self {
        Self(Uuid::now_v7().to_string())
    }
}

/// Which weights: `<lineage>.<update>`.
///
/// A lineage begins each time a run starts or resumes, so that a version is never reused for other
/// weights; `update` counts the optimizer steps that these weights have seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PolicyVersion {
    /// Which start of the run produced the weights.
    pub lineage: u32,
    /// Optimizer steps seen.
    pub update: u64,
}

/// A text that is not `<lineage>.<update>`.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("`{0}` is not a policy version; expected `<lineage>.<update>`, such as `0.12`")]
pub struct VersionParseError(String);

impl fmt::Display for PolicyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.lineage, self.update)
    }
}

impl FromStr for PolicyVersion {
    type Err = VersionParseError;

    fn from_str(text: &str) -> Result<Self, VersionParseError> {
        text.split_once('.')
            .and_then(|(lineage, update)| {
                Some(Self {
                    lineage: lineage.parse().ok()?,
                    update: update.parse().ok()?,
                })
            })
            .ok_or_else(|| VersionParseError(text.to_owned()))
    }
}

impl Serialize for PolicyVersion {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PolicyVersion {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_back_as_it_was_written() {
        let version = PolicyVersion { lineage: 3, update: 41 };
        assert_eq!(version.to_string(), "3.41");
        assert_eq!("3.41".parse(), Ok(version));
        assert_eq!("3".parse::<PolicyVersion>(), Err(VersionParseError("3".to_owned())));
    }

    #[test]
    fn session_keys_do_not_repeat() {
        assert_ne!(SessionKey::random(), SessionKey::random());
        assert_eq!(SessionKey::random().0.len(), 32);
    }
}
