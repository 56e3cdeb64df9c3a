//! Optimizer steps over mini-batches, each the sum of its micro-batches.

use std::collections::HashMap;

use lego_policy::{LossStats, Trainer};

use super::aggregate::{SequenceTokens, token_coefficients};
use super::batch::{TrainRow, cut_micro_batches, split_mini_batches};
use super::error::TrainError;
use super::group::Unit;
use super::recipe::Recipe;
use super::report::Metrics;
use super::update::UpdateSettings;
use crate::trajectory::{Episode, EpisodeId};

/// A row that is computed, and where it belongs.
pub(super) struct Work<'a> {
    pub(super) row: TrainRow,
    pub(super) episode: &'a Episode,
    /// What its log-probs are taken under.
    pub(super) temperature: f32,
}

impl Work<'_> {
    pub(super) fn id(&self) -> &EpisodeId {
        &self.episode.episode_id
    }
}

/// Mini-batch after mini-batch; returns the optimizer steps taken.
pub(super) fn optimize(
    settings: &UpdateSettings,
    trainer: &mut Trainer,
    step: u64,
    lr: f64,
    units: &[Unit<'_>],
    work: &mut [Work<'_>],
    metrics: &mut Metrics,
) -> Result<u32, TrainError> {
    let recipe = &settings.recipe;
    let mini_batches = split_mini_batches(units.len(), recipe.mini_batch, settings.seed, step);
    let (mut total, mut norms, mut updates) = (LossStats::default(), 0.0, 0);
    for batch in &mini_batches {
        let chosen = weigh(settings, batch, units, work);
        if chosen.is_empty() {
            continue;
        }
        let stats = accumulate(trainer, recipe, step, work, &chosen)?;
        let applied = trainer
            .apply(lr, recipe.grad_clip.is_finite().then_some(recipe.grad_clip))
            .map_err(|source| TrainError::from_policy(step, source, |row| work[chosen[row]].id()))?;
        total.merge(&stats);
        norms += applied.grad_norm;
        updates += 1;
    }
    metrics.insert("actor/lr".to_owned(), lr);
    metrics.insert(
        "actor/skipped_updates".to_owned(),
        mini_batches.len() as f64 - f64::from(updates),
    );
    metrics.insert("actor/grad_norm".to_owned(), norms / f64::from(updates.max(1)));
    loss_metrics(recipe, &total, f64::from(updates.max(1)), metrics);
    Ok(updates)
}

/// Gives the rows of a mini-batch their coefficients; returns their places in `work`.
pub(super) fn weigh(
    settings: &UpdateSettings,
    batch: &[usize],
    units: &[Unit<'_>],
    work: &mut [Work<'_>],
) -> Vec<usize> {
    let members: Vec<_> = batch.iter().flat_map(|&unit| &units[unit].members).collect();
    let lengths: Vec<_> = members
        .iter()
        .map(|member| SequenceTokens(member.trained_tokens))
        .collect();
    let weights = token_coefficients(settings.recipe.aggregation, &lengths, settings.window.response);
    let weight_of: HashMap<&EpisodeId, f32> = members
        .iter()
        .map(|member| &member.episode.episode_id)
        .zip(weights)
        .collect();
    let mut chosen = Vec::new();
    for (place, work) in work.iter_mut().enumerate() {
        if let Some(&weight) = weight_of.get(work.id()) {
            work.row.set_coefficient(weight);
            chosen.push(place);
        }
    }
    chosen
}

/// Adds up the gradient of the chosen rows, micro-batch by micro-batch.
pub(super) fn accumulate(
    trainer: &mut Trainer,
    recipe: &Recipe,
    step: u64,
    work: &[Work<'_>],
    chosen: &[usize],
) -> Result<LossStats, TrainError> {
    let mut total = LossStats::default();
    for (temperature, rows) in micro_batches(work, chosen, recipe.micro_batch_tokens) {
        let views: Vec<_> = rows.iter().map(|&place| work[place].row.view()).collect();
        let stats = match trainer.accumulate(&views, &recipe.objective(temperature)) {
            Ok(stats) if !stats.non_finite => stats,
            Ok(_) => {
                trainer.discard_gradients();
                return Err(TrainError::NonFinite {
                    step,
                    quantity: "the loss",
                    episode: work[rows[0]].id().clone(),
                });
            }
            Err(source) => {
                trainer.discard_gradients();
                return Err(TrainError::from_policy(step, source, |row| work[rows[row]].id()));
            }
        };
        total.merge(&stats);
    }
    Ok(total)
}

/// Micro-batches of the chosen rows; all rows of one were sampled at the same temperature.
pub(super) fn micro_batches(work: &[Work<'_>], chosen: &[usize], budget: usize) -> Vec<(f32, Vec<usize>)> {
    let mut sorted = chosen.to_vec();
    sorted.sort_by(|&a, &b| work[a].temperature.total_cmp(&work[b].temperature));
    sorted
        .chunk_by(|&a, &b| work[a].temperature.to_bits() == work[b].temperature.to_bits())
        .flat_map(|alike| {
            let lengths: Vec<usize> = alike.iter().map(|&place| work[place].row.tokens.len()).collect();
            let batches = cut_micro_batches(&lengths, budget);
            batches.into_iter().map(|batch| {
                (
                    work[alike[0]].temperature,
                    batch.into_iter().map(|row| alike[row]).collect(),
                )
            })
        })
        .collect()
}

/// `actor/*` from the sums over the step's mini-batches.
fn loss_metrics(recipe: &Recipe, total: &LossStats, updates: f64, metrics: &mut Metrics) {
    let tokens = total.tokens.max(1.0);
    let mut set = |name: &str, value: f64| metrics.insert(format!("actor/{name}"), value);
    set("entropy", total.entropy / tokens);
    set("loss", total.loss / updates);
    if recipe.is_supervised() {
        return;
    }
    set("pg_loss", total.pg_loss / updates);
    if let Some((_, coefficient)) = recipe.kl.filter(|_| !recipe.kl_in_reward) {
        set("kl_loss", total.kl_loss / updates);
        set("kl_coef", f64::from(coefficient));
    }
    if recipe.has_ratio() {
        set("ppo_kl", total.neg_log_ratio / tokens);
        set("pg_clipfrac", total.clipped / tokens);
        set("pg_clipfrac_lower", total.clipped_lower / tokens);
        set("ratio/mean", total.ratio_sum / tokens);
        set("ratio/min", f64::from(total.ratio_min));
        set("ratio/max", f64::from(total.ratio_max));
    }
}
