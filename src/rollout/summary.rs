//! What became of the trials of a rollout: a row for each outcome, nothing left out.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metrics::{mean, quantile, standard_error};
use crate::trajectory::{Episode, Outcome};

/// Trials of one outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeRow {
    /// The outcome, `completed` split into `solved` and `unsolved`.
    pub outcome: String,
    /// How many.
    pub trials: usize,
    /// Their mean reward, where they have valid ones.
    pub reward_mean: Option<f64>,
    /// Tokens sampled in them.
    pub tokens: u64,
    /// Median duration in seconds.
    pub p50_s: f64,
    /// 95th percentile of the duration in seconds.
    pub p95_s: f64,
}

/// What became of the trials of a rollout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutSummary {
    /// One row an outcome that occurred.
    pub outcomes: Vec<OutcomeRow>,
    /// All trials.
    pub trials: usize,
    /// Trials left out of training, by reason.
    pub dropped: std::collections::BTreeMap<String, usize>,
    /// Infrastructure failures that were tried again.
    pub retries: u64,
    /// Mean of the valid rewards.
    pub reward_mean: Option<f64>,
    /// Its standard error.
    pub reward_se: Option<f64>,
    /// Tokens sampled.
    pub tokens: u64,
}

impl RolloutSummary {
    /// Sums up episodes.
    pub fn of<'a>(episodes: impl IntoIterator<Item = &'a Episode>) -> Self {
        let episodes: Vec<&Episode> = episodes.into_iter().collect();
        let mut summary = Self {
            trials: episodes.len(),
            ..Self::default()
        };
        for episode in &episodes {
            summary.tokens += episode.audit.sampled_tokens;
            summary.retries += u64::try_from(episode.attempt).unwrap_or(0);
            if let Some(reason) = &episode.drop_reason {
                *summary.dropped.entry(reason.clone()).or_default() += 1;
            }
        }
        let labels = ["solved", "unsolved"].into_iter().chain(
            Outcome::ALL
                .into_iter()
                .filter(|&outcome| outcome != Outcome::Completed)
                .map(Outcome::name),
        );
        for label in labels {
            let members: Vec<&Episode> = episodes
                .iter()
                .copied()
                .filter(|episode| label_of(episode) == label)
                .collect();
            if !members.is_empty() {
                summary.outcomes.push(row(label, &members));
            }
        }
        let rewards: Vec<f64> = episodes
            .iter()
            .filter_map(|episode| episode.reward)
            .map(f64::from)
            .collect();
        summary.reward_mean = (!rewards.is_empty()).then(|| mean(&rewards));
        summary.reward_se = (rewards.len() > 1).then(|| standard_error(&rewards));
        summary
    }
}

fn label_of(episode: &Episode) -> &'static str {
    match (episode.outcome, episode.reward) {
        (Outcome::Completed, Some(reward)) if reward >= 1.0 => "solved",
        (Outcome::Completed, _) => "unsolved",
        (other, _) => other.name(),
    }
}

fn row(label: &str, members: &[&Episode]) -> OutcomeRow {
    let rewards: Vec<f64> = members
        .iter()
        .filter_map(|episode| episode.reward)
        .map(f64::from)
        .collect();
    let seconds: Vec<f64> = members
        .iter()
        .map(|episode| f64::from(episode.timings.total_s))
        .collect();
    OutcomeRow {
        outcome: label.to_owned(),
        trials: members.len(),
        reward_mean: (!rewards.is_empty()).then(|| mean(&rewards)),
        tokens: members.iter().map(|episode| episode.audit.sampled_tokens).sum(),
        p50_s: quantile(&seconds, 0.5),
        p95_s: quantile(&seconds, 0.95),
    }
}
