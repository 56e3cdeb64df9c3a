//! Episodes of a step, gathered by task, with their advantages.

use std::collections::BTreeMap;

use super::advantage::{Algorithm, Group};
use super::filter::{Filtered, Kept};
use crate::trajectory::{Episode, GroupId, Segment};

/// An episode with what it weighs in the update.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) episode: &'a Episode,
    /// Whether its tokens may train.
    pub(super) in_loss: bool,
    pub(super) advantage: f32,
    /// Tokens over all its segments that the policy sampled and that train: 0 when it is not in the loss.
    pub(super) trained_tokens: usize,
}

/// What a mini-batch selects: a group, or in supervised training one episode.
#[derive(Debug)]
pub(super) struct Unit<'a> {
    pub(super) members: Vec<Member<'a>>,
    pub(super) has_signal: bool,
}

/// Gathers the kept episodes into groups and gives each its advantage.
///
/// The order does not depend on the order of arrival. `group_size` is the configured size, where there is
/// one; dropped episodes count as sampled, so that a group that they have shrunk is recognised.
pub(super) fn gather<'a>(
    episodes: &'a [Episode],
    filtered: &Filtered<'a>,
    algorithm: &dyn Algorithm,
    group_size: Option<usize>,
) -> Vec<Unit<'a>> {
    let mut delivered: BTreeMap<&GroupId, usize> = BTreeMap::new();
    for episode in episodes {
        *delivered.entry(&episode.group_id).or_default() += 1;
    }
    let mut kept = filtered.kept.clone();
    kept.sort_by_key(|kept| {
        let episode = kept.episode;
        (&episode.group_id, &episode.trial_name, &episode.episode_id)
    });
    let alone = !algorithm.needs_rewards();
    let chunks: Vec<&[Kept<'a>]> = kept
        .chunk_by(|a, b| !alone && a.episode.group_id == b.episode.group_id)
        .collect();
    let groups: Vec<Group> = chunks
        .iter()
        .map(|chunk| Group {
            returns: if alone {
                Vec::new()
            } else {
                chunk.iter().filter_map(|kept| kept.episode.reward).collect()
            },
            size: chunk.len(),
            sampled: delivered[&chunk[0].episode.group_id].max(group_size.unwrap_or(0)),
        })
        .collect();
    let advantages = algorithm.advantages(&groups);
    chunks
        .into_iter()
        .zip(&groups)
        .zip(advantages)
        .map(|((chunk, group), advantages)| Unit {
            members: chunk
                .iter()
                .zip(advantages)
                .map(|(kept, advantage)| Member::new(*kept, advantage))
                .collect(),
            has_signal: group.has_signal(),
        })
        .collect()
}

impl<'a> Member<'a> {
    fn new(kept: Kept<'a>, advantage: f32) -> Self {
        let trained: usize = kept.episode.segments.iter().map(Segment::trained_tokens).sum();
        Self {
            episode: kept.episode,
            in_loss: kept.in_loss,
            advantage,
            trained_tokens: if kept.in_loss { trained } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FilterSection, HackPolicy};
    use crate::train::Filter;
    use crate::train::advantage::{Grpo, Rloo, Supervised};
    use crate::train::fixture::episode;
    use crate::trajectory::Outcome;

    fn filter() -> Filter {
        Filter::from_sections(&FilterSection::default(), HackPolicy::Flag).unwrap()
    }

    fn advantages(units: &[Unit]) -> Vec<f32> {
        units
            .iter()
            .flat_map(|unit| unit.members.iter().map(|member| member.advantage))
            .collect()
    }

    #[test]
    fn a_dropped_episode_does_not_move_the_baseline() {
        // [1, 1, 0, 0*] with the last one dropped: the baseline is over three.
        let mut episodes: Vec<_> = [("a", 1.0), ("b", 1.0), ("c", 0.0), ("d", 0.0)]
            .map(|(id, r)| episode(id, "g", Some(r)))
            .into();
        episodes[3].outcome = Outcome::InfraError;
        let filtered = filter().apply(&episodes, false);
        let units = gather(&episodes, &filtered, &Grpo { norm_by_std: false }, Some(4));
        let expected = [1.0 / 3.0, 1.0 / 3.0, -2.0 / 3.0];
        for (found, expected) in advantages(&units).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-6);
        }
        assert_eq!(units[0].members.len(), 3);
    }

    #[test]
    fn a_group_shrunk_to_one_has_no_signal() {
        let mut episodes = vec![episode("a", "g", Some(1.0)), episode("b", "g", Some(1.0))];
        episodes[1].outcome = Outcome::Cancelled;
        let filtered = filter().apply(&episodes, false);
        let units = gather(&episodes, &filtered, &Rloo, None);
        assert!(!units[0].has_signal);
        assert_eq!(advantages(&units), [0.0]);
        // The same when the lost one was never delivered.
        let filtered = filter().apply(&episodes[..1], false);
        assert!(!gather(&episodes[..1], &filtered, &Rloo, Some(2))[0].has_signal);
        assert!(gather(&episodes[..1], &filtered, &Rloo, Some(1))[0].has_signal);
    }

    #[test]
    fn the_order_of_arrival_does_not_matter_and_demonstrations_stand_alone() {
        let episodes = [("b", "h"), ("a", "h"), ("c", "g")].map(|(id, group)| episode(id, group, Some(1.0)));
        let filtered = filter().apply(&episodes, true);
        let units = gather(&episodes, &filtered, &Supervised, Some(8));
        let ids: Vec<_> = units
            .iter()
            .map(|unit| unit.members[0].episode.episode_id.0.as_str())
            .collect();
        assert_eq!(ids, ["c", "a", "b"]);
        assert_eq!(advantages(&units), [1.0; 3]);
    }
}
