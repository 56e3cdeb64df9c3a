//! The control that deals rewards anew: it must not learn. A measurement that improves under it measures something else.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Algorithm, Group};

/// The returns of the batch, dealt anew over all its episodes before the comparison.
pub(super) struct ShuffledReturns {
    /// What compares them.
    pub algorithm: Box<dyn Algorithm>,
    /// Seed of the dealing.
    pub seed: u64,
}

impl Algorithm for ShuffledReturns {
    fn needs_greedy(&self) -> bool {
        self.algorithm.needs_greedy()
    }

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
    use super::super::Grpo;
    use super::super::tests::group;
    use super::*;

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
