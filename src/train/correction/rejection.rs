//! Rejection: tokens, or whole rows, whose log-ratios are out of bounds leave the loss.

use super::bounded;
use super::metrics::{insert, mean, sample_std, share};
use crate::config::{RatioBounds, RejectionRule};
use crate::train::report::Metrics;

/// A rule with its bounds, those of k1 as logs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    name: RejectionRule,
    lower: Option<f64>,
    upper: f64,
}

/// Estimators of the divergence at a token.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Estimator {
    K1,
    K2,
    K3,
}

/// What is held against the bounds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Token,
    Sum,
    Mean,
    Max,
}

fn parts(rule: RejectionRule) -> (Level, Estimator) {
    match rule {
        RejectionRule::TokenK1 => (Level::Token, Estimator::K1),
        RejectionRule::TokenK2 => (Level::Token, Estimator::K2),
        RejectionRule::TokenK3 => (Level::Token, Estimator::K3),
        RejectionRule::SeqSumK1 => (Level::Sum, Estimator::K1),
        RejectionRule::SeqSumK2 => (Level::Sum, Estimator::K2),
        RejectionRule::SeqSumK3 => (Level::Sum, Estimator::K3),
        RejectionRule::SeqMeanK1 => (Level::Mean, Estimator::K1),
        RejectionRule::SeqMeanK2 => (Level::Mean, Estimator::K2),
        RejectionRule::SeqMeanK3 => (Level::Mean, Estimator::K3),
        RejectionRule::SeqMaxK2 => (Level::Max, Estimator::K2),
        RejectionRule::SeqMaxK3 => (Level::Max, Estimator::K3),
    }
}

/// Each rule with its threshold: one for all of them, or one each.
pub(super) fn rules(names: &[RejectionRule], thresholds: &[RatioBounds]) -> Result<Vec<Rule>, String> {
    if !(thresholds.len() == names.len() || thresholds.len() == 1 && !names.is_empty()) {
        let (rules, found) = (names.len(), thresholds.len());
        return Err(format!(
            "expected one threshold, or one for each of the {rules} rules of rollout_rs; found {found}"
        ));
    }
    let rule = |(place, rule): (usize, &RejectionRule)| {
        let bounds = thresholds[if thresholds.len() == 1 { 0 } else { place }];
        if parts(*rule).1 == Estimator::K1 {
            let lower = bounds.lower.unwrap_or(1.0 / bounds.upper);
            if lower > bounds.upper {
                return Err(format!(
                    "`{}` bounds a ratio from both sides; expected a text such as `2.0` or `0.5_2.0`, found `{bounds}`",
                    rule.name()
                ));
            }
            return Ok(Rule {
                name: *rule,
                lower: Some(lower.ln()),
                upper: bounds.upper.ln(),
            });
        }
        match bounds.lower {
            None => Ok(Rule {
                name: *rule,
                lower: None,
                upper: bounds.upper,
            }),
            Some(_) => Err(format!(
                "`{}` is at least 0 and has an upper bound alone; expected a text such as `2.0`, found `{bounds}`",
                rule.name()
            )),
        }
    };
    names.iter().enumerate().map(rule).collect()
}

/// Whether each token passes all rules.
pub(super) fn apply(rules: &[Rule], log_ratios: &[Vec<f32>], metrics: &mut Metrics) -> Vec<Vec<bool>> {
    let mut kept: Vec<Vec<bool>> = log_ratios.iter().map(|row| vec![true; row.len()]).collect();
    for rule in rules {
        let statistics: Vec<Vec<f64>> = log_ratios.iter().map(|row| rule.statistic(row)).collect();
        let passed: Vec<Vec<bool>> = statistics
            .iter()
            .map(|row| row.iter().map(|statistic| rule.passes(*statistic)).collect())
            .collect();
        rule.measure(&statistics, &passed, metrics);
        for (kept, passed) in kept.iter_mut().flatten().zip(passed.iter().flatten()) {
            *kept &= passed;
        }
    }
    insert(metrics, "rollout_rs_masked_fraction", rejected(&kept));
    insert(metrics, "rollout_rs_seq_masked_fraction", touched(&kept));
    kept
}

/// Share of tokens that do not pass.
fn rejected(kept: &[Vec<bool>]) -> f64 {
    share(kept.iter().flatten().map(|kept| !kept))
}

/// Share of rows that lose a token.
fn touched(kept: &[Vec<bool>]) -> f64 {
    share(kept.iter().map(|row| row.iter().any(|kept| !kept)))
}

impl Rule {
    /// The statistic that decides over each token of a row.
    fn statistic(self, log_ratios: &[f32]) -> Vec<f64> {
        let (level, estimator) = parts(self.name);
        let of_token = |d: &f32| {
            let d = bounded(f64::from(*d));
            match estimator {
                Estimator::K1 => -d,
                Estimator::K2 => 0.5 * d * d,
                Estimator::K3 => d.exp() - 1.0 - d,
            }
        };
        let tokens: Vec<f64> = log_ratios.iter().map(of_token).collect();
        let of_row = match level {
            Level::Token => return tokens,
            Level::Sum => tokens.iter().sum(),
            Level::Mean => mean(tokens.iter().copied()),
            Level::Max => tokens.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        };
        vec![of_row; tokens.len()]
    }

