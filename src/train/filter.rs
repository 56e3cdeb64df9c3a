//! Which episodes train. What leaves the loss also leaves its group's baseline, with a reason, counted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use super::report::Metrics;
use crate::config::{FilterSection, HackPolicy, OverlongPolicy};
use crate::trajectory::{Episode, EpisodeId, Outcome, Segment};

/// `[filter]` names an outcome that does not exist.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("filter.drop_outcomes names `{found}`; expected one of {}", Outcome::ALL.map(Outcome::name).join(", "))]
pub struct FilterError {
    /// What was written.
    pub found: String,
}

/// Why an episode is left out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropReason {
    /// `[filter] drop_outcomes`, or `overlong = "drop"`.
    Outcome(Outcome),
    /// Evidence of reward hacking, with `hack_policy = "drop"`.
    Hack,
    /// Marked as dropped when it was recorded, in these words.
    Recorded(String),
    /// Its lengths disagree, or a token is trained that no context precedes.
    Malformed,
    /// The engine recorded none.
    NoLogProbs,
    /// The outcome allows a reward and there is none.
    NoReward,
    /// Nothing in it was sampled by the policy.
    NoTrainedTokens,
}

impl DropReason {
    /// Its name in `trajectory_filter/reason/<name>`: one of a bounded set.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Outcome(outcome) => outcome.name(),
            Self::Hack => "hack",
            Self::Recorded(_) => "recorded",
            Self::Malformed => "malformed",
            Self::NoLogProbs => "no_log_probs",
            Self::NoReward => "no_reward",
            Self::NoTrainedTokens => "no_trained_tokens",
        }
    }

    /// The reason in words, for the ledger.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Recorded(words) => Cow::Borrowed(words),
            other => Cow::Borrowed(other.name()),
        }
    }
}

/// The filter of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    drop_outcomes: BTreeSet<Outcome>,
    overlong: OverlongPolicy,
    drop_hacks: bool,
}

/// An episode that passed.
#[derive(Debug, Clone, Copy)]
pub struct Kept<'a> {
    /// The episode.
    pub episode: &'a Episode,
    /// False: it counts in its group's baseline and leaves the loss.
    pub in_loss: bool,
}

/// What passed and what did not; every episode is in exactly one of the two.
#[derive(Debug, Default)]
pub struct Filtered<'a> {
    /// Those that passed, in the order given.
    pub kept: Vec<Kept<'a>>,
    /// Those that did not.
    pub dropped: Vec<(EpisodeId, DropReason)>,
}

impl Filter {
    /// The filter of `[filter]` and `sandbox.hack_policy`.
    pub fn from_sections(section: &FilterSection, hack_policy: HackPolicy) -> Result<Self, FilterError> {
        let parse = |name: &String| Outcome::from_name(name).ok_or_else(|| FilterError { found: name.clone() });
        Ok(Self {
            drop_outcomes: section.drop_outcomes.iter().map(parse).collect::<Result<_, _>>()?,
            overlong: section.overlong,
            drop_hacks: hack_policy == HackPolicy::Drop,
        })
    }

    /// Sorts episodes. Supervised training takes every outcome and needs neither reward nor log-probs.
    pub fn apply<'a>(&self, episodes: impl IntoIterator<Item = &'a Episode>, supervised: bool) -> Filtered<'a> {
        let mut filtered = Filtered::default();
        for episode in episodes {
            match self.reason_to_drop(episode, supervised) {
                Some(reason) => filtered.dropped.push((episode.episode_id.clone(), reason)),
                None => filtered.kept.push(Kept {
                    episode,
                    in_loss: !self.is_masked(episode),
                }),
            }
        }
        filtered
    }

    fn is_masked(&self, episode: &Episode) -> bool {
        self.overlong == OverlongPolicy::Mask && episode.outcome == Outcome::Overlong
    }

    fn reason_to_drop(&self, episode: &Episode, supervised: bool) -> Option<DropReason> {
        let outcome = episode.outcome;
        if !supervised && self.drop_outcomes.contains(&outcome) {
            return Some(DropReason::Outcome(outcome));
        }
        if self.overlong == OverlongPolicy::Drop && outcome == Outcome::Overlong {
            return Some(DropReason::Outcome(outcome));
        }
        if self.drop_hacks && !episode.hack_flags.is_empty() {
            return Some(DropReason::Hack);
        }
        if let Some(words) = episode.drop_reason.as_ref().filter(|_| !supervised) {
            return Some(DropReason::Recorded(words.clone()));
        }
        if !episode.segments.iter().all(is_well_formed) {
            return Some(DropReason::Malformed);
        }
        let trained: usize = episode.segments.iter().map(Segment::trained_tokens).sum();
        if supervised {
            return (trained == 0).then_some(DropReason::NoTrainedTokens);
        }
        if episode.reward.is_none() {
            return Some(DropReason::NoReward);
        }
        episode
            .segments
            .iter()
            .any(lacks_log_probs)
            .then_some(DropReason::NoLogProbs)
    }
}

/// Lengths agree, the mask is one, and each trained token has a context.
fn is_well_formed(segment: &Segment) -> bool {
    let length = segment.response_ids.len();
    segment.response_mask.len() == length
        && segment
            .response_logprobs
            .as_ref()
            .is_none_or(|values| values.len() == length)
        && segment.response_mask.iter().all(|&mask| mask <= 1)
        && !(segment.prompt_ids.is_empty() && segment.response_mask.first() == Some(&1))
}

