//! Training from shards alone: which episodes each step takes, as a pure function of the seed.
//!
//! The plan names places in a list of entries and reads nothing itself, so that a resumed run continues
//! with the step it was interrupted in.

use super::batch::split_mini_batches;
use crate::trajectory::{Episode, EpisodeId, GroupId};

/// An episode that a shard holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// The episode.
    pub episode_id: EpisodeId,
    /// Its group, which trains as a whole.
    pub group_id: GroupId,
}

impl From<&Episode> for ShardEntry {
    fn from(episode: &Episode) -> Self {
        Self {
            episode_id: episode.episode_id.clone(),
            group_id: episode.group_id.clone(),
        }
    }
}

/// Shards that no plan can be made of.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum OfflineError {
    /// No rows at all.
    #[error("the shards hold no episode to train on")]
    Empty,
    /// The same episode twice, which would train its tokens twice in a step.
    #[error("episode {0} is in the shards twice; name each shard once")]
    Twice(EpisodeId),
    /// More than one pass in reinforcement learning.
    #[error(
        "data.epochs is {0}: a sampled token trains at most once, so that episodes with rewards allow one epoch; \
         only algorithm = \"sft\" goes through its shards again"
    )]
    Epochs(u32),
}

/// Which entries each step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfflinePlan {
    /// Entries that belong together: one each for supervised training, a group each else.
    units: Vec<Vec<usize>>,
    per_step: usize,
    steps: u64,
    seed: u64,
}

impl OfflinePlan {
    /// Supervised training: at most `per_step` episodes a step, for `steps` steps or `epochs` passes, whichever
    /// is fewer. Each pass has its own order, and its steps are as even as may be.
    pub fn supervised(
        entries: &[ShardEntry],
        per_step: usize,
        steps: u32,
        epochs: Option<u32>,
        seed: u64,
    ) -> Result<Self, OfflineError> {
        let units = unique(entries)?.into_iter().map(|entry| vec![entry]).collect();
        Ok(Self::new(units, per_step, steps, epochs, seed))
    }

    /// Reinforcement learning: at most `per_step` groups a step, for `steps` steps or until each group was taken
    /// once.
    pub fn reinforcement(
        entries: &[ShardEntry],
        per_step: usize,
        steps: u32,
        epochs: Option<u32>,
        seed: u64,
    ) -> Result<Self, OfflineError> {
        if let Some(epochs) = epochs.filter(|&epochs| epochs > 1) {
            return Err(OfflineError::Epochs(epochs));
        }
        let mut order = unique(entries)?;
        order.sort_by_key(|&entry| (&entries[entry].group_id, &entries[entry].episode_id));
        let units = order
            .chunk_by(|&a, &b| entries[a].group_id == entries[b].group_id)
            .map(<[usize]>::to_vec)
            .collect();
        Ok(Self::new(units, per_step, steps, Some(1), seed))
    }

    fn new(units: Vec<Vec<usize>>, per_step: usize, steps: u32, epochs: Option<u32>, seed: u64) -> Self {
        let per_step = per_step.max(1);
        let per_epoch = units.len().div_ceil(per_step) as u64;
        let steps = u64::from(steps).min(epochs.map_or(u64::MAX, |epochs| per_epoch * u64::from(epochs)));
        Self {
            units,
            per_step,
            steps,
            seed,
        }
    }

    /// Steps in the plan.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Entries of step `step` (the first is 1); empty beyond the plan.
    pub fn entries(&self, step: u64) -> Vec<usize> {
        if step == 0 || step > self.steps {
            return Vec::new();
        }
        let per_epoch = self.units.len().div_ceil(self.per_step) as u64;
        let (epoch, place) = ((step - 1) / per_epoch, (step - 1) % per_epoch);
        let batches = split_mini_batches(self.units.len(), self.per_step, self.seed, epoch);
        batches[place as usize]
            .iter()
            .flat_map(|&unit| self.units[unit].iter().copied())
            .collect()
    }
}

/// Places of the entries in the order of their ids, each id once.
fn unique(entries: &[ShardEntry]) -> Result<Vec<usize>, OfflineError> {
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_by_key(|&entry| &entries[entry].episode_id);
    if order.is_empty() {
        return Err(OfflineError::Empty);
    }
    match order
        .windows(2)
        .find(|pair| entries[pair[0]].episode_id == entries[pair[1]].episode_id)
    {
        Some(pair) => Err(OfflineError::Twice(entries[pair[0]].episode_id.clone())),
        None => Ok(order),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(groups: usize, size: usize) -> Vec<ShardEntry> {
        (0..groups * size)
            .map(|place| ShardEntry {
                episode_id: format!("e{place:03}").as_str().into(),
                group_id: format!("g{:02}", place % groups).as_str().into(),
            })
            .collect()
    }

    fn all(plan: &OfflinePlan) -> Vec<usize> {
        let mut all: Vec<usize> = (1..=plan.steps()).flat_map(|step| plan.entries(step)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn an_epoch_takes_each_episode_once_and_each_epoch_has_its_own_order() {
        let entries = entries(5, 2);
        let plan = OfflinePlan::supervised(&entries, 4, 1000, Some(2), 42).unwrap();
        assert_eq!(plan.steps(), 6);
        let epoch = |from: u64| (from..from + 3).flat_map(|step| plan.entries(step)).collect::<Vec<_>>();
        assert_ne!(epoch(1), epoch(4));
        let mut first = epoch(1);
        first.sort_unstable();
        assert_eq!(first, (0..10).collect::<Vec<_>>());
        assert!(plan.entries(7).is_empty());
        assert_eq!(OfflinePlan::supervised(&entries, 4, 5, None, 42).unwrap().steps(), 5);
    }

    #[test]
    fn groups_stay_together_and_train_once() {
        let entries = entries(5, 3);
        let plan = OfflinePlan::reinforcement(&entries, 2, 1000, None, 42).unwrap();
        assert_eq!(plan.steps(), 3);
        assert_eq!(all(&plan), (0..15).collect::<Vec<_>>());
        for step in 1..=3 {
            let mut groups: Vec<_> = plan
                .entries(step)
                .into_iter()
                .map(|entry| &entries[entry].group_id)
                .collect();
            groups.dedup();
            assert!(groups.len() <= 2 && plan.entries(step).len() == groups.len() * 3);
        }
        assert_eq!(
            OfflinePlan::reinforcement(&entries, 2, 9, Some(3), 1),
            Err(OfflineError::Epochs(3))
        );
    }

    #[test]
    fn the_order_of_the_shards_does_not_matter() {
        let forward = entries(4, 2);
        let backward: Vec<ShardEntry> = forward.iter().rev().cloned().collect();
        let ids = |entries: &[ShardEntry]| -> Vec<EpisodeId> {
            let plan = OfflinePlan::supervised(entries, 3, 4, None, 7).unwrap();
            (1..=4)
                .flat_map(|step| plan.entries(step))
                .map(|entry| entries[entry].episode_id.clone())
                .collect()
        };
        assert_eq!(ids(&forward), ids(&backward));
    }

    #[test]
    fn nothing_and_twice_the_same_are_refused() {
        assert_eq!(OfflinePlan::supervised(&[], 1, 1, None, 1), Err(OfflineError::Empty));
        let twice = [entries(1, 1), entries(1, 1)].concat();
        let text = OfflinePlan::reinforcement(&twice, 1, 1, None, 1)
            .unwrap_err()
            .to_string();
        assert!(text.contains("e000 is in the shards twice"), "{text}");
    }
}
