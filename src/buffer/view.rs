//! What the entries of a ledger come to.

use std::collections::{BTreeSet, HashMap};

use super::{LedgerEntry, LedgerKind};
use crate::trajectory::EpisodeId;

/// What became of an episode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// This update took it.
    Consumed {
        /// Which.
        update: u64,
    },
    /// It was left out for good.
    Dropped {
        /// During which update.
        update: u64,
        /// Why.
        reason: String,
    },
}

impl Fate {
    fn update(&self) -> u64 {
        match self {
            Self::Consumed { update } | Self::Dropped { update, .. } => *update,
        }
    }
}

impl std::fmt::Display for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Consumed { update } => write!(f, "consumed by update {update}"),
            Self::Dropped { update, reason } => write!(f, "dropped at update {update} ({reason})"),
        }
    }
}

/// Consumed and dropped episodes; whatever else is in the shards is available.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerView {
    fates: HashMap<EpisodeId, Fate>,
}

impl LedgerView {
    /// What became of an episode; `None` while it is available.
    pub fn fate(&self, episode: &EpisodeId) -> Option<&Fate> {
        self.fates.get(episode)
    }

    /// Whether an episode may still train.
    pub fn is_available(&self, episode: &EpisodeId) -> bool {
        !self.fates.contains_key(episode)
    }

    /// Consumed episodes with their updates, in no order.
    pub fn consumed(&self) -> impl Iterator<Item = (&EpisodeId, u64)> {
        self.fates.iter().filter_map(|(episode, fate)| match fate {
            Fate::Consumed { update } => Some((episode, *update)),
            Fate::Dropped { .. } => None,
        })
    }

    /// Dropped episodes with their reasons, in no order.
    pub fn dropped(&self) -> impl Iterator<Item = (&EpisodeId, &str)> {
        self.fates.iter().filter_map(|(episode, fate)| match fate {
            Fate::Consumed { .. } => None,
            Fate::Dropped { reason, .. } => Some((episode, reason.as_str())),
        })
    }

    /// The updates that settled anything.
    pub fn updates(&self) -> BTreeSet<u64> {
        self.fates.values().map(Fate::update).collect()
    }

    /// Episodes whose fate was settled by an update after `update`, sorted.
    pub fn settled_after(&self, update: u64) -> Vec<EpisodeId> {
        let later = self.fates.iter().filter(|(_, fate)| fate.update() > update);
        let mut episodes: Vec<EpisodeId> = later.map(|(episode, _)| episode.clone()).collect();
        episodes.sort();
        episodes
    }

    /// The first episode of an entry whose fate was settled before: such an entry must not be taken in.
    pub(super) fn conflict<'a>(&'a self, entry: &'a LedgerEntry) -> Option<(&'a EpisodeId, &'a Fate)> {
        if entry.kind == LedgerKind::Void {
            return None;
        }
        entry.episode_ids.iter().find_map(|id| self.fates.get_key_value(id))
    }

    /// Takes in the next entry.
    pub(super) fn apply(&mut self, entry: &LedgerEntry) {
        let update = entry.update;
        let fate = match entry.kind {
            LedgerKind::Void => return self.fates.retain(|_, fate| fate.update() <= update),
            LedgerKind::Consumed => Fate::Consumed { update },
            LedgerKind::Dropped => Fate::Dropped {
                update,
                reason: entry.reason.clone().unwrap_or_default(),
            },
        };
        self.fates
            .extend(entry.episode_ids.iter().map(|episode| (episode.clone(), fate.clone())));
    }
}
