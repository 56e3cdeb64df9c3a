//! Importance weights: truncated (TIS), or 0 outside their bounds (`IcePop`).

use super::metrics::{insert, mean, sample_std, share};
use super::{LOG_RATIO_BOUND, bounded};
use crate::config::RatioBounds;
use crate::train::report::Metrics;

/// Keeps divisions by a mean weight finite.
const EPSILON: f64 = 1e-8;

/// Weights of the policy loss, ρ = e^d of the token or e^Σd of its row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weighting {
    /// Whether the ratios of a row are multiplied.
    pub by_sequence: bool,
    /// One bound cuts the weight off there; two make it 0 outside.
    pub bounds: RatioBounds,
    /// Whether weights are divided by their mean: over tokens, or over rows where they are the rows'.
    pub normalize: bool,
}

impl Weighting {
    /// The weight of each token.
    pub(super) fn apply(self, log_ratios: &[Vec<f32>], metrics: &mut Metrics) -> Vec<Vec<f32>> {
        let raw: Vec<Vec<f64>> = log_ratios.iter().map(|row| self.raw(row)).collect();
        let mut weights: Vec<Vec<f64>> = raw
            .iter()
            .map(|row| row.iter().map(|weight| self.cut(*weight)).collect())
            .collect();
        self.measure(log_ratios, &raw, &weights, metrics);
        if self.normalize {
            let mean = if self.by_sequence {
                mean(weights.iter().map(|row| mean(row.iter().copied())))
            } else {
                mean(weights.iter().flatten().copied())
            };
            let factor = if mean > EPSILON { mean } else { 1.0 };
            weights.iter_mut().flatten().for_each(|weight| *weight /= factor);
            insert(metrics, "rollout_is_batch_norm_factor", factor);
        }
        let narrow = |row: Vec<f64>| row.into_iter().map(|weight| weight as f32).collect();
        weights.into_iter().map(narrow).collect()
    }

    fn raw(self, log_ratios: &[f32]) -> Vec<f64> {
        if self.by_sequence {
            let sum: f64 = log_ratios.iter().map(|d| f64::from(*d)).sum();
            vec![bounded(sum).exp(); log_ratios.len()]
        } else {
            log_ratios.iter().map(|d| bounded(f64::from(*d)).exp()).collect()
        }
    }

    fn cut(self, raw: f64) -> f64 {
        match self.bounds.lower {
            None => raw.min(self.bounds.upper),
            Some(lower) if raw >= lower && raw <= self.bounds.upper => raw,
            Some(_) => 0.0,
        }
    }

