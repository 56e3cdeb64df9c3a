//! Log-probs that an update compares with: those at its start, and the reference's.

use std::time::Instant;

use lego_policy::Trainer;

use super::error::TrainError;
use super::fidelity::compare_log_probs;
use super::optimize::{Work, micro_batches};
use super::recipe::Recipe;
use super::report::Metrics;

/// Fills `old` and `reference` of every row.
///
/// `old` are the recorded values where the recipe says so or where the loss has no ratio; else they are
/// computed, and compared with the recorded ones.
pub(super) fn prepare(
    trainer: &Trainer,
    reference: Option<&Trainer>,
    recipe: &Recipe,
    step: u64,
    work: &mut [Work<'_>],
    metrics: &mut Metrics,
) -> Result<(), TrainError> {
    let began = Instant::now();
    if recipe.has_ratio() && !recipe.bypass_old_logprob {
        compute(trainer, recipe, step, work, "an old log-prob", |work, values| {
            work.row.old = values;
        })?;
        let pairs = work
            .iter()
            .flat_map(|Work { row, .. }| row.trained(&row.old).zip(row.trained(&row.recorded)));
        if let Some(fidelity) = compare_log_probs(pairs) {
            fidelity.measure(metrics);
        }
    } else if !recipe.is_supervised() {
        for Work { row, .. } in &mut *work {
            row.old = row.masked(row.recorded.clone());
        }
    }
    metrics.insert("timing_s/old_log_prob".to_owned(), began.elapsed().as_secs_f64());
    if let (Some(_), Some(reference)) = (recipe.kl, reference) {
        let began = Instant::now();
        compute(reference, recipe, step, work, "a reference log-prob", |work, values| {
            work.row.reference = Some(values);
        })?;
        metrics.insert("timing_s/ref".to_owned(), began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Log-probs of every row under `policy`, checked and handed to `store`.
fn compute(
    policy: &Trainer,
    recipe: &Recipe,
    step: u64,
    work: &mut [Work<'_>],
    quantity: &'static str,
    store: impl Fn(&mut Work<'_>, Vec<f32>),
) -> Result<(), TrainError> {
    let all: Vec<usize> = (0..work.len()).collect();
    let budget = recipe.micro_batch_tokens;
    for (temperature, rows) in micro_batches(work, &all, budget) {
        let sequences: Vec<_> = rows.iter().map(|&place| work[place].row.sequence()).collect();
        let found = policy
            .log_probs(&sequences, temperature, budget)
            .map_err(|source| TrainError::from_policy(step, source, |row| work[rows[row]].id()))?;
        for (&place, found) in rows.iter().zip(found) {
            let work = &mut work[place];
            if !work.row.trained(&found.logprobs).all(f32::is_finite) {
                return Err(TrainError::NonFinite {
                    step,
                    quantity,
                    episode: work.id().clone(),
                });
            }
            let values = work.row.masked(found.logprobs);
            store(work, values);
        }
    }
    Ok(())
}
