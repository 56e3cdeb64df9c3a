//! Aggregation: the weight of a token's loss in the loss of its mini-batch (trainer.md §3).
//!
//! The denominators are of the whole mini-batch, so that the gradient does not depend on how it is cut
//! into micro-batches: the micro-batches' sums simply add up.

use crate::config::LossAggregation;

/// Tokens of one sequence (an episode with all its segments) in the mini-batch that its loss belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceTokens(pub usize);

/// The coefficient of each sequence's token losses, such that Σ coefficient·L over the trained tokens of the
/// mini-batch is the aggregated loss. `longest_allowed` is `T_max` of `seq-mean-token-sum-norm`, in tokens.
///
/// A sequence without a trained token gets 0 and does not count as a sequence.
pub fn token_coefficients(mode: LossAggregation, sequences: &[SequenceTokens], longest_allowed: usize) -> Vec<f32> {
    let tokens: usize = sequences.iter().map(|sequence| sequence.0).sum();
    let count = sequences.iter().filter(|sequence| sequence.0 > 0).count();
    sequences
        .iter()
        .map(|&SequenceTokens(own)| {
            if own == 0 {
                return 0.0;
            }
            let denominator = match mode {
                LossAggregation::TokenMean => tokens as f64,
                LossAggregation::SeqMeanTokenSum => count as f64,
                LossAggregation::SeqMeanTokenMean => count as f64 * own as f64,
                LossAggregation::SeqMeanTokenSumNorm => count as f64 * longest_allowed.max(1) as f64,
            };
            (1.0 / denominator) as f32
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MODES: [LossAggregation; 4] = [
        LossAggregation::TokenMean,
        LossAggregation::SeqMeanTokenSum,
        LossAggregation::SeqMeanTokenMean,
        LossAggregation::SeqMeanTokenSumNorm,
    ];

    /// The definitions of trainer.md §3, written over the token losses themselves.
    fn by_definition(mode: LossAggregation, losses: &[Vec<f64>], longest: usize) -> f64 {
        let counted: Vec<&Vec<f64>> = losses.iter().filter(|tokens| !tokens.is_empty()).collect();
        let sequences = counted.len().max(1) as f64;
        let sum = |tokens: &Vec<f64>| tokens.iter().sum::<f64>();
        let all: f64 = counted.iter().map(|tokens| sum(tokens)).sum();
        match mode {
            LossAggregation::TokenMean => all / counted.iter().map(|tokens| tokens.len()).sum::<usize>().max(1) as f64,
            LossAggregation::SeqMeanTokenSum => all / sequences,
            LossAggregation::SeqMeanTokenMean => {
                counted
                    .iter()
                    .map(|tokens| sum(tokens) / tokens.len() as f64)
                    .sum::<f64>()
                    / sequences
            }
            LossAggregation::SeqMeanTokenSumNorm => all / (sequences * longest as f64),
        }
    }

    proptest! {
        #[test]
        fn coefficients_give_the_defined_loss_however_it_is_cut(
            losses in prop::collection::vec(prop::collection::vec(-3.0..3.0_f64, 0..9), 1..9), cut in 0..9_usize,
        ) {
            let lengths: Vec<_> = losses.iter().map(|tokens| SequenceTokens(tokens.len())).collect();
            for mode in MODES {
                let coefficients = token_coefficients(mode, &lengths, 8);
                let part = |range: std::ops::Range<usize>| -> f64 {
                    range.map(|i| f64::from(coefficients[i]) * losses[i].iter().sum::<f64>()).sum()
                };
                let cut = cut.min(losses.len());
                let found = part(0..cut) + part(cut..losses.len());
                let expected = by_definition(mode, &losses, 8);
                prop_assert!((found - expected).abs() < 1e-5, "{mode:?}: {found} {expected}");
            }
        }

        #[test]
        fn weights_of_a_mean_sum_to_one(lengths in prop::collection::vec(1..50_usize, 1..9)) {
            let lengths: Vec<_> = lengths.into_iter().map(SequenceTokens).collect();
            for mode in [LossAggregation::TokenMean, LossAggregation::SeqMeanTokenMean] {
                let total: f64 = token_coefficients(mode, &lengths, 8)
                    .iter().zip(&lengths).map(|(c, n)| f64::from(*c) * n.0 as f64).sum();
                prop_assert!((total - 1.0).abs() < 1e-5, "{mode:?}: {total}");
            }
        }
    }

    #[test]
    fn two_episodes_by_hand() {
        let lengths = [SequenceTokens(1), SequenceTokens(3)];
        assert_eq!(
            token_coefficients(LossAggregation::TokenMean, &lengths, 10),
            [0.25, 0.25]
        );
        assert_eq!(
            token_coefficients(LossAggregation::SeqMeanTokenSum, &lengths, 10),
            [0.5, 0.5]
        );
        assert_eq!(
            token_coefficients(LossAggregation::SeqMeanTokenMean, &lengths, 10),
            [0.5, 1.0 / 6.0]
        );
        assert_eq!(
            token_coefficients(LossAggregation::SeqMeanTokenSumNorm, &lengths, 10),
            [0.05, 0.05]
        );
    }
}
