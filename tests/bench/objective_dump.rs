//! The numbers of `lego`'s objectives on the inputs that `verl_parity.py` draws: advantages, losses, KL estimates,
//! values and rollout correction.
//!
//! `objective_dump <CASE.json>` prints one JSON object. Each row is one episode of its group, with one segment.

use std::collections::BTreeMap;
use std::error::Error;

use lego::config::{AdvantageName, LossAggregation, LossName, RolloutCorrectionSection, TrainSection};
use lego::train::advantage::{Credited, Estimator, Group, Track};
use lego::train::correction::Correction;
use lego::train::{Metrics, Recipe, SequenceTokens, compare_log_probs, token_coefficients};
use lego_policy::{KlEstimator, Objective, Row, ValueRow, evaluate, value_loss};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Case {
    gamma: f32,
    lambda: f32,
    clip_low: f32,
    clip_high: f32,
    cliprange_value: f32,
    longest: usize,
    corrections: Vec<RolloutCorrectionSection>,
    rows: Vec<CaseRow>,
}

/// Numbers of each response position; those outside the mask are not read.
#[derive(Deserialize)]
struct CaseRow {
    group: String,
    score: f32,
    greedy: f32,
    mask: Vec<u8>,
    penalties: Vec<f32>,
    logprobs: Vec<f32>,
    old: Vec<f32>,
    recorded: Vec<f32>,
    reference: Vec<f32>,
    advantages: Vec<f32>,
    old_values: Vec<f32>,
    values: Vec<f32>,
    returns: Vec<f32>,
    importance: Vec<f32>,
}

#[derive(Serialize, Default)]
struct Found {
    advantages: BTreeMap<String, Vec<Vec<f32>>>,
    returns: BTreeMap<String, Vec<Vec<f32>>>,
    losses: BTreeMap<String, Evaluated>,
    value_losses: BTreeMap<String, Evaluated>,
    kl: BTreeMap<String, Vec<Vec<f64>>>,
    corrections: Vec<Corrected>,
    off_policy: Metrics,
}

#[derive(Serialize, Default)]
struct Evaluated {
    loss: f64,
    clipped: f64,
    clipped_lower: f64,
    neg_log_ratio: f64,
    /// By the log-prob (the value) of each trained token.
    slopes: Vec<Vec<f32>>,
}

#[derive(Serialize)]
struct Corrected {
    weights: Vec<Vec<f32>>,
    kept: Vec<Vec<bool>>,
    metrics: Metrics,
}

const AGGREGATIONS: [LossAggregation; 4] = [
    LossAggregation::TokenMean,
    LossAggregation::SeqMeanTokenSum,
    LossAggregation::SeqMeanTokenMean,
    LossAggregation::SeqMeanTokenSumNorm,
];

impl CaseRow {
    fn at(&self) -> Vec<usize> {
        (0..self.mask.len())
            .filter(|position| self.mask[*position] == 1)
            .collect()
    }

    fn trained(&self, values: &[f32]) -> Vec<f32> {
        self.at().into_iter().map(|position| values[position]).collect()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: objective_dump <CASE.json>")?;
    let case: Case = serde_json::from_str(&fs_err::read_to_string(path)?)?;
    let mut found = Found::default();
    advantages(&case, &mut found)?;
    losses(&case, &mut found)?;
    kl(&case, &mut found);
    correction(&case, &mut found)?;
    serde_json::to_writer(std::io::stdout().lock(), &found)?;
    Ok(())
}

fn advantages(case: &Case, found: &mut Found) -> Result<(), Box<dyn Error>> {
    let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, row) in case.rows.iter().enumerate() {
        groups.entry(&row.group).or_default().push(place);
    }
    let group = |places: &Vec<usize>| Group {
        returns: places.iter().map(|&place| case.rows[place].score).collect(),
        size: places.len(),
        sampled: places.len(),
        lengths: places.iter().map(|&place| case.rows[place].at().len()).collect(),
        greedy: Some(case.rows[places[0]].greedy),
    };
    let track = |&place: &usize| {
        let row = &case.rows[place];
        Track {
            tokens: row.at().len(),
            penalties: row.trained(&row.penalties),
            values: row.trained(&row.old_values),
        }
    };
    let all: Vec<Group> = groups.values().map(group).collect();
    let tracks: Vec<Vec<Track>> = groups
        .values()
        .map(|places| places.iter().map(track).collect())
        .collect();
    for (name, advantage, norm_by_std, discounts) in [
        ("grpo", AdvantageName::Grpo, true, false),
        ("dr_grpo", AdvantageName::Grpo, false, false),
        ("rloo", AdvantageName::Rloo, false, false),
        ("opo", AdvantageName::Opo, false, false),
        ("remax", AdvantageName::Remax, false, false),
        ("reinforce_plus_plus", AdvantageName::ReinforcePlusPlus, false, true),
        (
            "reinforce_plus_plus_baseline",
            AdvantageName::ReinforcePlusPlusBaseline,
            false,
            false,
        ),
        ("gae", AdvantageName::Gae, false, true),
    ] {
        let mut section = TrainSection {
            advantage: Some(advantage),
            norm_by_std: (advantage == AdvantageName::Grpo).then_some(norm_by_std),
            gamma: discounts.then_some(case.gamma),
            ..TrainSection::default()
        };
        section.critic.lambda = (advantage == AdvantageName::Gae).then_some(case.lambda);
        let estimator = Estimator::of_recipe(&Recipe::from_section(&section, 1)?, 0);
        let credited = estimator.estimate(&all, &tracks);
        let by_row = |of: fn(&Credited) -> &Vec<f32>| {
            let mut by_row = vec![Vec::new(); case.rows.len()];
            for (places, credited) in groups.values().zip(&credited) {
                for (&place, credited) in places.iter().zip(credited) {
                    by_row[place].clone_from(of(credited));
                }
            }
            by_row
        };
        found
            .advantages
            .insert(name.to_owned(), by_row(|credited| &credited.advantages));
        found
            .returns
            .insert(name.to_owned(), by_row(|credited| &credited.returns));
    }
    Ok(())
}

