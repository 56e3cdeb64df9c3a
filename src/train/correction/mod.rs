//! What makes up for an engine whose probabilities are not the trainer's (trainer.md §5): weights of the policy loss,
//! and tokens that leave the loss.
//!
//! All of it works on log-ratios d = trainer − engine of trained tokens, row by row: a segment is a sequence here, as it
//! is for GSPO's ratio. Names of metrics are verl's.

mod metrics;
mod rejection;
mod weights;

pub use rejection::Rule;
pub use weights::Weighting;

use super::report::Metrics;
use crate::config::{RatioBounds, RolloutCorrectionSection, RolloutIs};

/// Bound of a log-ratio before it is exponentiated.
const LOG_RATIO_BOUND: f64 = 20.0;
/// Upper bound of the weight where none is written.
const DEFAULT_BOUND: RatioBounds = RatioBounds {
    lower: None,
    upper: 2.0,
};

/// The correction of a recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Correction {
    /// Weights of the policy loss.
    pub weighting: Option<Weighting>,
    /// What tokens must pass.
    pub rules: Vec<Rule>,
}

/// What becomes of the trained tokens of each row.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Corrected {
    /// Weight of each token's policy loss; no rows without a weighting.
    pub weights: Vec<Vec<f32>>,
    /// Whether each token stays in the loss; no rows without rules.
    pub kept: Vec<Vec<bool>>,
}

impl Correction {
    /// The correction of `[train.rollout_correction]`, or what is wrong with the key that is named.
    pub fn from_section(section: &RolloutCorrectionSection) -> Result<Option<Self>, (&'static str, String)> {
        let weighting = match section.rollout_is {
            RolloutIs::None => None,
            level => Some(Weighting {
                by_sequence: level == RolloutIs::Sequence,
                bounds: section.rollout_is_threshold.unwrap_or(DEFAULT_BOUND),
                normalize: section.rollout_is_batch_normalize,
            }),
        };
        let rules = rejection::rules(&section.rollout_rs, &section.rollout_rs_threshold)
            .map_err(|problem| ("rollout_correction.rollout_rs_threshold", problem))?;
        Ok((weighting.is_some() || !rules.is_empty()).then_some(Self { weighting, rules }))
    }

    /// Whether the rows that the loss leaves out would change what becomes of the others.
    pub fn reads_all_rows(&self) -> bool {
        !self.rules.is_empty() || self.weighting.is_some_and(|weighting| weighting.normalize)
    }

    /// Corrects rows of trained tokens, each with at least one, and says what it did.
    pub fn apply(&self, log_ratios: &[Vec<f32>], metrics: &mut Metrics) -> Corrected {
        let mut corrected = Corrected::default();
        if log_ratios.is_empty() {
            return corrected;
        }
        if let Some(weighting) = self.weighting {
            corrected.weights = weighting.apply(log_ratios, metrics);
        }
        if !self.rules.is_empty() {
            corrected.kept = rejection::apply(&self.rules, log_ratios, metrics);
        }
        corrected
    }
}

fn bounded(log_ratio: f64) -> f64 {
    log_ratio.clamp(-LOG_RATIO_BOUND, LOG_RATIO_BOUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RejectionRule;

    #[test]
    fn a_section_that_asks_for_nothing_is_no_correction() {
        assert_eq!(Correction::from_section(&RolloutCorrectionSection::default()), Ok(None));
    }

    #[test]
    fn thresholds_go_with_their_rules() {
        let section = |rules: &[RejectionRule], thresholds: &[&str]| RolloutCorrectionSection {
            rollout_rs: rules.to_vec(),
            rollout_rs_threshold: thresholds.iter().map(|text| text.parse().unwrap()).collect(),
            ..RolloutCorrectionSection::default()
        };
        let one = section(&[RejectionRule::TokenK1, RejectionRule::SeqMaxK3], &["2"]);
        let correction = Correction::from_section(&one).unwrap().unwrap();
        assert_eq!(correction.rules.len(), 2);
        assert!(correction.reads_all_rows());
        for (rules, thresholds, says) in [
            (&[RejectionRule::TokenK1][..], &[][..], "one threshold"),
            (&[RejectionRule::TokenK2], &["0.5_2"], "token_k2"),
            (&[RejectionRule::TokenK2], &["1", "2"], "found 2"),
            (&[RejectionRule::SeqMeanK1], &["0.5"], "from both sides"),
        ] {
            let (key, problem) = Correction::from_section(&section(rules, thresholds)).unwrap_err();
            assert_eq!(key, "rollout_correction.rollout_rs_threshold");
            assert!(problem.contains(says), "{problem}");
        }
    }
}