    fn measure(self, log_ratios: &[Vec<f32>], raw: &[Vec<f64>], weights: &[Vec<f64>], metrics: &mut Metrics) {
        let (lower, upper) = (self.bounds.lower.unwrap_or(1.0 / self.bounds.upper), self.bounds.upper);
        let tokens = || weights.iter().flatten().copied();
        let average = mean(tokens());
        let mut set = |name: &str, value: f64| insert(metrics, &format!("rollout_is_{name}"), value);
        set("mean", average);
        if self.by_sequence {
            let sums: Vec<f64> = log_ratios
                .iter()
                .map(|row| row.iter().map(|d| f64::from(*d)).sum())
                .collect();
            let fold = |f: fn(f64, f64) -> f64, from| sums.iter().copied().fold(from, f);
            set("max", fold(f64::max, f64::NEG_INFINITY).min(LOG_RATIO_BOUND).exp());
            set("min", fold(f64::min, f64::INFINITY).exp());
            set("ratio_fraction_high", share(sums.iter().map(|sum| *sum > upper.ln())));
            set("ratio_fraction_low", share(sums.iter().map(|sum| *sum < lower.ln())));
        } else {
            set("max", tokens().fold(f64::NEG_INFINITY, f64::max));
            set("min", tokens().fold(f64::INFINITY, f64::min));
            set(
                "ratio_fraction_high",
                share(raw.iter().flatten().map(|weight| *weight > upper)),
            );
            set(
                "ratio_fraction_low",
                share(raw.iter().flatten().map(|weight| *weight < lower)),
            );
        }
        if self.bounds.lower.is_some() {
            let outside = raw.iter().flatten().map(|weight| *weight < lower || *weight > upper);
            set("oob_ratio", share(outside));
        }
        let squares = mean(tokens().map(|weight| weight * weight));
        set("std", (squares - average * average).max(0.0).sqrt());
        let relative = mean(tokens().map(|weight| (weight / (average + EPSILON)).powi(2)));
        // Where every weight is 0 no sample is worth anything.
        set("eff_sample_size", if relative > 0.0 { 1.0 / relative } else { 0.0 });
        let by_row: Vec<f64> = weights.iter().map(|row| mean(row.iter().copied())).collect();
        let raw_by_row = || raw.iter().map(|row| mean(row.iter().copied()));
        set("seq_mean", mean(by_row.iter().copied()));
        set("seq_std", sample_std(&by_row));
        set("seq_max", by_row.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        set("seq_min", by_row.iter().copied().fold(f64::INFINITY, f64::min));
        set(
            "seq_max_deviation",
            by_row.iter().map(|weight| (weight - 1.0).abs()).fold(0.0, f64::max),
        );
        set("seq_fraction_high", share(raw_by_row().map(|weight| weight > upper)));
        set("seq_fraction_low", share(raw_by_row().map(|weight| weight < lower)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn weighting(by_sequence: bool, bounds: &str) -> Weighting {
        Weighting {
            by_sequence,
            bounds: bounds.parse().unwrap(),
            normalize: false,
        }
    }

    fn near(found: &[Vec<f32>], expected: &[&[f32]]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().flatten().zip(expected.iter().copied().flatten()) {
            assert!((a - b).abs() < 1e-5, "found {found:?}, expected {expected:?}");
        }
    }

    /// Ratios 4, 1 and 1/2; their products are 4 and 1/2.
    fn rows() -> [Vec<f32>; 2] {
        [vec![4_f32.ln(), 0.0], vec![0.5_f32.ln()]]
    }

    #[test]
    fn truncated_and_cut_out_weights_by_hand() {
        let mut metrics = Metrics::new();
        let found = weighting(false, "2").apply(&rows(), &mut metrics);
        near(&found, &[&[2.0, 1.0], &[0.5]]);
        let value = |metrics: &Metrics, name: &str| metrics[&format!("rollout_corr/rollout_is_{name}")];
        assert!((value(&metrics, "mean") - 3.5 / 3.0).abs() < 1e-6);
        assert!((value(&metrics, "ratio_fraction_high") - 1.0 / 3.0).abs() < 1e-6);
        // (Σw)²/(n·Σw²) = 12.25 / (3·5.25).
        assert!((value(&metrics, "eff_sample_size") - 12.25 / 15.75).abs() < 1e-6);
        assert!((value(&metrics, "seq_mean") - 1.0).abs() < 1e-6);
        near(
            &weighting(false, "0.6_5").apply(&rows(), &mut metrics),
            &[&[4.0, 1.0], &[0.0]],
        );
        assert!((value(&metrics, "oob_ratio") - 1.0 / 3.0).abs() < 1e-6);
        near(
            &weighting(true, "3").apply(&rows(), &mut metrics),
            &[&[3.0, 3.0], &[0.5]],
        );
        assert!(
            (value(&metrics, "max") - 4.0).abs() < 1e-5,
            "the largest is told as it was"
        );
        near(
            &weighting(true, "0.6_3").apply(&rows(), &mut metrics),
            &[&[0.0, 0.0], &[0.0]],
        );
        assert!(metrics.values().all(|value| value.is_finite()), "{metrics:?}");
    }

    #[test]
    fn normalised_weights_have_mean_1_over_tokens_or_rows() {
        let normalised = |by_sequence| Weighting {
            normalize: true,
            ..weighting(by_sequence, "8")
        };
        let factor = 5.5 / 3.0;
        let found = normalised(false).apply(&rows(), &mut Metrics::new());
        near(&found, &[&[4.0 / factor, 1.0 / factor], &[0.5 / factor]]);
        let found = normalised(true).apply(&rows(), &mut Metrics::new());
        near(&found, &[&[4.0 / 2.25, 4.0 / 2.25], &[0.5 / 2.25]]);
    }

    #[test]
    fn a_ratio_that_would_overflow_is_bounded() {
        let found = weighting(false, "1e30").apply(&[vec![500.0, -500.0]], &mut Metrics::new());
        near(&found, &[&[20_f32.exp(), 0.0]]);
    }
}
