//! Rows, mini-batches and micro-batches. Cost follows the tokens; the result does not depend on the cut.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use lego_policy::{Row, Sequence};

use crate::trajectory::{Segment, TokenId};

/// A segment as the trainer reads it. Position p of each per-position vector is `tokens[loss_start + p]`.
///
/// It begins to count at the first trained token and ends at the last: a prompt of any length is context,
/// and nothing after the last trained token can change a log-prob.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainRow {
    /// Prompt and response up to the last trained token.
    pub tokens: Vec<TokenId>,
    /// Index of the first trained token, at least 1.
    pub loss_start: usize,
    /// 1 where the token trains.
    pub mask: Vec<u8>,
    /// Log-probs as the engine recorded them; empty if it gave none.
    pub recorded: Vec<f32>,
    /// Log-probs at the start of the update; empty where the loss reads none.
    pub old: Vec<f32>,
    /// Log-probs under the reference, where there is a KL term.
    pub reference: Option<Vec<f32>>,
    /// Advantage of each position.
    pub advantages: Vec<f32>,
    /// What each position's value is fitted to; read by a critic alone.
    pub returns: Vec<f32>,
    /// Value of each position at the start of the update; empty without a critic.
    pub values: Vec<f32>,
    /// Weight of each position's loss.
    pub coefficients: Vec<f32>,
    /// Weight of each position's policy loss; empty where there is no rollout correction.
    pub importance: Vec<f32>,
    /// Experts that each token is to go through, as the policy package wants them; empty: as the router chooses.
    pub experts: Vec<u16>,
}

impl TrainRow {
    /// The row of a well-formed segment, all advantages 0; `None` where nothing in it trains.
    pub fn of_segment(segment: &Segment) -> Option<Self> {
        let first = segment.response_mask.iter().position(|&mask| mask == 1)?;
        let end = segment.response_mask.iter().rposition(|&mask| mask == 1)? + 1;
        let tokens = [segment.prompt_ids.as_slice(), &segment.response_ids[..end]].concat();
        let recorded = segment
            .response_logprobs
            .as_ref()
            .map_or_else(Vec::new, |values| values[first..end].to_vec());
        Some(Self {
            tokens,
            loss_start: segment.prompt_ids.len() + first,
            mask: segment.response_mask[first..end].to_vec(),
            recorded,
            old: Vec::new(),
            reference: None,
            advantages: vec![0.0; end - first],
            returns: Vec::new(),
            values: Vec::new(),
            coefficients: Vec::new(),
            importance: Vec::new(),
            experts: Vec::new(),
        })
    }

    /// Trained positions.
    pub fn trained_tokens(&self) -> usize {
        self.mask.iter().map(|mask| usize::from(*mask)).sum()
    }

    /// Whether any position has an advantage other than 0.
    pub fn has_advantage(&self) -> bool {
        self.advantages.iter().any(|advantage| *advantage != 0.0)
    }

    /// `values` of the trained positions, in their order, at their places; 0 elsewhere.
    pub fn placed(&self, values: &[f32]) -> Vec<f32> {
        let mut values = values.iter();
        let place = |mask: &u8| {
            if *mask == 1 {
                values.next().copied().unwrap_or_default()
            } else {
                0.0
            }
        };
        self.mask.iter().map(place).collect()
    }

    /// Takes trained positions out, `kept` being one for each.
    pub fn reject(&mut self, kept: &[bool]) {
        let trained = self.mask.iter_mut().filter(|mask| **mask == 1);
        trained.zip(kept).for_each(|(mask, kept)| *mask = u8::from(*kept));
    }

    /// Gives each trained position this weight, and the others 0.
    pub fn set_coefficient(&mut self, coefficient: f32) {
        self.coefficients = self
            .mask
            .iter()
            .map(|&mask| if mask == 1 { coefficient } else { 0.0 })
            .collect();
    }

    /// `values` with 0 where nothing trains, as shards have them: no value outside the mask can reach a sum.
    pub fn masked(&self, mut values: Vec<f32>) -> Vec<f32> {
        values
            .iter_mut()
            .zip(&self.mask)
            .filter(|(_, mask)| **mask == 0)
            .for_each(|(value, _)| *value = 0.0);
        values
    }

    /// The values of the trained positions among `values`.
    pub fn trained<'a>(&'a self, values: &'a [f32]) -> impl Iterator<Item = f32> + 'a {
        values
            .iter()
            .zip(&self.mask)
            .filter(|(_, mask)| **mask == 1)
            .map(|(value, _)| *value)
    }

