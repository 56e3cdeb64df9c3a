//! `published.json`: what the trainer says to rollouters.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Meeting, MeetingError};
use crate::trajectory::PolicyVersion;

const NAME: &str = "published.json";

/// What gives the order of groups: the same for all that meet, or they would not mean the same group by its number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Order {
    /// `run.seed`
    pub seed: u64,
    /// Tasks of `data.train`.
    pub tasks: u64,
    /// SHA-256 of their ids in order.
    pub tasks_sha256: String,
    /// `data.shuffle`
    pub shuffle: bool,
    /// `data.epochs`
    pub epochs: Option<u32>,
    /// Groups of an update.
    pub required: u32,
    /// Trials of a group.
    pub trials: u32,
    /// Whatever else decides what a trial samples and what it is worth, by its key.
    pub settings: BTreeMap<String, String>,
}

impl Order {
    /// The key in which two differ, with both values.
    pub fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        let pairs = [
            ("run.seed", self.seed.to_string(), other.seed.to_string()),
            (
                "data.train",
                format!("{} tasks", self.tasks),
                format!("{} tasks", other.tasks),
            ),
            ("data.train", self.tasks_sha256.clone(), other.tasks_sha256.clone()),
            ("data.shuffle", self.shuffle.to_string(), other.shuffle.to_string()),
            (
                "data.epochs",
                format!("{:?}", self.epochs),
                format!("{:?}", other.epochs),
            ),
            (
                "rollout.groups_per_step",
                self.required.to_string(),
                other.required.to_string(),
            ),
            ("rollout.group_size", self.trials.to_string(), other.trials.to_string()),
        ];
        let named = pairs
            .into_iter()
            .map(|(key, mine, theirs)| (key.to_owned(), mine, theirs));
        let unset = || "unset".to_owned();
        let keys: BTreeSet<&String> = self.settings.keys().chain(other.settings.keys()).collect();
        let others = keys.into_iter().map(|key| {
            let of = |settings: &BTreeMap<String, String>| settings.get(key).cloned().unwrap_or_else(unset);
            (key.clone(), of(&self.settings), of(&other.settings))
        });
        named.chain(others).find(|(_, mine, theirs)| mine != theirs)
    }
}

/// What the trainer says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Published {
    /// Version of the object.
    pub v: u32,
    /// Counted up while it lives, whatever else changes.
    pub beat: u64,
    /// Its run, by a name that no other has: a place is that of one run.
    pub run: String,
    /// Whether it has ended, and nothing more is to be sampled.
    pub finished: bool,
    /// Updates so far.
    pub step: u32,
    /// The weights to sample by.
    #[schemars(with = "String")]
    pub version: PolicyVersion,
    /// Their folder below `weights/`.
    pub weights: String,
    /// The order of groups.
    pub order: Order,
    /// The last step of which every group is settled.
    pub settled_step: u32,
    /// The task that the next one begins with.
    pub cursor: u64,
    /// Groups of the steps up to `settled_step`.
    pub settled_groups: u64,
    /// Number of the first group that may not begin yet: the bound on staleness.
    pub begin_below: u64,
}

impl Published {
    /// Version of the object.
    pub const VERSION: u32 = 1;
}

impl Meeting {
    /// What the trainer said last.
    pub async fn published(&self) -> Result<Option<Published>, MeetingError> {
        let published: Option<Published> = self.get(NAME, "what a trainer published").await?;
        match published {
            Some(found) if found.v != Published::VERSION => Err(MeetingError::Damaged {
                object: format!("{}/{NAME}", self.place()),
                expected: "version 1",
                reason: format!("version {}", found.v),
            }),
            found => Ok(found),
        }
    }

    /// Says it.
    pub async fn publish(&self, published: &Published) -> Result<(), MeetingError> {
        self.put(NAME, published).await
    }
}
