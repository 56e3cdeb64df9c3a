//! One trainer step: filter, advantages, old log-probs, mini-batches, optimizer steps, metrics.

use std::collections::HashSet;
use std::time::Instant;

use lego_policy::Trainer;

use super::advantage::{self, Algorithm};
use super::batch::TrainRow;
use super::error::TrainError;
use super::filter::Filter;
use super::group::{Unit, gather};
use super::log_probs;
use super::measure;
use super::optimize::{Work, optimize};
use super::recipe::Recipe;
use super::report::{Metrics, Skip, StepReport};
use crate::trajectory::Episode;

#[cfg(test)]
mod learning;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod tests;

/// Tokens that a row allows (`[data]`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// `max_prompt_tokens`.
    pub prompt: usize,
    /// `max_response_tokens`; `T_max` of `seq-mean-token-sum-norm`.
    pub response: usize,
}

/// What an update needs beside the recipe.
#[derive(Debug, Clone)]
pub struct UpdateSettings {
    /// `[train]`.
    pub recipe: Recipe,
    /// `[filter]`.
    pub filter: Filter,
    /// `[data]`.
    pub window: Window,
    /// `rollout.group_size`; `None` where the shards are another run's.
    pub group_size: Option<usize>,
    /// `run.seed`.
    pub seed: u64,
}

/// Makes updates. Holds no weights but the reference's: the policy is the caller's.
pub struct Updater {
    settings: UpdateSettings,
    algorithm: Box<dyn Algorithm>,
    reference: Option<Trainer>,
}

impl Updater {
    /// An updater for the recipe. `reference` is needed where the recipe has a KL term.
    pub fn new(settings: UpdateSettings, reference: Option<Trainer>) -> Result<Self, TrainError> {
        let algorithm = advantage::of_recipe(&settings.recipe, settings.seed);
        if let (Some((_, coefficient)), None) = (settings.recipe.kl, &reference) {
            return Err(TrainError::NoReference { coefficient });
        }
        Ok(Self {
            settings,
            algorithm,
            reference,
        })
    }

    /// What it was made with.
    pub fn settings(&self) -> &UpdateSettings {
        &self.settings
    }

