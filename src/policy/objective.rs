//! Per-token policy losses and their derivatives with respect to log-prob and entropy, on plain numbers.
//!
//! The tensors never see a loss: a backend hands in log-probs and entropies at the masked positions of a row and gets
//! back two gradients per position. Aggregation is not decided here; it comes folded into the row's coefficients.

use crate::row::Row;

#[cfg(test)]
mod tests;
mod value;

pub use value::{ValueStats, value_loss};

/// Bound of a log-ratio before it is exponentiated.
const LOG_RATIO_BOUND: f64 = 20.0;
/// Upper bound of GSPO's sequence log-ratio.
const SEQUENCE_LOG_RATIO_BOUND: f64 = 10.0;
/// Bound of the k3 estimate.
const K3_BOUND: f64 = 10.0;

/// The policy-gradient term. `low`, `high` bound the ratio to `[1 − low, 1 + high]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyLoss {
    /// PPO's clipped surrogate (Schulman et al. 2017), `dual` being the dual clip's c (Ye et al. 2020), commonly 3.
    Clipped { low: f32, high: f32, dual: Option<f32> },
    /// The clipped surrogate over the length-normalised sequence ratio (GSPO, Zheng et al. 2025), one ratio per row.
    Gspo { low: f32, high: f32 },
    /// `−stopgrad(clamp(ratio))·A·logp` (CISPO, `MiniMax` 2025).
    Cispo { low: f32, high: f32 },
    /// `−A·logp`
    Reinforce,
    /// `−logp`
    Sft,
}

/// Estimator of the KL divergence to the reference (Schulman, "Approximating KL divergence").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KlEstimator {
    /// `logp − ref`
    K1,
    /// `½(logp − ref)²`
    K2,
    /// `e^x − x − 1` with `x = ref − logp`
    K3,
}

impl KlEstimator {
    /// The estimate at one token and its derivative by `logprob`; k3 is bounded to 10, its exponent to ±20.
    pub fn estimate(self, logprob: f64, reference: f64) -> (f64, f64) {
        let difference = logprob - reference;
        match self {
            Self::K1 => (difference, 1.0),
            Self::K2 => (0.5 * difference * difference, difference),
            Self::K3 => {
                let x = (-difference).clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
                let value = x.exp() - x - 1.0;
                if value > K3_BOUND {
                    return (K3_BOUND, 0.0);
                }
                let is_bounded = difference.abs() > LOG_RATIO_BOUND;
                (value, if is_bounded { 0.0 } else { 1.0 - x.exp() })
            }
        }
    }
}

/// A KL term added to the loss of each token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KlTerm {
    pub estimator: KlEstimator,
    pub coefficient: f32,
}

/// What an update minimises: per token `L = policy loss + kl.coefficient · KL − entropy_coeff · H`, weighted by the
/// row's coefficients. Log-probs and entropies are those of `logits / temperature`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    pub loss: PolicyLoss,
    pub kl: Option<KlTerm>,
    pub entropy_coeff: f32,
    pub temperature: f32,
}

/// Sums over the masked positions; micro-batches add up by [`LossStats::merge`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossStats {
    /// Σ coefficient · L, all terms.
    pub loss: f64,
    /// Σ coefficient · policy loss.
    pub pg_loss: f64,
    /// Σ coefficient · KL, without the term's own coefficient.
    pub kl_loss: f64,
    /// Number of masked positions.
    pub tokens: f64,
    /// Positions where the clip decides the loss.
    pub clipped: f64,
    /// Positions where the dual clip decides it.
    pub clipped_lower: f64,
    /// Σ (old − logp), bounded as in the loss.
    pub neg_log_ratio: f64,
    /// Σ entropy.
    pub entropy: f64,
    /// Σ KL.
    pub kl: f64,
    /// Σ ratio.
    pub ratio_sum: f64,
    /// Least ratio; +∞ without any.
    pub ratio_min: f32,
    /// Greatest ratio; −∞ without any.
    pub ratio_max: f32,
    /// A log-prob or the loss was not finite.
    pub non_finite: bool,
}

impl Default for LossStats {
    fn default() -> Self {
        Self {
            loss: 0.0,
            pg_loss: 0.0,
            kl_loss: 0.0,
            tokens: 0.0,
            clipped: 0.0,
            clipped_lower: 0.0,
            neg_log_ratio: 0.0,
            entropy: 0.0,
            kl: 0.0,
            ratio_sum: 0.0,
            ratio_min: f32::INFINITY,
            ratio_max: f32::NEG_INFINITY,
            non_finite: false,
        }
    }
}

impl LossStats {
    /// Adds another micro-batch's sums.
    pub fn merge(&mut self, other: &Self) {
        self.loss += other.loss;
        self.pg_loss += other.pg_loss;
        self.kl_loss += other.kl_loss;
        self.tokens += other.tokens;
        self.clipped += other.clipped;
        self.clipped_lower += other.clipped_lower;
        self.neg_log_ratio += other.neg_log_ratio;
        self.entropy += other.entropy;
        self.kl += other.kl;
        self.ratio_sum += other.ratio_sum;
        self.ratio_min = self.ratio_min.min(other.ratio_min);
        self.ratio_max = self.ratio_max.max(other.ratio_max);
        self.non_finite |= other.non_finite;
    }
}

/// A policy loss at one position: its value, its derivative, and which clip decided it.
#[derive(Clone, Copy, Default)]
struct Term {
    value: f64,
    slope: f64,
    clipped: bool,
    clipped_lower: bool,
}

