//! Advantages: how much better than its group an episode was. Definitions: trainer.md §2.
//!
//! An algorithm yields plain numbers, one an episode, and never sees tokens; `credit` takes them to the tokens. The
//! tensor losses that use them are the policy package's.

mod control;
mod credit;
mod estimator;
mod grpo;
mod opo;
mod plain;
mod remax;
mod rloo;
mod supervised;

pub use credit::{Credit, Credited, Track};
pub use estimator::Estimator;
pub use grpo::Grpo;
pub use opo::Opo;
pub use plain::Plain;
pub use remax::Remax;
pub use rloo::Rloo;
pub use supervised::Supervised;

/// The episodes of one task sampled for one step that were not dropped.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Return of each member: the sum of its row's rewards. Empty where the algorithm reads none.
    pub returns: Vec<f32>,
    /// Members.
    pub size: usize,
    /// Members as configured or as delivered, dropped ones included: tells a group of one by
    /// configuration from one that drops have shrunk.
    pub sampled: usize,
    /// Trained tokens of each member, whether in the loss or not.
    pub lengths: Vec<usize>,
    /// Return of the greedy episode that the members are compared with, where there is one.
    pub greedy: Option<f32>,
}

impl Group {
    /// Whether its members can be told apart: a comparison needs two, and two different returns.
    pub fn has_signal(&self) -> bool {
        match self.returns.as_slice() {
            [] => self.size > 0,
            [_] => self.sampled == 1,
            [first, rest @ ..] => rest.iter().any(|other| (other - first).abs() > 0.0),
        }
    }

    /// Mean of the returns.
    fn mean(&self) -> f64 {
        self.returns.iter().map(|&value| f64::from(value)).sum::<f64>() / self.returns.len().max(1) as f64
    }

    /// The advantages common to estimators that compare within the group: the return itself for a group of
    /// one by configuration, 0 without signal, else `compared`.
    fn credit(&self, compared: impl Fn(f64) -> f64) -> Vec<f32> {
        if !self.has_signal() {
            vec![0.0; self.size]
        } else if self.size == 1 {
            self.returns.clone()
        } else {
            self.returns
                .iter()
                .map(|&value| compared(f64::from(value)) as f32)
                .collect()
        }
    }
}

/// How returns become advantages.
pub trait Algorithm: Send + Sync {
    /// Whether every episode must carry a reward.
    fn needs_rewards(&self) -> bool {
        true
    }

    /// Whether each group has one more, greedy episode that its members are compared with.
    fn needs_greedy(&self) -> bool {
        false
    }

    /// Whether the members of a group can be told apart.
    fn has_signal(&self, group: &Group) -> bool {
        group.has_signal()
    }

    /// One advantage for each member of each group, in their order. All groups of the step are given at
    /// once, since some estimators normalise over the batch.
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>>;
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(super) fn group(returns: &[f32]) -> Group {
        Group {
            returns: returns.to_vec(),
            size: returns.len(),
            sampled: returns.len(),
            lengths: vec![1; returns.len()],
            greedy: None,
        }
    }

    #[test]
    fn a_group_shrunk_to_one_has_no_signal_and_one_by_configuration_has() {
        let shrunk = Group {
            sampled: 8,
            ..group(&[1.0])
        };
        assert!(!shrunk.has_signal());
        assert_eq!(
            Grpo { norm_by_std: true }.advantages(std::slice::from_ref(&shrunk)),
            [[0.0]]
        );
        assert_eq!(Rloo.advantages(&[shrunk]), [[0.0]]);
        assert_eq!(Grpo { norm_by_std: true }.advantages(&[group(&[0.75])]), [[0.75]]);
        assert_eq!(Rloo.advantages(&[group(&[0.75])]), [[0.75]]);
    }

    #[test]
    fn equal_returns_give_exactly_zero() {
        for algorithm in [&Grpo { norm_by_std: true } as &dyn Algorithm, &Rloo, &Opo] {
            assert_eq!(algorithm.advantages(&[group(&[0.1; 7])]), [[0.0; 7]]);
        }
    }

    proptest! {
        #[test]
        fn comparisons_sum_to_zero_and_do_not_depend_on_an_offset(
            returns in prop::collection::vec(-4_i8..4, 2..12), offset in -3_i8..3,
        ) {
            let returns: Vec<f32> = returns.into_iter().map(f32::from).collect();
            let moved: Vec<f32> = returns.iter().map(|value| value + f32::from(offset)).collect();
            for algorithm in [&Grpo { norm_by_std: true } as &dyn Algorithm, &Grpo { norm_by_std: false }, &Rloo] {
                let advantages = algorithm.advantages(&[group(&returns), group(&moved)]);
                prop_assert!(advantages[0].iter().sum::<f32>().abs() < 1e-4);
                for (a, b) in advantages[0].iter().zip(&advantages[1]) {
                    prop_assert!((a - b).abs() < 1e-5, "{a} {b}");
                }
            }
        }
    }
}