    /// Trainer step `step` (the first is 1) on the episodes sampled for it.
    ///
    /// Groups in which the episodes cannot be told apart are counted and, where nothing but the advantage
    /// gives them a gradient, not computed; they stay in the denominators.
    ///
    /// # Errors
    /// [`TrainError::NonFinite`] before a NaN reaches the weights; optimizer steps of earlier mini-batches stand.
    pub fn step(&self, trainer: &mut Trainer, step: u64, episodes: &[Episode]) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let recipe = &self.settings.recipe;
        let lr = recipe.schedule.at(step)?;
        self.refuse(step, episodes)?;
        let filtered = self.settings.filter.apply(episodes, recipe.is_supervised());
        if let Some(kept) = filtered
            .kept
            .iter()
            .find(|kept| kept.episode.reward.is_some_and(|r| !r.is_finite()))
        {
            let episode = kept.episode.episode_id.clone();
            return Err(TrainError::NonFinite {
                step,
                quantity: "the reward",
                episode,
            });
        }
        let mut metrics = Metrics::new();
        filtered.measure(&mut metrics);
        let units = gather(episodes, &filtered, self.algorithm.as_ref(), self.settings.group_size);
        measure::episodes(&units, self.settings.window, &mut metrics);
        if !recipe.is_supervised() {
            let silent = units.iter().filter(|unit| !unit.has_signal).count();
            metrics.insert("rollout/no_signal_groups".to_owned(), silent as f64);
        }
        let mut work = self.rows(step, &units)?;
        metrics.insert("timing_s/adv".to_owned(), began.elapsed().as_secs_f64());
        let mut report = StepReport {
            consumed: filtered
                .kept
                .iter()
                .map(|kept| kept.episode.episode_id.clone())
                .collect(),
            dropped: filtered.dropped,
            ..StepReport::default()
        };
        if work.is_empty() {
            let skip = if units.is_empty() {
                Skip::NoEpisodes
            } else {
                Skip::NoSignal
            };
            report.skipped = Some(skip);
            metrics.insert("training/trained_tokens".to_owned(), 0.0);
        } else {
            log_probs::prepare(trainer, self.reference.as_ref(), recipe, step, &mut work, &mut metrics)?;
            let update = Instant::now();
            report.updates = optimize(&self.settings, trainer, step, lr, &units, &mut work, &mut metrics)?;
            metrics.insert("timing_s/update_actor".to_owned(), update.elapsed().as_secs_f64());
        }
        metrics.insert(
            "training/skipped_steps".to_owned(),
            f64::from(u8::from(report.skipped.is_some())),
        );
        if report.skipped.is_none() {
            let tokens = metrics.get("perf/total_num_tokens").copied().unwrap_or_default();
            metrics.insert(
                "perf/throughput".to_owned(),
                tokens / began.elapsed().as_secs_f64().max(1e-9),
            );
        }
        report.metrics = metrics;
        Ok(report)
    }

    /// What no filter may let pass in silence.
    fn refuse(&self, step: u64, episodes: &[Episode]) -> Result<(), TrainError> {
        let mut seen = HashSet::new();
        if let Some(episode) = episodes.iter().find(|episode| !seen.insert(&episode.episode_id)) {
            let episode = episode.episode_id.clone();
            return Err(TrainError::Twice { step, episode });
        }
        let recipe = &self.settings.recipe;
        if recipe.is_supervised() {
            return Ok(());
        }
        let sampled = |episode: &&Episode| episode.segments.iter().any(|segment| segment.trained_tokens() > 0);
        let silent = |episode: &Episode| episode.segments.iter().all(|s| s.response_logprobs.is_none());
        let with_tokens: Vec<&Episode> = episodes.iter().filter(sampled).collect();
        if !with_tokens.is_empty() && with_tokens.iter().all(|episode| silent(episode)) {
            return Err(TrainError::NoLogProbs {
                step,
                episodes: episodes.len(),
            });
        }
        let cut = |episode: &&&Episode| episode.sampling.top_p < 1.0 || episode.sampling.top_k > 0;
        match with_tokens.iter().find(cut) {
            Some(episode) if recipe.has_ratio() && recipe.bypass_old_logprob => Err(TrainError::CutDistribution {
                episode: episode.episode_id.clone(),
                top_p: episode.sampling.top_p,
                top_k: episode.sampling.top_k,
            }),
            _ => Ok(()),
        }
    }

    /// The rows to compute: those of episodes in the loss that can leave a gradient.
    fn rows<'a>(&self, step: u64, units: &[Unit<'a>]) -> Result<Vec<Work<'a>>, TrainError> {
        let recipe = &self.settings.recipe;
        let mut work = Vec::new();
        for unit in units {
            for member in &unit.members {
                let episode = member.episode;
                let not_finite = |quantity| TrainError::NonFinite {
                    step,
                    quantity,
                    episode: episode.episode_id.clone(),
                };
                if !member.advantage.is_finite() {
                    return Err(not_finite("the advantage"));
                }
                if !member.in_loss || (member.advantage == 0.0 && recipe.zero_advantage_is_zero_gradient()) {
                    continue;
                }
                let greedy_or_supervised = recipe.is_supervised() || episode.sampling.temperature <= 0.0;
                let temperature = if greedy_or_supervised {
                    1.0
                } else {
                    episode.sampling.temperature
                };
                for segment in &episode.segments {
                    let Some(row) = TrainRow::of_segment(segment, member.advantage) else {
                        continue;
                    };
                    if !recipe.is_supervised() && !row.trained(&row.recorded).all(f32::is_finite) {
                        return Err(not_finite("a recorded log-prob"));
                    }
                    work.push(Work {
                        row,
                        episode,
                        temperature,
                    });
                }
            }
        }
        Ok(work)
    }
}
