//! Log-probs that an update compares with: those at its start, and the reference's.

use std::time::Instant;

use lego_policy::{LogProbs, Trainer};

use super::error::TrainError;
use super::fidelity::compare_log_probs;
use super::optimize::{Work, micro_batches};
use super::recipe::Recipe;
use super::report::Metrics;
use super::routing::{self, Load};
use crate::config::RoutingReplay;

/// Fills `old` and `reference` of every row.
///
/// `old` are the recorded values where the recipe says so or where nothing reads others; else they are
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
    if recipe.routing_replay == RoutingReplay::R3 {
        routing::measure_coverage(work, trainer.config(), metrics);
    }
    if recipe.computes_old_log_probs() {
        let mut load = Load::new(trainer.config());
        let keep = recipe.routing_replay == RoutingReplay::R2;
        compute(trainer, recipe, step, work, ("an old log-prob", true), |work, found| {
            if let Some(load) = &mut load {
                load.add(&work.row, &found);
            }
            if keep {
                work.row.experts = found.experts;
            }
            work.row.old = found.logprobs;
        })?;
        if let Some(load) = load {
            load.measure(metrics);
        }
        let rows = work
            .iter()
            .map(|Work { row, .. }| row.trained(&row.old).zip(row.trained(&row.recorded)));
        if let Some(fidelity) = compare_log_probs(rows) {
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
        // The reference has routers of its own.
        compute(
            reference,
            recipe,
            step,
            work,
            ("a reference log-prob", false),
            |work, found| {
                work.row.reference = Some(found.logprobs);
            },
        )?;
        metrics.insert("timing_s/ref".to_owned(), began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Log-probs of every row under `policy`, checked and handed to `store`; `prescribed`: by the experts of the rows.
fn compute(
    policy: &Trainer,
    recipe: &Recipe,
    step: u64,
    work: &mut [Work<'_>],
    (quantity, prescribed): (&'static str, bool),
    mut store: impl FnMut(&mut Work<'_>, LogProbs),
) -> Result<(), TrainError> {
    let all: Vec<usize> = (0..work.len()).collect();
    let budget = recipe.micro_batch_tokens;
    for (temperature, rows) in micro_batches(work, &all, budget) {
        let sequences: Vec<_> = rows.iter().map(|&place| work[place].row.sequence(prescribed)).collect();
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
            let logprobs = work.row.masked(found.logprobs);
            store(work, LogProbs { logprobs, ..found });
        }
    }
    Ok(())
}
