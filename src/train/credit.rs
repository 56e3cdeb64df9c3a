//! From groups to rows: what each trained token of a step gets, and where it lies.

use std::collections::HashMap;

use lego_policy::KlTerm;

use super::advantage::{Estimator, Group, Track};
use super::group::Unit;
use super::optimize::Work;
use super::report::Metrics;
use crate::trajectory::EpisodeId;

/// Gives the members what their tokens get, from nothing but their lengths.
pub(super) fn by_length(estimator: &Estimator, units: &mut [Unit<'_>]) {
    let track = |tokens: usize| Track {
        tokens,
        ..Track::default()
    };
    let tracks: Vec<Vec<Track>> = units
        .iter()
        .map(|unit| unit.members.iter().map(|member| track(member.trained_tokens)).collect())
        .collect();
    credit(estimator, units, &tracks);
}

/// Gives the members what their tokens get, from what their rows hold: the tokens that are still in the loss, the
/// penalties of `kl` between `old` and `reference`, and the values.
pub(super) fn by_rows(
    estimator: &Estimator,
    units: &mut [Unit<'_>],
    work: &[Work<'_>],
    kl: Option<KlTerm>,
    metrics: &mut Metrics,
) {
    let mut tracks: HashMap<&EpisodeId, Track> = HashMap::new();
    let mut divergences = Vec::new();
    for work in work {
        let track = tracks.entry(work.id()).or_default();
        let row = &work.row;
        track.tokens += row.trained_tokens();
        track.values.extend(row.trained(&row.values));
        if let (Some(term), Some(reference)) = (kl, &row.reference) {
            let before = track.penalties.len();
            let pairs = row.trained(&row.old).zip(row.trained(reference));
            let divergence = |(old, reference)| term.estimator.estimate(f64::from(old), f64::from(reference)).0;
            let found: Vec<f64> = pairs.map(divergence).collect();
            let coefficient = f64::from(term.coefficient);
            track.penalties.extend(found.iter().map(|kl| (coefficient * kl) as f32));
            if track.penalties.len() > before {
                divergences.push(found.iter().sum::<f64>() / found.len() as f64);
            }
        }
    }
    if let Some(term) = kl {
        let mean = divergences.iter().sum::<f64>() / divergences.len().max(1) as f64;
        metrics.insert("actor/reward_kl_penalty".to_owned(), mean);
        metrics.insert("actor/reward_kl_penalty_coeff".to_owned(), f64::from(term.coefficient));
    }
    let mut by_member = |unit: &mut Unit<'_>| -> Vec<Track> {
        let members = unit.members.iter_mut();
        members
            .map(|member| {
                let track = tracks.remove(&member.episode.episode_id).unwrap_or_default();
                member.penalty = track.penalties.iter().map(|penalty| f64::from(*penalty)).sum();
                track
            })
            .collect()
    };
    let tracks: Vec<Vec<Track>> = units.iter_mut().map(&mut by_member).collect();
    credit(estimator, units, &tracks);
}

fn credit(estimator: &Estimator, units: &mut [Unit<'_>], tracks: &[Vec<Track>]) {
    let groups: Vec<Group> = units.iter().map(|unit| unit.group.clone()).collect();
    let credited = estimator.estimate(&groups, tracks);
    for (unit, credited) in units.iter_mut().zip(credited) {
        for (member, credited) in unit.members.iter_mut().zip(credited) {
            member.credited = credited;
        }
    }
}

/// Lays what the members' tokens get at the tokens' places in their rows, which hold the same tokens in the same order.
pub(super) fn lay_out(units: &[Unit<'_>], work: &mut [Work<'_>]) {
    let members = units.iter().flat_map(|unit| &unit.members);
    let mut left: HashMap<&EpisodeId, (&[f32], &[f32])> = members
        .map(|member| {
            let credited = &member.credited;
            let both = (credited.advantages.as_slice(), credited.returns.as_slice());
            (&member.episode.episode_id, both)
        })
        .collect();
    for Work { row, episode, .. } in work {
        if let Some((advantages, returns)) = left.get_mut(&episode.episode_id) {
            let tokens = row.trained_tokens();
            let (own, rest) = advantages.split_at(tokens.min(advantages.len()));
            row.advantages = row.placed(own);
            *advantages = rest;
            let (own, rest) = returns.split_at(tokens.min(returns.len()));
            row.returns = row.placed(own);
            *returns = rest;
        }
    }
}

/// Corrects the rows for the engine's probabilities: weighs their tokens, or takes them out of rows and members.
pub(super) fn correct(
    correction: &super::correction::Correction,
    units: &mut [Unit<'_>],
    work: &mut Vec<Work<'_>>,
    metrics: &mut Metrics,
) {
    let log_ratios: Vec<Vec<f32>> = work
        .iter()
        .map(|Work { row, .. }| {
            let pairs = row.trained(&row.old).zip(row.trained(&row.recorded));
            pairs.map(|(old, recorded)| old - recorded).collect()
        })
        .collect();
    let corrected = correction.apply(&log_ratios, metrics);
    for (work, weights) in work.iter_mut().zip(&corrected.weights) {
        work.row.importance = work.row.placed(weights);
    }
    if corrected.kept.is_empty() {
        return;
    }
    let mut rejected: HashMap<&EpisodeId, usize> = HashMap::new();
    for (work, kept) in work.iter_mut().zip(&corrected.kept) {
        work.row.reject(kept);
        *rejected.entry(&work.episode.episode_id).or_default() += kept.iter().filter(|kept| !**kept).count();
    }
    for member in units.iter_mut().flat_map(|unit| &mut unit.members) {
        member.trained_tokens -= rejected.get(&member.episode.episode_id).copied().unwrap_or_default();
    }
    work.retain(|work| work.row.trained_tokens() > 0);
}