/// Loss of one row at its masked positions (response positions `at`, ascending), given log-probs and entropies there.
/// Pushes the derivative of `Σ coefficient · L` by log-prob and by entropy for each.
pub fn evaluate(
    row: &Row<'_>,
    at: &[usize],
    (logprobs, entropies): (&[f32], &[f32]),
    objective: &Objective,
    (dlogprobs, dentropies): (&mut Vec<f32>, &mut Vec<f32>),
) -> LossStats {
    let mut stats = LossStats {
        tokens: at.len() as f64,
        ..LossStats::default()
    };
    let log_ratio = |i: usize| {
        row.old_logprobs
            .get(at[i])
            .map_or(0.0, |old| f64::from(logprobs[i]) - f64::from(*old))
    };
    // GSPO: every token of the row carries the mean log-ratio; its own log-prob contributes the gradient only.
    let mean = (0..at.len()).map(log_ratio).sum::<f64>() / at.len().max(1) as f64;
    for (i, &position) in at.iter().enumerate() {
        let (logprob, entropy) = (f64::from(logprobs[i]), f64::from(entropies[i]));
        let coefficient = f64::from(row.coefficients[position]);
        let advantage = row.advantages.get(position).map_or(0.0, |a| f64::from(*a));
        let importance = row.importance.get(position).map_or(1.0, |w| f64::from(*w));
        let raw = log_ratio(i);
        let bounded = raw.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND);
        let own = (bounded, if raw.abs() <= LOG_RATIO_BOUND { 1.0 } else { 0.0 });
        let (term, ratio) = match objective.loss {
            PolicyLoss::Clipped { low, high, dual } => (clipped(own, advantage, (low, high), dual), bounded.exp()),
            PolicyLoss::Gspo { low, high } => {
                let slope = if mean <= SEQUENCE_LOG_RATIO_BOUND { 1.0 } else { 0.0 };
                let sequence = (mean.min(SEQUENCE_LOG_RATIO_BOUND), slope);
                (clipped(sequence, advantage, (low, high), None), sequence.0.exp())
            }
            PolicyLoss::Cispo { low, high } => {
                let ratio = bounded.exp();
                let weight = ratio.clamp(1.0 - f64::from(low), 1.0 + f64::from(high));
                let slope = -weight * advantage;
                (
                    Term {
                        value: slope * logprob,
                        slope,
                        clipped: ratio < 1.0 - f64::from(low) || ratio > 1.0 + f64::from(high),
                        clipped_lower: false,
                    },
                    ratio,
                )
            }
            PolicyLoss::Reinforce => (
                Term {
                    value: -advantage * logprob,
                    slope: -advantage,
                    ..Term::default()
                },
                bounded.exp(),
            ),
            PolicyLoss::Sft => (
                Term {
                    value: -logprob,
                    slope: -1.0,
                    ..Term::default()
                },
                bounded.exp(),
            ),
        };
        let (value, slope) = (importance * term.value, importance * term.slope);
        let (kl, kl_slope) = match (objective.kl, row.ref_logprobs) {
            (Some(term), Some(reference)) => term.estimator.estimate(logprob, f64::from(reference[position])),
            _ => (0.0, 0.0),
        };
        let kl_coefficient = objective.kl.map_or(0.0, |term| f64::from(term.coefficient));
        let entropy_coeff = f64::from(objective.entropy_coeff);
        let loss = coefficient * (value + kl_coefficient * kl - entropy_coeff * entropy);
        dlogprobs.push((coefficient * (slope + kl_coefficient * kl_slope)) as f32);
        dentropies.push((-coefficient * entropy_coeff) as f32);
        stats.loss += loss;
        stats.pg_loss += coefficient * value;
        stats.kl_loss += coefficient * kl;
        stats.clipped += f64::from(u8::from(term.clipped));
        stats.clipped_lower += f64::from(u8::from(term.clipped_lower));
        stats.neg_log_ratio -= bounded;
        stats.entropy += entropy;
        stats.kl += kl;
        stats.ratio_sum += ratio;
        stats.ratio_min = stats.ratio_min.min(ratio as f32);
        stats.ratio_max = stats.ratio_max.max(ratio as f32);
        stats.non_finite |= !(loss.is_finite() && logprob.is_finite());
    }
    stats
}

/// `max(−A·r, −A·clamp(r))`, and `min(−A·c, ·)` of it for A < 0 under a dual clip, with the derivative by log-prob.
/// `slope` is that of the log-ratio: 0 where it was itself cut off.
fn clipped((log_ratio, slope): (f64, f64), a: f64, (low, high): (f32, f32), dual: Option<f32>) -> Term {
    let ratio = log_ratio.exp();
    let plain = -a * ratio;
    let bounded = -a * ratio.clamp(1.0 - f64::from(low), 1.0 + f64::from(high));
    let is_clipped = bounded > plain;
    let (value, slope) = if is_clipped {
        (bounded, 0.0)
    } else {
        (plain, plain * slope)
    };
    if let Some(c) = dual
        && a < 0.0
        && value > -a * f64::from(c)
    {
        return Term {
            value: -a * f64::from(c),
            slope: 0.0,
            clipped: is_clipped,
            clipped_lower: true,
        };
    }
    Term {
        value,
        slope,
        clipped: is_clipped,
        clipped_lower: false,
    }
}
