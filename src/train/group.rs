//! Episodes of a step, gathered by task, with what their tokens get.

use std::collections::BTreeMap;

use super::advantage::{Algorithm, Credited, Group};
use super::filter::{Filtered, Kept};
use crate::trajectory::{Episode, GroupId, Segment};

/// An episode with what it weighs in the update.
#[derive(Debug)]
pub(super) struct Member<'a> {
    pub(super) episode: &'a Episode,
    /// Whether its tokens may train.
    pub(super) in_loss: bool,
    /// What each of its trained tokens gets, over all segments; nothing before that is decided.
    pub(super) credited: Credited,
    /// What is taken off its reward, over all tokens.
    pub(super) penalty: f64,
    /// Tokens over all its segments that the policy sampled and that train: 0 when it is not in the loss.
    pub(super) trained_tokens: usize,
}

/// What a mini-batch selects: a group, or in supervised training one episode.
#[derive(Debug)]
pub(super) struct Unit<'a> {
    pub(super) members: Vec<Member<'a>>,
    /// What the members are compared by.
    pub(super) group: Group,
    pub(super) has_signal: bool,
}

/// Gathers the kept episodes into groups. A greedy episode that the others are compared with is no member.
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
    let unit = |chunk: &[Kept<'a>]| {
        let is_greedy = |kept: &&Kept<'_>| algorithm.needs_greedy() && kept.episode.sampling.temperature <= 0.0;
        let (greedy, sampled): (Vec<&Kept<'a>>, Vec<&Kept<'a>>) = chunk.iter().partition(is_greedy);
        let returns = sampled.iter().filter_map(|kept| kept.episode.reward);
        let group = Group {
            returns: if alone { Vec::new() } else { returns.collect() },
            size: sampled.len(),
            sampled: delivered[&chunk[0].episode.group_id].max(group_size.unwrap_or(0)),
            lengths: sampled.iter().map(|kept| trained_tokens(kept.episode)).collect(),
            greedy: greedy.first().and_then(|kept| kept.episode.reward),
        };
        Unit {
            members: sampled.into_iter().map(|kept| Member::new(*kept)).collect(),
            has_signal: algorithm.has_signal(&group),
            group,
        }
    };
    chunks
        .into_iter()
        .map(unit)
        .filter(|unit| !unit.members.is_empty())
        .collect()
}

fn trained_tokens(episode: &Episode) -> usize {
    episode.segments.iter().map(Segment::trained_tokens).sum()
}

impl<'a> Member<'a> {
    fn new(kept: Kept<'a>) -> Self {
        Self {
            episode: kept.episode,
            in_loss: kept.in_loss,
            credited: Credited::default(),
            penalty: 0.0,
            trained_tokens: if kept.in_loss { trained_tokens(kept.episode) } else { 0 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FilterSection, HackPolicy};
    use crate::train::Filter;
    use crate::train::advantage::{Grpo, Remax, Rloo, Supervised};
    use crate::train::fixture::episode;
    use crate::trajectory::Outcome;

    fn filter() -> Filter {
        Filter::from_sections(&FilterSection::default(), HackPolicy::Flag).unwrap()
    }

    fn advantages(units: &[Unit], algorithm: &dyn Algorithm) -> Vec<f32> {
        let groups: Vec<Group> = units.iter().map(|unit| unit.group.clone()).collect();
        algorithm.advantages(&groups).concat()
    }

    #[test]
    fn a_dropped_episode_does_not_move_the_baseline() {
        // [1, 1, 0, 0*] with the last one dropped: the baseline is over three.
        let mut episodes: Vec<_> = [("a", 1.0), ("b", 1.0), ("c", 0.0), ("d", 0.0)]
            .map(|(id, r)| episode(id, "g", Some(r)))
            .into();
        episodes[3].outcome = Outcome::InfraError;
        let filtered = filter().apply(&episodes, false);
        let grpo = Grpo { norm_by_std: false };
        let units = gather(&episodes, &filtered, &grpo, Some(4));
        let expected = [1.0 / 3.0, 1.0 / 3.0, -2.0 / 3.0];
        for (found, expected) in advantages(&units, &grpo).iter().zip(expected) {
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
        assert_eq!(advantages(&units, &Rloo), [0.0]);
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
        assert_eq!(advantages(&units, &Supervised), [1.0; 3]);
    }

    #[test]
    fn a_greedy_episode_is_the_baseline_and_no_member() {
        let mut episodes: Vec<_> = [("a", "g", 1.0), ("b", "g", 0.5), ("c", "h", 1.0)]
            .map(|(id, group, r)| episode(id, group, Some(r)))
            .into();
        episodes[1].sampling.temperature = 0.0;
        let filtered = filter().apply(&episodes, false);
        let units = gather(&episodes, &filtered, &Remax, Some(1));
        assert_eq!(units.iter().map(|unit| unit.members.len()).collect::<Vec<_>>(), [1, 1]);
        assert_eq!(
            units.iter().map(|unit| unit.has_signal).collect::<Vec<_>>(),
            [true, false]
        );
        assert_eq!(advantages(&units, &Remax), [0.5, 0.0]);
        // Others take it for a member like any other.
        assert_eq!(gather(&episodes, &filtered, &Rloo, None)[0].members.len(), 2);
    }
}
