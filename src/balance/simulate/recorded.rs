//! Sessions as they were: turns read off rollout shards.
//!
//! A main conversation's segments are one session: each run of sampled tokens is a turn, all before it is its prompt. What all
//! first prompts begin with is shared. Shards hold no single times: the time of an episode in which no answer was waited for is
//! spread over its turns as a log-normal of the recorded 90th percentile would be.

use std::collections::BTreeMap;
use std::path::Path;

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha8Rng;

use super::workload::{Session, Turn, normal};
use crate::shard::{Row, ShardError, ShardReader};
use crate::trajectory::TokenId;

/// Columns that are read.
const COLUMNS: [&str; 9] = [
    "episode_id",
    "segment_index",
    "is_main_agent",
    "prompt_ids",
    "response_ids",
    "response_mask",
    "agent_s",
    "model_s",
    "tool_gap_p90_s",
];

/// Nine of ten standard normal values are below it.
const P90: f64 = 1.2816;
/// A wider spread than this no log-normal's mean and 90th percentile tell of.
const WIDEST: f64 = P90;

/// Sessions of shards.
#[derive(Debug, Clone, PartialEq)]
pub struct Recorded {
    sessions: Vec<Session>,
    shared: u64,
    /// Conversations of sub-agents, which are not played.
    left_out: usize,
}

/// Why shards are no load.
#[derive(Debug, thiserror::Error)]
pub enum RecordedError {
    /// They cannot be read.
    #[error(transparent)]
    Shards(#[from] ShardError),
    /// No turn is in them.
    #[error("{place}: none of {rows} rows has sampled tokens: there is no session to play")]
    Empty {
        /// The shards.
        place: String,
        /// Rows read.
        rows: usize,
    },
}

impl Recorded {
    /// The sessions of the shards in a file or folder, in an order that the seed makes.
    ///
    /// # Errors
    /// They cannot be read, or hold no session.
    pub fn open(place: &Path, seed: u64) -> Result<Self, RecordedError> {
        let rows = ShardReader::open(&[place])?.with_columns(&COLUMNS)?.rows_local()?;
        let count = rows.len();
        Self::of(rows, seed).ok_or_else(|| RecordedError::Empty {
            place: place.display().to_string(),
            rows: count,
        })
    }

    /// The sessions of these rows; `None`: nothing was sampled in them.
    fn of(rows: Vec<Row>, seed: u64) -> Option<Self> {
        let mut episodes: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        let mut left_out = 0;
        for row in rows {
            if row.response_ids.as_ref().is_none_or(Vec::is_empty) {
                continue;
            }
            if row.is_main_agent {
                episodes.entry(row.episode_id.clone()).or_default().push(row);
            } else {
                left_out += 1;
            }
        }
        for rows in episodes.values_mut() {
            rows.sort_by_key(|row| row.segment_index);
        }
        let firsts = episodes.values().filter_map(|rows| rows[0].prompt_ids.as_deref());
        let shared = shared(firsts);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let sessions = episodes.values().filter_map(|rows| session(rows, shared, &mut rng));
        let mut sessions: Vec<Session> = sessions.collect();
        sessions.shuffle(&mut rng);
        (!sessions.is_empty()).then_some(Self {
            sessions,
            shared,
            left_out,
        })
    }

    /// Tokens that every session begins with.
    pub fn shared(&self) -> u64 {
        self.shared
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.sessions.len()
    }

    /// Conversations of sub-agents, which are not played: how they lie beside the main one is not recorded.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Own tokens of the longest turn, answer included.
    pub(super) fn longest(&self) -> u64 {
        let turns = self.sessions.iter().flat_map(|session| &session.turns);
        turns.map(|turn| turn.prompt + turn.answer).max().unwrap_or(0)
    }

    /// The session of this number: each once, then all again.
    pub(super) fn session(&self, number: u64) -> Session {
        let at = number as usize % self.sessions.len();
        self.sessions[at].clone()
    }
}

/// Tokens that all of these begin with; of a prompt at least one is always its own.
fn shared<'a>(mut prompts: impl Iterator<Item = &'a [TokenId]>) -> u64 {
    let Some(first) = prompts.next() else { return 0 };
    let mut same = first.len().saturating_sub(1);
    for prompt in prompts {
        same = same.min(common(first, prompt)).min(prompt.len().saturating_sub(1));
    }
    same as u64
}

fn common(one: &[TokenId], other: &[TokenId]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// The session of an episode's segments, in order.
fn session(rows: &[Row], shared: u64, rng: &mut ChaCha8Rng) -> Option<Session> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut before: Vec<TokenId> = Vec::new();
    for row in rows {
        let (Some(prompt), Some(response)) = (&row.prompt_ids, &row.response_ids) else {
            continue;
        };
        let whole: Vec<TokenId> = prompt.iter().chain(response).copied().collect();
        // A history that was written anew shares only its beginning with what was cached.
        let mut kept = common(&before, &whole) as u64;
        for (start, end) in answers(row.response_mask.as_deref().unwrap_or_default()) {
            let context = (prompt.len() + start) as u64;
            turns.push(Turn {
                prompt: context.saturating_sub(shared).max(1),
                answer: (end - start) as u64,
                kept: kept.min(context).saturating_sub(shared),
                gap: 0.0,
            });
            kept = (prompt.len() + end) as u64;
        }
        before = whole;
    }
    let first = rows.first()?;
    let idle = f64::from(first.agent_s - first.model_s).max(0.0);
    let most = turns.len().checked_sub(1)?;
    for (turn, gap) in turns.iter_mut().zip(gaps(idle, first.tool_gap_p90_s.into(), most, rng)) {
        turn.gap = gap;
    }
    Some(Session { turns })
}

