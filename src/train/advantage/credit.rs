//! From an episode's number to its tokens: spread evenly, discounted from the end, or by a value function; and
//! whitening over all trained tokens of the step (trainer.md §2).
//!
//! The trained tokens of an episode are one sequence, those of its segments one after the other. What lies between
//! them (observations, context) is no step of it: values and advantages carry over.

/// Keeps whitening finite where the advantages hardly differ; under the root.
const EPSILON: f64 = 1e-8;

/// How an episode's number reaches its tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Credit {
    /// Each token gets it whole; penalties are taken off the return before the comparison.
    Episode,
    /// A token gets what is earned from it on: `Σ γ^k·r`, r being the penalties and at the last token the number.
    Token {
        /// γ.
        gamma: f64,
    },
    /// Generalised advantage estimation (Schulman et al. 2016) over the same r.
    Gae {
        /// γ.
        gamma: f64,
        /// λ.
        lambda: f64,
    },
}

/// An episode's trained tokens.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Track {
    /// How many there are.
    pub tokens: usize,
    /// What is taken off each one's reward; empty: nothing.
    pub penalties: Vec<f32>,
    /// The value of the state that each was sampled in; empty without a value function.
    pub values: Vec<f32>,
}

/// What the tokens of an episode get.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Credited {
    /// Of each trained token.
    pub advantages: Vec<f32>,
    /// The same before a baseline by value function or whitening is applied.
    pub returns: Vec<f32>,
}

impl Credit {
    /// Spreads `number` over a track.
    pub(super) fn spread(self, number: f32, track: &Track) -> Credited {
        let (advantages, returns) = match self {
            Self::Episode => (vec![number; track.tokens], vec![number; track.tokens]),
            Self::Token { gamma } => {
                let earned = discounted(&rewards(number, track), gamma);
                (earned.clone(), earned)
            }
            Self::Gae { gamma, lambda } => gae(&rewards(number, track), &track.values, gamma, lambda),
        };
        Credited { advantages, returns }
    }
}

/// Reward of each token: the penalty off, and `number` at the last one.
fn rewards(number: f32, track: &Track) -> Vec<f64> {
    let mut rewards = vec![0.0; track.tokens];
    for (reward, penalty) in rewards.iter_mut().zip(&track.penalties) {
        *reward -= f64::from(*penalty);
    }
    if let Some(last) = rewards.last_mut() {
        *last += f64::from(number);
    }
    rewards
}

/// `Σ_k γ^k·r[t + k]` for each t.
fn discounted(rewards: &[f64], gamma: f64) -> Vec<f32> {
    let mut earned = 0.0;
    let mut returns: Vec<f32> = rewards
        .iter()
        .rev()
        .map(|reward| {
            earned = reward + gamma * earned;
            earned as f32
        })
        .collect();
    returns.reverse();
    returns
}

/// `δ = r + γ·V_next − V`, `A = δ + γλ·A_next`; returns are `A + V`. The value after the last token is 0.
fn gae(rewards: &[f64], values: &[f32], gamma: f64, lambda: f64) -> (Vec<f32>, Vec<f32>) {
    let (mut next_value, mut next) = (0.0, 0.0);
    let mut found: Vec<(f32, f32)> = rewards
        .iter()
        .zip(values)
        .rev()
        .map(|(reward, value)| {
            let value = f64::from(*value);
            next = reward + gamma * next_value - value + gamma * lambda * next;
            next_value = value;
            (next as f32, (next + value) as f32)
        })
        .collect();
    found.reverse();
    found.into_iter().unzip()
}

