//! Metrics of the episodes of a step: scores, advantages, lengths, turns.

use super::group::{Member, Unit};
use super::report::Metrics;
use super::update::Window;
use crate::trajectory::{Episode, Outcome, Segment};

/// Mean, largest and smallest of weighted values.
#[derive(Debug, Clone, Copy)]
struct Spread {
    sum: f64,
    weight: f64,
    max: f64,
    min: f64,
}

impl Spread {
    fn of(values: impl IntoIterator<Item = (f64, f64)>) -> Option<Self> {
        let empty = Self {
            sum: 0.0,
            weight: 0.0,
            max: f64::NEG_INFINITY,
            min: f64::INFINITY,
        };
        let spread = values.into_iter().fold(empty, |spread, (value, weight)| Self {
            sum: spread.sum + value * weight,
            weight: spread.weight + weight,
            max: spread.max.max(value),
            min: spread.min.min(value),
        });
        (spread.weight > 0.0).then_some(spread)
    }

    fn insert(self, name: &str, metrics: &mut Metrics) {
        metrics.insert(format!("{name}/mean"), self.sum / self.weight);
        metrics.insert(format!("{name}/max"), self.max);
        metrics.insert(format!("{name}/min"), self.min);
    }
}

fn spread(name: &str, metrics: &mut Metrics, values: impl Iterator<Item = f64>) {
    if let Some(spread) = Spread::of(values.map(|value| (value, 1.0))) {
        spread.insert(name, metrics);
    }
}

/// Prompt tokens of an episode: its first segment's, up to the prompt window.
fn prompt_length(episode: &Episode, window: Window) -> usize {
    episode
        .segments
        .first()
        .map_or(0, |segment| segment.prompt_ids.len().min(window.prompt))
}

/// Response tokens: of all segments, with the prompts' overflow beyond the window.
fn response_length(episode: &Episode, window: Window) -> usize {
    let overflow = |length: usize| length.saturating_sub(window.prompt);
    episode
        .segments
        .iter()
        .map(|segment| segment.response_ids.len() + overflow(segment.prompt_ids.len()))
        .sum()
}

/// `critic/*`, `response_length/*`, `prompt_length/*`, `num_turns/*`, `num_tool_calls/*`, `training/*` and
/// `perf/total_num_tokens` over kept episodes.
///
/// Scores are one value an episode; advantages and returns one a trained token.
pub(super) fn episodes(units: &[Unit<'_>], window: Window, metrics: &mut Metrics) {
    let members = || units.iter().flat_map(|unit| &unit.members);
    let kept = || members().map(|member: &Member| member.episode);
    for name in ["critic/score", "critic/rewards"] {
        spread(
            name,
            metrics,
            kept().filter_map(|episode| episode.reward).map(f64::from),
        );
    }
    let by_token = || {
        let trained = members().filter(|member| member.trained_tokens > 0);
        Spread::of(trained.map(|member| (f64::from(member.advantage), member.trained_tokens as f64)))
    };
    for name in ["critic/advantages", "critic/returns"] {
        if let Some(spread) = by_token() {
            spread.insert(name, metrics);
        }
    }
    spread(
        "response_length",
        metrics,
        kept().map(|episode| response_length(episode, window) as f64),
    );
    spread(
        "prompt_length",
        metrics,
        kept().map(|episode| prompt_length(episode, window) as f64),
    );
    spread(
        "num_turns",
        metrics,
        kept().map(|episode| f64::from(episode.audit.num_turns)),
    );
    spread(
        "num_tool_calls",
        metrics,
        kept().map(|episode| f64::from(episode.audit.num_tool_calls)),
    );
    let trained: usize = members().map(|member| member.trained_tokens).sum();
    metrics.insert("training/trained_tokens".to_owned(), trained as f64);
    let count = kept().count();
    metrics.insert("training/episodes".to_owned(), count as f64);
    if count > 0 {
        let share =
            |hit: &dyn Fn(&Episode) -> bool| kept().filter(|episode| hit(episode)).count() as f64 / count as f64;
        let clipped = share(&|episode| {
            episode.outcome == Outcome::Overlong || response_length(episode, window) >= window.response
        });
        metrics.insert("response_length/clip_ratio".to_owned(), clipped);
        let overflown = share(&|episode| {
            episode
                .segments
                .first()
                .is_some_and(|first| first.prompt_ids.len() > window.prompt)
        });
        metrics.insert("prompt_length/clip_ratio".to_owned(), overflown);
    }
    let tokens: usize = kept()
        .flat_map(|episode| &episode.segments)
        .map(Segment::total_tokens)
        .sum();
    metrics.insert("perf/total_num_tokens".to_owned(), tokens as f64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{FilterSection, HackPolicy};
    use crate::train::Filter;
    use crate::train::advantage::Grpo;
    use crate::train::fixture::{episode, sampled};
    use crate::train::group::gather;

    #[test]
    fn by_hand() {
        let mut episodes = vec![episode("a", "g", Some(1.0)), episode("b", "g", Some(0.0))];
        episodes[0].segments = vec![sampled(&[1, 2, 3], &[4, 5])];
        episodes[1].segments = vec![sampled(&[1], &[4, 5, 6, 7])];
        episodes[1].audit.num_turns = 3;
        let filtered = Filter::from_sections(&FilterSection::default(), HackPolicy::Flag)
            .unwrap()
            .apply(&episodes, false);
        let units = gather(&episodes, &filtered, &Grpo { norm_by_std: false }, None);
        let mut metrics = Metrics::new();
        super::episodes(&units, Window { prompt: 2, response: 4 }, &mut metrics);
        let expected = [
            ("critic/score/mean", 0.5),
            ("critic/rewards/max", 1.0),
            // +0.5 on 2 tokens, −0.5 on 4.
            ("critic/advantages/mean", -1.0 / 6.0),
            ("critic/returns/min", -0.5),
            ("prompt_length/max", 2.0),
            ("prompt_length/clip_ratio", 0.5),
            ("response_length/mean", 3.5),
            ("response_length/clip_ratio", 0.5),
            ("num_turns/max", 3.0),
            ("perf/total_num_tokens", 10.0),
        ];
        for (name, value) in expected {
            assert!((metrics[name] - value).abs() < 1e-6, "{name}: {}", metrics[name]);
        }
    }
}
