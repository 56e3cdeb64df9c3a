//! One line of the ledger.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::trajectory::EpisodeId;

/// Version of a line.
pub(super) const VERSION: u32 = 1;

/// What an entry says of its episodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LedgerKind {
    /// An update took them.
    Consumed,
    /// They were left out for good, as stale or for another reason.
    Dropped,
    /// What earlier entries of updates after `update` say holds no more; the episodes are available again.
    Void,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LedgerEntry {
    /// Version of the line.
    pub v: u32,
    /// Position in the ledger, from 0.
    pub seq: u64,
    /// What it says.
    pub kind: LedgerKind,
    /// The update that consumed or dropped; for `void`, the last one that the checkpoint holds.
    pub update: u64,
    /// The episodes.
    pub episode_ids: Vec<EpisodeId>,
    /// Why, for `dropped` and `void`.
    pub reason: Option<String>,
}