/// `(A − mean) / √(var + 1e-8)` over all values given, var with n − 1; 0 where they are all the same.
pub(super) fn whiten<'a>(values: impl Iterator<Item = &'a mut f32>) {
    let mut values: Vec<&mut f32> = values.collect();
    let count = values.len() as f64;
    let Some(first) = values.first().map(|value| **value) else {
        return;
    };
    if values.iter().all(|value| (**value - first).abs() <= 0.0) {
        for value in values {
            *value = 0.0;
        }
        return;
    }
    let mean = values.iter().map(|value| f64::from(**value)).sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (f64::from(**value) - mean).powi(2)).sum();
    let scale = (squares / (count - 1.0) + EPSILON).sqrt();
    for value in &mut values {
        **value = ((f64::from(**value) - mean) / scale) as f32;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-5, "found {found:?}, expected {expected:?}");
        }
    }

    fn track(penalties: &[f32], values: &[f32]) -> Track {
        Track {
            tokens: penalties.len().max(values.len()),
            penalties: penalties.to_vec(),
            values: values.to_vec(),
        }
    }

    #[test]
    fn returns_are_discounted_from_the_end() {
        // r = (−0.1, 0, 2 − 0.2): 1.8, 0.9·1.8 = 1.62, 0.9·1.62 − 0.1 = 1.358.
        let credited = Credit::Token { gamma: 0.9 }.spread(2.0, &track(&[0.1, 0.0, 0.2], &[]));
        near(&credited.returns, &[1.358, 1.62, 1.8]);
        assert_eq!(credited.advantages, credited.returns);
        let undiscounted = Credit::Token { gamma: 1.0 }.spread(2.0, &track(&[0.0; 4], &[]));
        near(&undiscounted.advantages, &[2.0; 4]);
    }

    #[test]
    fn generalised_advantages_by_hand() {
        // r = (0, 0, 1), V = (0.5, 0.4, 0.8), γ = 0.9, λ = 0.5.
        // δ3 = 1 − 0.8 = 0.2; δ2 = 0.9·0.8 − 0.4 = 0.32; δ1 = 0.9·0.4 − 0.5 = −0.14.
        // A3 = 0.2; A2 = 0.32 + 0.45·0.2 = 0.41; A1 = −0.14 + 0.45·0.41 = 0.0445.
        let credit = Credit::Gae {
            gamma: 0.9,
            lambda: 0.5,
        };
        let credited = credit.spread(1.0, &track(&[], &[0.5, 0.4, 0.8]));
        near(&credited.advantages, &[0.0445, 0.41, 0.2]);
        near(&credited.returns, &[0.5445, 0.81, 1.0]);
    }

    #[test]
    fn whitening_by_hand() {
        // Mean 2, variance (1 + 0 + 1)/2 = 1.
        let mut values = [1.0, 2.0, 3.0];
        whiten(values.iter_mut());
        near(&values, &[-1.0, 0.0, 1.0]);
        let mut equal = [0.1; 7];
        whiten(equal.iter_mut());
        assert_eq!(equal.to_vec(), [0.0; 7]);
        whiten([].iter_mut());
    }

    proptest! {
        #[test]
        fn with_gamma_and_lambda_one_the_advantage_is_the_return_less_the_value(
            number in -2.0_f32..2.0, values in prop::collection::vec(-1.0_f32..1.0, 1..20),
        ) {
            let credit = Credit::Gae { gamma: 1.0, lambda: 1.0 };
            let credited = credit.spread(number, &track(&[], &values));
            for (advantage, value) in credited.advantages.iter().zip(&values) {
                prop_assert!((advantage - (number - value)).abs() < 1e-4);
            }
            prop_assert!(credited.returns.iter().all(|found| (found - number).abs() < 1e-4));
        }

        #[test]
        fn whitened_values_have_mean_0_variance_1_and_do_not_know_shift_and_scale(
            values in prop::collection::vec(-4_i8..4, 2..30), shift in -3_i8..3, scale in 1_i8..4,
        ) {
            let mut plain: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
            let mut moved: Vec<f32> =
                values.iter().map(|value| f32::from(*value) * f32::from(scale) + f32::from(shift)).collect();
            let differ = values.iter().any(|value| *value != values[0]);
            whiten(plain.iter_mut());
            whiten(moved.iter_mut());
            let count = plain.len() as f32;
            prop_assert!(plain.iter().sum::<f32>().abs() < 1e-3);
            let variance = plain.iter().map(|value| value * value).sum::<f32>() / (count - 1.0);
            prop_assert!((variance - f32::from(u8::from(differ))).abs() < 1e-3);
            for (a, b) in plain.iter().zip(&moved) {
                prop_assert!((a - b).abs() < 1e-3, "{a} {b}");
            }
        }
    }
}
