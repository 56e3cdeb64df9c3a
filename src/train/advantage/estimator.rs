//! An estimator as a whole: the comparison of episodes, the spread over tokens, whitening, and what spoils it.

use super::control::ShuffledReturns;
use super::credit::{Credit, Credited, Track, whiten};
use super::{Algorithm, Group, Grpo, Opo, Plain, Remax, Rloo, Supervised};
use crate::config::{AdvantageName, ControlName};
use crate::train::Recipe;

/// The advantage of a recipe.
pub struct Estimator {
    algorithm: Box<dyn Algorithm>,
    credit: Credit,
    whitened: bool,
    negated: bool,
}

impl Estimator {
    /// The estimator of a recipe; `seed` deals shuffled rewards.
    pub fn of_recipe(recipe: &Recipe, seed: u64) -> Self {
        let gamma = recipe.gamma;
        let episode = |algorithm: Box<dyn Algorithm>| (algorithm, Credit::Episode, false);
        let (algorithm, credit, whitened) = match recipe.advantage {
            Some(AdvantageName::Grpo) => episode(Box::new(Grpo {
                norm_by_std: recipe.norm_by_std,
            })),
            Some(AdvantageName::Rloo) => episode(Box::new(Rloo)),
            Some(AdvantageName::Opo) => episode(Box::new(Opo)),
            Some(AdvantageName::Remax) => (Box::new(Remax) as _, Credit::Token { gamma: 1.0 }, false),
            Some(AdvantageName::ReinforcePlusPlus) => (Box::new(Plain) as _, Credit::Token { gamma }, true),
            Some(AdvantageName::ReinforcePlusPlusBaseline) => {
                (Box::new(Grpo { norm_by_std: false }) as _, Credit::Episode, true)
            }
            Some(AdvantageName::Gae) => {
                let lambda = recipe.critic.map_or(1.0, |critic| critic.lambda);
                (Box::new(Plain) as _, Credit::Gae { gamma, lambda }, true)
            }
            None => episode(Box::new(Supervised)),
        };
        let algorithm = match recipe.control {
            Some(ControlName::ShuffledRewards) => Box::new(ShuffledReturns { algorithm, seed }),
            Some(ControlName::NegatedAdvantage) | None => algorithm,
        };
        Self {
            algorithm,
            credit,
            whitened,
            negated: recipe.control == Some(ControlName::NegatedAdvantage),
        }
    }

    /// How episodes are compared.
    pub fn algorithm(&self) -> &dyn Algorithm {
        self.algorithm.as_ref()
    }

    /// What the trained tokens of each member of each group get. `tracks` are those of the members, in their order.
    pub fn estimate(&self, groups: &[Group], tracks: &[Vec<Track>]) -> Vec<Vec<Credited>> {
        let numbers = if self.credit == Credit::Episode {
            let penalised: Vec<Group> = groups
                .iter()
                .zip(tracks)
                .map(|(group, tracks)| less(group, tracks))
                .collect();
            self.algorithm.advantages(&penalised)
        } else {
            self.algorithm.advantages(groups)
        };
        let mut credited: Vec<Vec<Credited>> = numbers
            .iter()
            .zip(tracks)
            .map(|(numbers, tracks)| {
                let spread = |(number, track): (&f32, &Track)| self.credit.spread(*number, track);
                numbers.iter().zip(tracks).map(spread).collect()
            })
            .collect();
        if self.whitened {
            whiten(
                credited
                    .iter_mut()
                    .flatten()
                    .flat_map(|credited| &mut credited.advantages),
            );
        }
        if self.negated {
            let all = credited
                .iter_mut()
                .flatten()
                .flat_map(|credited| &mut credited.advantages);
            all.for_each(|advantage| *advantage = -*advantage);
        }
        credited
    }
}