/// Where runs of sampled tokens begin and end.
fn answers(mask: &[u8]) -> Vec<(usize, usize)> {
    let mut runs = Vec::new();
    let mut start = None;
    for (at, &sampled) in mask.iter().chain(&[0]).enumerate() {
        match (sampled != 0, start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                runs.push((from, at));
                start = None;
            }
            _ => {}
        }
    }
    runs
}

/// So many gaps that come to `idle` seconds together, spread as a log-normal with this 90th percentile.
fn gaps(idle: f64, p90: f64, count: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mean = idle / count.max(1) as f64;
    // Of a log-normal, ln(p90 / mean) = P90·σ − σ²/2.
    let ratio = if mean > 0.0 && p90 > mean {
        (p90 / mean).ln()
    } else {
        0.0
    };
    let sigma = (P90 - (P90 * P90 - 2.0 * ratio).max(0.0).sqrt()).min(WIDEST);
    let drawn: Vec<f64> = (0..count).map(|_| (sigma * normal(rng)).exp()).collect();
    let sum: f64 = drawn.iter().sum();
    drawn.into_iter().map(|gap| gap * idle / sum.max(1e-9)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(episode: &str, segment: i32, prompt: &[TokenId], mask: &[u8]) -> Row {
        Row {
            episode_id: episode.to_owned(),
            segment_index: segment,
            is_main_agent: true,
            prompt_ids: Some(prompt.to_vec()),
            response_ids: Some((0..mask.len() as u32).map(|at| 100 + at).collect()),
            response_mask: Some(mask.to_vec()),
            agent_s: 30.0,
            model_s: 10.0,
            tool_gap_p90_s: 15.0,
            ..Row::default()
        }
    }

    #[test]
    fn turns_are_the_runs_of_sampled_tokens() {
        let rows = vec![
            row("a", 0, &[1, 2, 3, 4], &[1, 1, 0, 0, 0, 1]),
            row("b", 0, &[1, 2, 9], &[1, 1, 1]),
            Row {
                is_main_agent: false,
                ..row("b", 1, &[7], &[1])
            },
            Row {
                response_ids: None,
                ..row("c", 0, &[5], &[])
            },
        ];
        let recorded = Recorded::of(rows, 1).unwrap();
        assert_eq!((recorded.shared(), recorded.count(), recorded.left_out()), (2, 2, 1));
        let mut sessions = [recorded.session(0), recorded.session(1)];
        assert_eq!(recorded.session(2), sessions[0], "all again");
        sessions.sort_by_key(|session| session.turns.len());
        let sizes = |session: &Session| -> Vec<_> {
            let turns = session.turns.iter();
            turns.map(|turn| (turn.prompt, turn.answer, turn.kept)).collect()
        };
        assert_eq!(sizes(&sessions[0]), [(1, 3, 0)]);
        // Own tokens: two of the prompt; then these, the answer and three of the tool.
        assert_eq!(sizes(&sessions[1]), [(2, 2, 0), (7, 1, 4)]);
        assert!((sessions[1].turns[0].gap - 20.0).abs() < 1e-6, "all of its idle time");
        assert_eq!(recorded.longest(), 8);
        assert_eq!(Recorded::of(Vec::new(), 1), None);
    }

    #[test]
    fn a_history_that_was_written_anew_keeps_its_beginning() {
        let rows = vec![
            row("a", 1, &[1, 2, 50, 51, 52], &[1]),
            row("a", 0, &[1, 2, 3, 4], &[1, 1]),
            row("b", 0, &[1, 8], &[1]),
        ];
        let recorded = Recorded::of(rows, 1).unwrap();
        let long = (0..2)
            .map(|at| recorded.session(at))
            .find(|session| session.turns.len() == 2);
        let turns = long.unwrap().turns;
        assert_eq!((recorded.shared(), turns[1].prompt, turns[1].kept), (1, 4, 1));
    }

    #[test]
    fn gaps_come_to_the_idle_time_and_spread_as_recorded() {
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut spread = gaps(4_000.0, 8.0, 1_000, &mut rng);
        assert!((spread.iter().sum::<f64>() - 4_000.0).abs() < 1e-6);
        spread.sort_by(f64::total_cmp);
        assert!((spread[900] / 8.0 - 1.0).abs() < 0.15, "{}", spread[900]);
        let even = gaps(10.0, 0.0, 4, &mut rng);
        assert!(even.iter().all(|gap| (gap - 2.5).abs() < 1e-9));
        assert_eq!(gaps(10.0, 3.0, 0, &mut rng), Vec::<f64>::new());
    }
}