    /// The policy package's view, for an update.
    pub fn view(&self) -> Row<'_> {
        Row {
            tokens: &self.tokens,
            loss_start: self.loss_start,
            mask: &self.mask,
            old_logprobs: &self.old,
            advantages: &self.advantages,
            coefficients: &self.coefficients,
            importance: &self.importance,
            ref_logprobs: self.reference.as_deref(),
            experts: &self.experts,
        }
    }

    /// The policy package's view, for log-probs; with the prescribed experts, or as the router chooses.
    pub fn sequence(&self, prescribed: bool) -> Sequence<'_> {
        Sequence {
            tokens: &self.tokens,
            loss_start: self.loss_start,
            experts: if prescribed { &self.experts } else { &[] },
        }
    }
}

/// Splits `units` into mini-batches of at most `per_batch`, as even as may be, in an order drawn from the seed
/// and the step. Each unit is in exactly one.
pub fn split_mini_batches(units: usize, per_batch: usize, seed: u64, step: u64) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..units).collect();
    let batches = units.div_ceil(per_batch.max(1));
    if batches > 1 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(step);
        order.shuffle(&mut rng);
    }
    let mut rest = order.as_slice();
    (0..batches)
        .map(|done| {
            let (batch, left) = rest.split_at(rest.len().div_ceil(batches - done));
            rest = left;
            batch.to_vec()
        })
        .collect()
}

/// Cuts rows of these lengths into micro-batches: longest first, so that the rows of one are about as long as
/// each other, and rows × longest stays within `budget` tokens. A row longer than that stands alone.
pub fn cut_micro_batches(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&row| (std::cmp::Reverse(lengths[row]), row));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for row in order {
        match batches.last_mut() {
            Some(batch) if (batch.len() + 1) * lengths[batch[0]] <= budget => batch.push(row),
            _ => batches.push(vec![row]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_row_spans_the_trained_tokens_and_keeps_the_whole_context() {
        let segment = Segment {
            prompt_ids: vec![1, 2],
            response_ids: vec![3, 4, 5, 6, 7],
            response_mask: vec![0, 1, 0, 1, 0],
            response_logprobs: Some(vec![0.0, -0.5, 0.0, -0.25, 0.0]),
            ..Segment::default()
        };
        let mut row = TrainRow::of_segment(&segment).unwrap();
        assert_eq!(
            (row.tokens.as_slice(), row.loss_start),
            ([1, 2, 3, 4, 5, 6].as_slice(), 3)
        );
        assert_eq!((row.mask.as_slice(), row.advantages.len()), ([1, 0, 1].as_slice(), 3));
        assert_eq!(row.trained(&row.recorded).collect::<Vec<_>>(), [-0.5, -0.25]);
        row.set_coefficient(0.25);
        assert_eq!(row.coefficients, [0.25, 0.0, 0.25]);
        assert_eq!(
            (row.trained_tokens(), row.placed(&[5.0, 6.0])),
            (2, vec![5.0, 0.0, 6.0])
        );
        row.reject(&[false, true]);
        assert_eq!(row.mask, [0, 0, 1]);
        let untrained = Segment {
            response_mask: vec![0; 5],
            ..segment
        };
        assert_eq!(TrainRow::of_segment(&untrained), None);
    }

    #[test]
    fn mini_batches_are_even_and_repeatable() {
        let batches = split_mini_batches(9, 4, 42, 3);
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 3]);
        assert_eq!(batches, split_mini_batches(9, 4, 42, 3));
        assert_ne!(batches, split_mini_batches(9, 4, 42, 4));
        assert_eq!(split_mini_batches(3, 3, 42, 1), [[0, 1, 2]]);
        assert!(split_mini_batches(0, 4, 42, 1).is_empty());
    }

    proptest! {
        #[test]
        fn every_unit_is_in_one_mini_batch(units in 0..40_usize, per in 1..12_usize, seed: u64) {
            let batches = split_mini_batches(units, per, seed, 1);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..units).collect::<Vec<_>>());
            prop_assert!(batches.iter().all(|batch| !batch.is_empty() && batch.len() <= per));
        }

        #[test]
        fn every_row_is_in_one_micro_batch_within_the_budget(
            lengths in prop::collection::vec(1..60_usize, 0..30), budget in 1..200_usize,
        ) {
            let batches = cut_micro_batches(&lengths, budget);
            let mut seen: Vec<usize> = batches.iter().flatten().copied().collect();
            seen.sort_unstable();
            prop_assert_eq!(seen, (0..lengths.len()).collect::<Vec<_>>());
            for batch in batches {
                let longest = batch.iter().map(|&row| lengths[row]).max().unwrap();
                prop_assert!(batch.len() == 1 || batch.len() * longest <= budget);
            }
        }
    }
}
