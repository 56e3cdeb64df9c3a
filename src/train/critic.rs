//! The value function of advantage `gae`: its values before the update, and its own optimizer steps.

use std::time::Instant;

use lego_policy::{Trainer, ValueRow, ValueStats};

use super::batch::{TrainRow, split_mini_batches};
use super::error::TrainError;
use super::group::Unit;
use super::optimize::{Work, micro_batches, weigh};
use super::recipe::CriticRecipe;
use super::report::Metrics;
use super::update::UpdateSettings;

/// Fills `values` of every row.
pub(super) fn evaluate(
    critic: &Trainer,
    settings: &UpdateSettings,
    step: u64,
    work: &mut [Work<'_>],
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let began = Instant::now();
    let all: Vec<usize> = (0..work.len()).collect();
    let budget = settings.recipe.micro_batch_tokens;
    for (_, rows) in micro_batches(work, &all, budget) {
        let sequences: Vec<_> = rows.iter().map(|&place| work[place].row.sequence(false)).collect();
        let found = critic
            .values(&sequences, budget)
            .map_err(|source| TrainError::from_policy(step, source, |row| work[rows[row]].id()))?;
        for (&place, values) in rows.iter().zip(found) {
            let work = &mut work[place];
            if !work.row.trained(&values).all(f32::is_finite) {
                return Err(not_finite(step, "a value of the critic", work));
            }
            work.row.values = work.row.masked(values);
        }
    }
    metrics.insert("timing_s/values".to_owned(), began.elapsed().as_secs_f64());
    Ok(())
}

fn not_finite(step: u64, quantity: &'static str, work: &Work<'_>) -> TrainError {
    TrainError::NonFinite {
        step,
        quantity,
        episode: work.id().clone(),
    }
}

fn view(row: &TrainRow) -> ValueRow<'_> {
    ValueRow {
        tokens: &row.tokens,
        loss_start: row.loss_start,
        mask: &row.mask,
        old_values: &row.values,
        returns: &row.returns,
        coefficients: &row.coefficients,
    }
}

/// Fits the values to the returns, mini-batch after mini-batch: those of the policy, with its aggregation.
pub(super) fn optimize(
    settings: &UpdateSettings,
    recipe: CriticRecipe,
    critic: &mut Trainer,
    step: u64,
    units: &[Unit<'_>],
    work: &mut [Work<'_>],
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let began = Instant::now();
    fit(work, metrics);
    let mini_batch = settings.recipe.mini_batch;
    let (mut total, mut norms, mut updates) = (ValueStats::default(), 0.0, 0.0);
    for batch in split_mini_batches(units.len(), mini_batch, settings.seed, step) {
        let chosen = weigh(settings, &batch, units, work);
        if chosen.is_empty() {
            continue;
        }
        for (_, rows) in micro_batches(work, &chosen, settings.recipe.micro_batch_tokens) {
            let views: Vec<_> = rows.iter().map(|&place| view(&work[place].row)).collect();
            let found = critic.accumulate_values(&views, recipe.cliprange_value);
            let stats = found.map_err(|source| TrainError::from_policy(step, source, |row| work[rows[row]].id()));
            match stats {
                Ok(stats) if !stats.non_finite => total.merge(&stats),
                wrong => {
                    critic.discard_gradients();
                    return Err(wrong
                        .err()
                        .unwrap_or_else(|| not_finite(step, "the critic's loss", &work[rows[0]])));
                }
            }
        }
        let clip = settings.recipe.grad_clip;
        let applied = critic
            .apply(recipe.lr, clip.is_finite().then_some(clip))
            .map_err(|source| TrainError::from_policy(step, source, |row| work[chosen[row]].id()))?;
        norms += applied.grad_norm;
        updates += 1.0;
    }
    let (tokens, updates) = (total.tokens.max(1.0), f64::max(updates, 1.0));
    let mut set = |name: &str, value: f64| metrics.insert(name.to_owned(), value);
    set("critic/vf_loss", total.loss / updates);
    set("critic/vf_clipfrac", total.clipped / tokens);
    set("critic/vpred_mean", total.value / tokens);
    set("critic/grad_norm", norms / updates);
    set("critic/lr", recipe.lr);
    set("timing_s/update_critic", began.elapsed().as_secs_f64());
    Ok(())
}

/// How well the values before the update foretell the returns: 1 − var(R − V)/var(R); nothing where all returns are
/// the same.
fn fit(work: &[Work<'_>], metrics: &mut Metrics) {
    let pairs = || {
        work.iter().flat_map(|work| {
            work.row
                .trained(&work.row.returns)
                .zip(work.row.trained(&work.row.values))
        })
    };
    let variance = |values: &mut dyn Iterator<Item = f64>| {
        let values: Vec<f64> = values.collect();
        let mean = crate::metrics::mean(&values);
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>()
    };
    let of_returns = variance(&mut pairs().map(|(target, _)| f64::from(target)));
    let of_errors = variance(&mut pairs().map(|(target, value)| f64::from(target) - f64::from(value)));
    if of_returns > 0.0 {
        metrics.insert("critic/vf_explained_var".to_owned(), 1.0 - of_errors / of_returns);
    }
    super::measure::spread("critic/values", metrics, pairs().map(|(_, value)| f64::from(value)));
}
