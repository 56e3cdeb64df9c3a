//! Metrics of the episodes of a step: scores, advantages, lengths, turns.

use super::group::{Member, Unit};
use super::report::Metrics;
use super::update::Window;
use crate::trajectory::{Episode, Outcome, Segment};

/// Mean, largest and smallest value; nothing of nothing.
pub(super) fn spread(name: &str, metrics: &mut Metrics, values: impl Iterator<Item = f64>) {
    let (mut count, mut sum, mut max, mut min) = (0.0, 0.0, f64::NEG_INFINITY, f64::INFINITY);
    for value in values {
        (count, sum, max, min) = (count + 1.0, sum + value, value.max(max), value.min(min));
    }
    if count > 0.0 {
        metrics.insert(format!("{name}/mean"), sum / count);
        metrics.insert(format!("{name}/max"), max);
        metrics.insert(format!("{name}/min"), min);
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
    let reward = |member: &Member<'_>| member.episode.reward.map(f64::from);
    spread("critic/score", metrics, members().filter_map(reward));
    let penalised = |member: &Member<'_>| Some(reward(member)? - member.penalty);
    spread("critic/rewards", metrics, members().filter_map(penalised));
    let advantages = members().flat_map(|member| &member.credited.advantages);
    spread("critic/advantages", metrics, advantages.map(|value| f64::from(*value)));
    let returns = members().flat_map(|member| &member.credited.returns);
    spread("critic/returns", metrics, returns.map(|value| f64::from(*value)));
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
    use crate::config::{AlgorithmName, FilterSection, HackPolicy, TrainSection};
    use crate::train::advantage::Estimator;
    use crate::train::fixture::{episode, sampled};
    use crate::train::group::gather;
    use crate::train::{Filter, Recipe, credit};

    #[test]
    fn by_hand() {
        let mut episodes = vec![episode("a", "g", Some(1.0)), episode("b", "g", Some(0.0))];
        episodes[0].segments = vec![sampled(&[1, 2, 3], &[4, 5])];
        episodes[1].segments = vec![sampled(&[1], &[4, 5, 6, 7])];
        episodes[1].audit.num_turns = 3;
        let filtered = Filter::from_sections(&FilterSection::default(), HackPolicy::Flag)
            .unwrap()
            .apply(&episodes, false);
        let section = TrainSection {
            algorithm: AlgorithmName::DrGrpo,
            ..TrainSection::default()
        };
        let estimator = Estimator::of_recipe(&Recipe::from_section(&section, 1).unwrap(), 1);
        let mut units = gather(&episodes, &filtered, estimator.algorithm(), None);
        credit::by_length(&estimator, &mut units);
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
