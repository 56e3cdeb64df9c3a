//! Rows of many episodes, sorted out: each episode whole, of several tries the last, and everything that is wrong.

use std::collections::HashMap;

use super::episodes::{episode, invariant};
use super::{Row, ShardError, verify_row};
use crate::trajectory::{Episode, EpisodeId};

/// Rows, sorted out.
#[derive(Debug, Default)]
pub struct Sorted {
    /// Episodes of which nothing is wrong, in the order of their first rows.
    pub episodes: Vec<Episode>,
    /// Everything that is wrong, in the order of the rows.
    pub faults: Vec<ShardError>,
    /// A row of each episode of which something is.
    pub faulty: Vec<Row>,
}

/// Rows back to episodes, in the order of their first rows; every row is verified.
///
/// An episode of which a segment is missing or there twice is an error: training on half of one would
/// shift its group's baseline. Of several tries at an episode, which their `attempt` tells apart, the last
/// counts. What a shard does not hold is restored as far as it follows: `trial_id` is
/// the episode's id, `sampled_tokens` the trained tokens over `delivered_fraction`; `num_parse_errors` is 0.
pub fn group_episodes(rows: impl IntoIterator<Item = Row>) -> Result<Vec<Episode>, ShardError> {
    let mut sorted = sort_rows(rows);
    if sorted.faults.is_empty() {
        Ok(sorted.episodes)
    } else {
        Err(sorted.faults.swap_remove(0))
    }
}

/// The same, for who wants to know everything that is wrong: an episode with a fault hides no other.
pub fn sort_rows(rows: impl IntoIterator<Item = Row>) -> Sorted {
    let mut sorted = Sorted::default();
    let mut order: Vec<(Vec<Row>, bool)> = Vec::new();
    let mut places: HashMap<(String, i32), usize> = HashMap::new();
    for row in rows {
        let place = *places
            .entry((row.episode_id.clone(), row.attempt))
            .or_insert(order.len());
        if place == order.len() {
            order.push((Vec::new(), false));
        }
        let (of_episode, faulty) = &mut order[place];
        if let Err(fault) = verify_row(&row) {
            sorted.faults.push(fault);
            *faulty = true;
        }
        of_episode.push(row);
    }
    let mut tries = Vec::new();
    for (mut rows, faulty) in order {
        if faulty {
            sorted.faulty.extend(rows.pop());
            continue;
        }
        let first = rows.first().cloned();
        match episode(rows) {
            Ok(whole) => tries.push(whole),
            Err(fault) => {
                sorted.faults.push(fault);
                sorted.faulty.extend(first);
            }
        }
    }
    sorted.last_tries(tries);
    sorted
}

impl Sorted {
    /// Takes the last try at each episode. An earlier one that was graded is a fault: its reward would be lost.
    fn last_tries(&mut self, tries: Vec<Episode>) {
        let mut places: HashMap<EpisodeId, usize> = HashMap::new();
        for mut episode in tries {
            let place = *places.entry(episode.episode_id.clone()).or_insert(self.episodes.len());
            let Some(other) = self.episodes.get_mut(place) else {
                self.episodes.push(episode);
                continue;
            };
            if other.attempt < episode.attempt {
                std::mem::swap(other, &mut episode);
            }
            if episode.outcome.is_graded() {
                let reason = format!(
                    "try {} was graded, yet there is try {}; shards of two rollouts are mixed",
                    episode.attempt, other.attempt
                );
                self.faults.push(invariant(episode.episode_id.0, 0, reason));
            }
        }
    }
}
