//! Controls: algorithms that must not learn. A measurement that improves under them measures something else.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Algorithm, Group};

/// The same advantages with the opposite sign.
pub(super) struct Negated(pub Box<dyn Algorithm>);

impl Algorithm for Negated {
    fn needs_rewards(&self) -> bool {
        self.0.needs_rewards()
    }

    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        let mut advantages = self.0.advantages(groups);
        advantages.iter_mut().flatten().for_each(|value| *value = -*value);
        advantages
    }
}

/// The returns of the batch, dealt anew over all its episodes before the comparison.
pub(super) struct ShuffledReturns {
    /// What compares them.
    pub algorithm: Box<dyn Algorithm>,
    /// Seed of the dealing.
    pub seed: u64,
}

impl Algorithm for ShuffledReturns {
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        let mut pool: Vec<f32> = groups.iter().flat_map(|group| group.returns.iter().copied()).collect();
        // The pool itself enters the seed, so that two steps are not dealt alike.
        let salt = pool.iter().enumerate().fold(0_u64, |salt, (place, value)| {
            salt.rotate_left(5) ^ u64::from(value.to_bits()) ^ place as u64
        });
        pool.shuffle(&mut ChaCha8Rng::seed_from_u64(self.seed ^ salt));
        let mut dealt = pool.into_iter();
        let shuffled: Vec<Group> = groups
            .iter()
            .map(|group| Group {
                returns: dealt.by_ref().take(group.returns.len()).collect(),
                ..group.clone()
            })
            .collect();
        self.algorithm.advantages(&shuffled)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::super::{Grpo, Rloo};
    use super::*;

    #[test]
    fn negated_is_the_opposite() {
        let groups = [group(&[1.0, 0.0, 0.0]), group(&[1.0, 1.0])];
        let plain = Rloo.advantages(&groups);
        let negated = Negated(Box::new(Rloo)).advantages(&groups);
        for (a, b) in plain.iter().flatten().zip(negated.iter().flatten()) {
            assert!((a + b).abs() < f32::EPSILON);
        }
    }

    #[test]
    fn shuffled_keeps_the_returns_and_moves_them() {
        let groups: Vec<Group> = (0..16_u8).map(|place| group(&[f32::from(place); 4])).collect();
        let shuffled = ShuffledReturns {
            algorithm: Box::new(Grpo { norm_by_std: false }),
            seed: 7,
        };
        let advantages = shuffled.advantages(&groups);
        assert_eq!(advantages, shuffled.advantages(&groups));
        // Before the dealing no group has signal; after it nearly every one must.
        assert!(
            advantages
                .iter()
                .filter(|group| group.iter().any(|value| *value != 0.0))
                .count()
                > 12
        );
    }
}
