//! One trainer step: filter, advantages, old log-probs, mini-batches, optimizer steps, metrics.

use std::collections::HashSet;
use std::time::Instant;

use lego_policy::Trainer;

use super::advantage::Estimator;
use super::batch::TrainRow;
use super::credit;
use super::critic;
use super::error::TrainError;
use super::filter::Filter;
use super::group::{Unit, gather};
use super::log_probs;
use super::measure;
use super::optimize::{Work, optimize};
use super::recipe::Recipe;
use super::report::{Metrics, Skip, StepReport};
use super::routing;
use crate::config::RoutingReplay;
use crate::trajectory::Episode;

#[cfg(test)]
mod corrections;
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
    estimator: Estimator,
    reference: Option<Trainer>,
}

impl Updater {
    /// An updater for the recipe. `reference` is needed where the recipe has a KL term.
    pub fn new(settings: UpdateSettings, reference: Option<Trainer>) -> Result<Self, TrainError> {
        let estimator = Estimator::of_recipe(&settings.recipe, settings.seed);
        if let (Some((_, coefficient)), None) = (settings.recipe.kl, &reference) {
            return Err(TrainError::NoReference { coefficient });
        }
        Ok(Self {
            settings,
            estimator,
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
        self.step_with_critic(trainer, None, step, episodes)
    }

    /// The same with the critic that the recipe's advantage needs, which learns beside the policy.
    ///
    /// # Errors
    /// As [`Updater::step`], and [`TrainError::NoCritic`] where the recipe needs one.
    pub fn step_with_critic(
        &self,
        trainer: &mut Trainer,
        mut critic: Option<&mut Trainer>,
        step: u64,
        episodes: &[Episode],
    ) -> Result<StepReport, TrainError> {
        let began = Instant::now();
        let recipe = &self.settings.recipe;
        let lr = recipe.schedule.at(step)?;
        if recipe.critic.is_some() != critic.is_some() {
            return Err(TrainError::NoCritic {
                given: critic.is_some(),
            });
        }
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
        let algorithm = self.estimator.algorithm();
        let mut units = gather(episodes, &filtered, algorithm, self.settings.group_size);
        if !recipe.is_supervised() {
            let silent = units.iter().filter(|unit| !unit.has_signal).count();
            metrics.insert("rollout/no_signal_groups".to_owned(), silent as f64);
        }
        let follows = recipe.advantage_follows_log_probs();
        if !follows {
            credit::by_length(&self.estimator, &mut units);
        }
        let mut work = self.rows(step, &units)?;
        credit::lay_out(&units, &mut work);
        metrics.insert("timing_s/adv".to_owned(), began.elapsed().as_secs_f64());
        if !work.is_empty() {
            if recipe.routing_replay != RoutingReplay::Off && trainer.config().moe.is_none() {
                return Err(TrainError::NoExperts);
            }
            log_probs::prepare(trainer, self.reference.as_ref(), recipe, step, &mut work, &mut metrics)?;
            if let Some(correction) = &recipe.correction {
                credit::correct(correction, &mut units, &mut work, &mut metrics);
            }
            if let Some(critic) = &critic {
                critic::evaluate(critic, &self.settings, step, &mut work, &mut metrics)?;
            }
            if follows {
                let kl = recipe.kl_term().filter(|_| recipe.kl_in_reward);
                credit::by_rows(&self.estimator, &mut units, &work, kl, &mut metrics);
                credit::lay_out(&units, &mut work);
                refuse_not_finite(step, &units)?;
                work.retain(|work| !recipe.zero_advantage_is_zero_gradient() || work.row.has_advantage());
            }
        }
        measure::episodes(&units, self.settings.window, &mut metrics);
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
            if let (Some(recipe), Some(critic)) = (recipe.critic, critic.as_mut()) {
                critic::optimize(&self.settings, recipe, critic, step, &units, &mut work, &mut metrics)?;
            }
            if recipe.critic.is_none_or(|critic| step > critic.warmup) {
                let update = Instant::now();
                report.updates = optimize(&self.settings, trainer, step, lr, &units, &mut work, &mut metrics)?;
                metrics.insert("timing_s/update_actor".to_owned(), update.elapsed().as_secs_f64());
            }
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
        let greedy = |episode: &Episode| episode.sampling.temperature <= 0.0;
        if self.estimator.algorithm().needs_greedy() && !episodes.is_empty() && !episodes.iter().any(greedy) {
            let episodes = episodes.len();
            return Err(TrainError::NoGreedy { step, episodes });
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
        let all = recipe.advantage_follows_log_probs() || !recipe.zero_advantage_is_zero_gradient();
        refuse_not_finite(step, units)?;
        let mut work = Vec::new();
        for unit in units {
            for member in &unit.members {
                let episode = member.episode;
                let silent = member.credited.advantages.iter().all(|advantage| *advantage == 0.0);
                if !member.in_loss || (silent && !all) {
                    continue;
                }
                let greedy_or_supervised = recipe.is_supervised() || episode.sampling.temperature <= 0.0;
                let temperature = if greedy_or_supervised {
                    1.0
                } else {
                    episode.sampling.temperature
                };
                for segment in &episode.segments {
                    let Some(mut row) = TrainRow::of_segment(segment) else {
                        continue;
                    };
                    if !recipe.is_supervised() && !row.trained(&row.recorded).all(f32::is_finite) {
                        return Err(TrainError::NonFinite {
                            step,
                            quantity: "a recorded log-prob",
                            episode: episode.episode_id.clone(),
                        });
                    }
                    if recipe.routing_replay == RoutingReplay::R3 {
                        row.experts = routing::recorded(segment, row.tokens.len());
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

fn refuse_not_finite(step: u64, units: &[Unit<'_>]) -> Result<(), TrainError> {
    let members = units.iter().flat_map(|unit| &unit.members);
    let mut wrong = members.filter(|member| !member.credited.advantages.iter().all(|advantage| advantage.is_finite()));
    wrong.next().map_or(Ok(()), |member| {
        Err(TrainError::NonFinite {
            step,
            quantity: "the advantage",
            episode: member.episode.episode_id.clone(),
        })
    })
}