    fn passes(self, statistic: f64) -> bool {
        statistic <= self.upper && self.lower.is_none_or(|lower| statistic >= lower)
    }

    fn measure(self, statistics: &[Vec<f64>], passed: &[Vec<bool>], metrics: &mut Metrics) {
        let by_token = parts(self.name).0 == Level::Token;
        let tokens = || statistics.iter().flatten().copied();
        let rows: Vec<f64> = statistics.iter().map(|row| mean(row.iter().copied())).collect();
        let decided: Vec<f64> = if by_token { tokens().collect() } else { rows.clone() };
        let high = |values: &[f64]| share(values.iter().map(|value| *value > self.upper));
        let low = |values: &[f64]| {
            share(
                values
                    .iter()
                    .map(|value| self.lower.is_some_and(|lower| *value < lower)),
            )
        };
        let mut set = |name: &str, value: f64| {
            insert(metrics, &format!("rollout_rs_{}_{name}", self.name.name()), value);
        };
        set("mean", mean(tokens()));
        set("max", decided.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        set("min", decided.iter().copied().fold(f64::INFINITY, f64::min));
        set("fraction_high", high(&decided));
        set("fraction_low", low(&decided));
        let clamped = || tokens().map(|value| value.clamp(self.lower.unwrap_or(0.0), self.upper));
        let (average, squares) = (mean(clamped()), mean(clamped().map(|value| value * value)));
        set("std", (squares - average * average).max(0.0).sqrt());
        set("seq_mean", mean(rows.iter().copied()));
        set("seq_std", sample_std(&rows));
        set("seq_max", rows.iter().copied().fold(f64::NEG_INFINITY, f64::max));
        set("seq_min", rows.iter().copied().fold(f64::INFINITY, f64::min));
        set(
            "seq_max_deviation",
            rows.iter().map(|value| value.abs()).fold(0.0, f64::max),
        );
        set("seq_fraction_high", high(&rows));
        if self.lower.is_some() {
            set("seq_fraction_low", low(&rows));
        }
        set("masked_fraction", rejected(passed));
        set("seq_masked_fraction", touched(passed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(rule: RejectionRule, threshold: &str) -> Vec<Vec<bool>> {
        // d = ln 4, 0 | −ln 2, −ln 2.
        let rows = [vec![4_f32.ln(), 0.0], vec![0.5_f32.ln(); 2]];
        let mut metrics = Metrics::new();
        let rules = rules(&[rule], &[threshold.parse().unwrap()]).unwrap();
        let kept = apply(&rules, &rows, &mut metrics);
        assert!(metrics.values().all(|value| value.is_finite()), "{metrics:?}");
        let rejected = kept.iter().flatten().filter(|kept| !**kept).count() as f64 / 4.0;
        let name = format!("rollout_corr/rollout_rs_{}_masked_fraction", rule.name());
        assert!((metrics[&name] - rejected).abs() < 1e-9);
        assert!((metrics["rollout_corr/rollout_rs_masked_fraction"] - rejected).abs() < 1e-9);
        kept
    }

    #[test]
    fn each_rule_by_hand() {
        let (all, none, first, second) = ([true; 2], [false; 2], [false, true], [true, true]);
        // k1 = −ln 4, 0 | ln 2: the bounds are of the ratio engine to trainer, 1/4, 1 | 2.
        assert_eq!(kept(RejectionRule::TokenK1, "3"), [first, second]);
        assert_eq!(kept(RejectionRule::TokenK1, "0.2_1.5"), [all, none]);
        // k2 = 0.961, 0 | 0.240; k3 = 4 − 1 − 1.386 = 1.614, 0 | 0.5 − 1 + 0.693 = 0.193.
        assert_eq!(kept(RejectionRule::TokenK2, "0.5"), [first, second]);
        assert_eq!(kept(RejectionRule::TokenK3, "0.19"), [first, [false, false]]);
        // Sums: k1 −1.386 | 1.386, k2 0.961 | 0.480, k3 1.614 | 0.386.
        assert_eq!(kept(RejectionRule::SeqSumK1, "0.2_3"), [all, none]);
        assert_eq!(kept(RejectionRule::SeqSumK2, "0.5"), [none, all]);
        assert_eq!(kept(RejectionRule::SeqSumK3, "0.3"), [none, none]);
        // Means: half of that.
        assert_eq!(kept(RejectionRule::SeqMeanK1, "0.6_3"), [none, all]);
        assert_eq!(kept(RejectionRule::SeqMeanK2, "0.5"), [all, all]);
        assert_eq!(kept(RejectionRule::SeqMeanK3, "0.5"), [none, all]);
        assert_eq!(kept(RejectionRule::SeqMaxK2, "0.9"), [none, all]);
        assert_eq!(kept(RejectionRule::SeqMaxK3, "1.7"), [all, all]);
    }

    #[test]
    fn a_token_stays_that_every_rule_lets_pass() {
        let rows = [vec![4_f32.ln(), 0.0], vec![0.5_f32.ln(); 2]];
        let both = [RejectionRule::TokenK2, RejectionRule::SeqMeanK1];
        let rules = rules(&both, &["0.5".parse().unwrap(), "0.4_1.5".parse().unwrap()]).unwrap();
        let kept = apply(&rules, &rows, &mut Metrics::new());
        assert_eq!(kept, [[false, true], [false, false]]);
    }
}