/// The group with the penalties of each member off its return.
fn less(group: &Group, tracks: &[Track]) -> Group {
    let mut group = group.clone();
    for (value, track) in group.returns.iter_mut().zip(tracks) {
        let penalty: f64 = track.penalties.iter().map(|penalty| f64::from(*penalty)).sum();
        *value = (f64::from(*value) - penalty) as f32;
    }
    group
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tests::group;
    use super::*;
    use crate::config::{AlgorithmName, TrainSection};

    fn estimator(algorithm: AlgorithmName, change: impl FnOnce(&mut TrainSection)) -> Estimator {
        let mut section = TrainSection {
            algorithm,
            ..TrainSection::default()
        };
        change(&mut section);
        Estimator::of_recipe(&Recipe::from_section(&section, 64).unwrap(), 7)
    }

    fn tracks(groups: &[Group]) -> Vec<Vec<Track>> {
        let of = |group: &Group| {
            let track = |tokens: &usize| Track {
                tokens: *tokens,
                ..Track::default()
            };
            group.lengths.iter().map(track).collect()
        };
        groups.iter().map(of).collect()
    }

    fn all(credited: &[Vec<Credited>]) -> Vec<f32> {
        credited.iter().flatten().flat_map(|c| c.advantages.clone()).collect()
    }

    #[test]
    fn an_episode_counts_as_often_as_it_has_tokens_in_the_whitening() {
        // Returns 1 on two tokens, 0 on one: mean 2/3, variance (2·1/9 + 4/9)/2 = 1/3.
        let groups = [Group {
            lengths: vec![2, 1],
            ..group(&[1.0, 0.0])
        }];
        let found = estimator(AlgorithmName::ReinforcePlusPlus, |_| ()).estimate(&groups, &tracks(&groups));
        for (found, expected) in all(&found).iter().zip([0.577_35, 0.577_35, -1.154_70]) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
        // Against the mean of 1/2 first; whitening takes out the shift.
        let found = estimator(AlgorithmName::ReinforcePlusPlusBaseline, |_| ()).estimate(&groups, &tracks(&groups));
        for (found, expected) in all(&found).iter().zip([0.577_35, 0.577_35, -1.154_70]) {
            assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        }
    }

    #[test]
    fn penalties_are_taken_off_the_return_or_off_the_tokens() {
        let groups = [group(&[1.0, 1.0])];
        let penalised = vec![vec![
            Track {
                tokens: 2,
                penalties: vec![0.25, 0.25],
                values: Vec::new(),
            },
            Track {
                tokens: 1,
                penalties: vec![0.0],
                values: Vec::new(),
            },
        ]];
        let found = estimator(AlgorithmName::DrGrpo, |_| ()).estimate(&groups, &penalised);
        assert_eq!(all(&found), [-0.25, -0.25, 0.25]);
        let remax = [Group {
            greedy: Some(0.5),
            ..group(&[1.0, 1.0])
        }];
        let found = estimator(AlgorithmName::Remax, |_| ()).estimate(&remax, &penalised);
        assert_eq!(all(&found), [0.0, 0.25, 0.5]);
    }

    #[test]
    fn negated_is_the_opposite() {
        let groups = [group(&[1.0, 0.0, 0.0]), group(&[1.0, 1.0])];
        for algorithm in [AlgorithmName::Rloo, AlgorithmName::ReinforcePlusPlus] {
            let plain = estimator(algorithm, |_| ()).estimate(&groups, &tracks(&groups));
            let control = |section: &mut TrainSection| section.control = Some(ControlName::NegatedAdvantage);
            let negated = estimator(algorithm, control).estimate(&groups, &tracks(&groups));
            for (a, b) in all(&plain).iter().zip(all(&negated)) {
                assert!((a + b).abs() < f32::EPSILON);
            }
        }
    }

    proptest! {
        #[test]
        fn what_all_rewards_gain_alike_changes_nothing(
            returns in prop::collection::vec(prop::collection::vec(-4_i8..4, 3), 2..4), offset in -3_i8..3,
            lengths in prop::collection::vec(1..9_usize, 3),
        ) {
            let of = |offset: f32| -> Vec<Group> {
                let group = |returns: &Vec<i8>| Group {
                    lengths: lengths.clone(),
                    greedy: Some(1.0 + offset),
                    ..group(&returns.iter().map(|value| f32::from(*value) + offset).collect::<Vec<_>>())
                };
                returns.iter().map(group).collect()
            };
            let (plain, moved) = (of(0.0), of(f32::from(offset)));
            for algorithm in [
                AlgorithmName::Grpo, AlgorithmName::DrGrpo, AlgorithmName::Rloo, AlgorithmName::Opo,
                AlgorithmName::Remax, AlgorithmName::ReinforcePlusPlus, AlgorithmName::ReinforcePlusPlusBaseline,
            ] {
                let estimator = estimator(algorithm, |_| ());
                let plain = all(&estimator.estimate(&plain, &tracks(&plain)));
                let moved = all(&estimator.estimate(&moved, &tracks(&moved)));
                for (a, b) in plain.iter().zip(&moved) {
                    prop_assert!((a - b).abs() < 1e-4, "{algorithm:?}: {a} {b}");
                }
            }
        }
    }
}