fn lacks_log_probs(segment: &Segment) -> bool {
    segment.response_logprobs.is_none() && segment.trained_tokens() > 0
}

impl Filtered<'_> {
    /// `trajectory_filter/invalid_ratio` and `trajectory_filter/reason/<r>`; what only left the loss counts as
    /// `overlong_masked`.
    pub fn measure(&self, metrics: &mut Metrics) {
        let total = self.kept.len() + self.dropped.len();
        if total > 0 {
            metrics.insert(
                "trajectory_filter/invalid_ratio".to_owned(),
                self.dropped.len() as f64 / total as f64,
            );
        }
        let mut counts: BTreeMap<&str, f64> = BTreeMap::new();
        for (_, reason) in &self.dropped {
            *counts.entry(reason.name()).or_default() += 1.0;
        }
        let masked = self.kept.iter().filter(|kept| !kept.in_loss).count();
        if masked > 0 {
            counts.insert("overlong_masked", masked as f64);
        }
        metrics.extend(
            counts
                .into_iter()
                .map(|(name, count)| (format!("trajectory_filter/reason/{name}"), count)),
        );
    }
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "the compared values are exact")]
mod tests {
    use super::*;
    use crate::train::fixture::episode;

    fn filter(overlong: OverlongPolicy, hacks: HackPolicy) -> Filter {
        Filter::from_sections(
            &FilterSection {
                overlong,
                ..FilterSection::default()
            },
            hacks,
        )
        .unwrap()
    }

    fn reason(filter: &Filter, episode: &Episode, supervised: bool) -> Option<&'static str> {
        filter
            .apply([episode], supervised)
            .dropped
            .first()
            .map(|(_, reason)| reason.name())
    }

    #[test]
    fn an_environment_s_failure_leaves_and_the_policy_s_stays() {
        let filter = filter(OverlongPolicy::Keep, HackPolicy::Flag);
        for outcome in Outcome::ALL {
            let mut episode = episode("a", "g", Some(0.0));
            episode.outcome = outcome;
            assert_eq!(
                reason(&filter, &episode, false),
                (!outcome.is_graded()).then(|| outcome.name())
            );
            assert_eq!(
                reason(&filter, &episode, true),
                None,
                "supervised training takes {outcome}"
            );
        }
    }

    #[test]
    fn overlong_is_kept_dropped_or_masked() {
        let mut long = episode("a", "g", Some(0.0));
        long.outcome = Outcome::Overlong;
        assert!(
            filter(OverlongPolicy::Keep, HackPolicy::Flag)
                .apply([&long], false)
                .kept[0]
                .in_loss
        );
        assert_eq!(
            reason(&filter(OverlongPolicy::Drop, HackPolicy::Flag), &long, false),
            Some("overlong")
        );
        let masked = filter(OverlongPolicy::Mask, HackPolicy::Flag);
        let filtered = masked.apply([&long], false);
        assert!(!filtered.kept[0].in_loss);
        let mut metrics = Metrics::new();
        filtered.measure(&mut metrics);
        assert_eq!(metrics["trajectory_filter/reason/overlong_masked"], 1.0);
        assert_eq!(metrics["trajectory_filter/invalid_ratio"], 0.0);
    }

    #[test]
    fn hacks_recorded_drops_and_missing_values_have_their_reasons() {
        let flag = filter(OverlongPolicy::Keep, HackPolicy::Flag);
        let mut hacked = episode("a", "g", Some(1.0));
        hacked.hack_flags = vec!["tests_modified".to_owned()];
        assert_eq!(reason(&flag, &hacked, false), None);
        assert_eq!(
            reason(&filter(OverlongPolicy::Keep, HackPolicy::Drop), &hacked, false),
            Some("hack")
        );

        let mut recorded = episode("a", "g", Some(1.0));
        recorded.drop_reason = Some("slowest of its group".to_owned());
        let filtered = flag.apply([&recorded], false);
        assert_eq!(filtered.dropped[0].1.text(), "slowest of its group");

        assert_eq!(reason(&flag, &episode("a", "g", None), false), Some("no_reward"));
        let mut silent = episode("a", "g", Some(1.0));
        silent.segments[0].response_logprobs = None;
        assert_eq!(reason(&flag, &silent, false), Some("no_log_probs"));
        assert_eq!(reason(&flag, &silent, true), None);
        let mut torn = episode("a", "g", Some(1.0));
        torn.segments[0].response_mask.pop();
        assert_eq!(reason(&flag, &torn, false), Some("malformed"));
        let mut empty = episode("a", "g", Some(0.0));
        empty.segments.clear();
        assert_eq!(
            reason(&flag, &empty, false),
            None,
            "it still tells its siblings' baseline"
        );
        assert_eq!(reason(&flag, &empty, true), Some("no_trained_tokens"));
    }

    #[test]
    fn an_unknown_outcome_is_refused_with_the_known_ones() {
        let section = FilterSection {
            drop_outcomes: vec!["timeouts".to_owned()],
            ..FilterSection::default()
        };
        let text = Filter::from_sections(&section, HackPolicy::Flag)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("`timeouts`") && text.contains("max_turns_reached, timeout, agent_error"),
            "{text}"
        );
    }
}