/// Name of an aggregation, and the coefficient of each row's tokens.
fn aggregated(case: &Case, mode: LossAggregation) -> Result<(String, Vec<f32>), Box<dyn Error>> {
    let lengths: Vec<_> = case.rows.iter().map(|row| SequenceTokens(row.at().len())).collect();
    let name = serde_json::to_value(mode)?.as_str().unwrap_or_default().to_owned();
    Ok((name, token_coefficients(mode, &lengths, case.longest)))
}

fn losses(case: &Case, found: &mut Found) -> Result<(), Box<dyn Error>> {
    for mode in AGGREGATIONS {
        let (aggregation, coefficients) = aggregated(case, mode)?;
        for (name, loss) in [
            ("clipped", LossName::Clipped),
            ("gspo", LossName::Gspo),
            ("cispo", LossName::Cispo),
        ] {
            if loss == LossName::Gspo && mode != LossAggregation::SeqMeanTokenMean {
                continue;
            }
            let section = TrainSection {
                loss: Some(loss),
                loss_agg_mode: Some(mode),
                clip_low: Some(case.clip_low),
                clip_high: Some(case.clip_high),
                ..TrainSection::default()
            };
            let objective = Recipe::from_section(&section, 1)?.objective(1.0);
            for weighed in [false, true] {
                let suffix = if weighed { "/weighed" } else { "" };
                let loss = policy_loss(case, &coefficients, &objective, weighed);
                found.losses.insert(format!("{name}/{aggregation}{suffix}"), loss);
            }
        }
        found.value_losses.insert(aggregation, fitted(case, &coefficients));
    }
    Ok(())
}

fn policy_loss(case: &Case, coefficients: &[f32], objective: &Objective, weighed: bool) -> Evaluated {
    let mut sum = Evaluated::default();
    for (row, coefficient) in case.rows.iter().zip(coefficients) {
        let tokens = vec![0; row.mask.len() + 1];
        let coefficients = vec![*coefficient; row.mask.len()];
        let view = Row {
            tokens: &tokens,
            loss_start: 1,
            mask: &row.mask,
            old_logprobs: &row.old,
            advantages: &row.advantages,
            coefficients: &coefficients,
            importance: if weighed { &row.importance } else { &[] },
            ref_logprobs: None,
            experts: &[],
        };
        let (mut slopes, mut entropies) = (Vec::new(), Vec::new());
        let scores = row.trained(&row.logprobs);
        let zeros = vec![0.0; scores.len()];
        let outputs = (&mut slopes, &mut entropies);
        let stats = evaluate(&view, &row.at(), (&scores, &zeros), objective, outputs);
        sum.loss += stats.loss;
        sum.clipped += stats.clipped;
        sum.clipped_lower += stats.clipped_lower;
        sum.neg_log_ratio += stats.neg_log_ratio;
        sum.slopes.push(slopes);
    }
    sum
}

fn fitted(case: &Case, coefficients: &[f32]) -> Evaluated {
    let mut sum = Evaluated::default();
    for (row, coefficient) in case.rows.iter().zip(coefficients) {
        let tokens = vec![0; row.mask.len() + 1];
        let coefficients = vec![*coefficient; row.mask.len()];
        let view = ValueRow {
            tokens: &tokens,
            loss_start: 1,
            mask: &row.mask,
            old_values: &row.old_values,
            returns: &row.returns,
            coefficients: &coefficients,
        };
        let mut slopes = Vec::new();
        let stats = value_loss(
            &view,
            &row.at(),
            &row.trained(&row.values),
            case.cliprange_value,
            &mut slopes,
        );
        sum.loss += stats.loss;
        sum.clipped += stats.clipped;
        sum.slopes.push(slopes);
    }
    sum
}

fn kl(case: &Case, found: &mut Found) {
    for (name, estimator) in [
        ("k1", KlEstimator::K1),
        ("k2", KlEstimator::K2),
        ("k3", KlEstimator::K3),
    ] {
        let of_row = |row: &CaseRow| {
            let pairs = row.trained(&row.logprobs).into_iter().zip(row.trained(&row.reference));
            let estimate = |(own, reference)| estimator.estimate(f64::from(own), f64::from(reference)).0;
            pairs.map(estimate).collect()
        };
        found.kl.insert(name.to_owned(), case.rows.iter().map(of_row).collect());
    }
}

fn correction(case: &Case, found: &mut Found) -> Result<(), Box<dyn Error>> {
    let pairs = |row: &CaseRow| {
        row.trained(&row.old)
            .into_iter()
            .zip(row.trained(&row.recorded))
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<(f32, f32)>> = case.rows.iter().map(pairs).collect();
    let log_ratios: Vec<Vec<f32>> = rows
        .iter()
        .map(|row| row.iter().map(|(old, recorded)| old - recorded).collect())
        .collect();
    for section in &case.corrections {
        let correction = Correction::from_section(section)
            .map_err(|(key, problem)| format!("{key}: {problem}"))?
            .ok_or("a correction that corrects nothing")?;
        let mut metrics = Metrics::new();
        let corrected = correction.apply(&log_ratios, &mut metrics);
        found.corrections.push(Corrected {
            weights: corrected.weights,
            kept: corrected.kept,
            metrics,
        });
    }
    if let Some(fidelity) = compare_log_probs(rows) {
        fidelity.measure(&mut found.off_policy);
    }
    Ok(())
}
