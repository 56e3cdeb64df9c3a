//! Demonstrations: every episode counts alike, whatever its outcome.

use super::{Algorithm, Group};

/// A = 1, rewards unread.
#[derive(Debug, Clone, Copy)]
pub struct Supervised;

impl Algorithm for Supervised {
    fn needs_rewards(&self) -> bool {
        false
    }

    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        groups.iter().map(|group| vec![1.0; group.size]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_no_reward() {
        let group = Group {
            returns: Vec::new(),
            size: 3,
            sampled: 3,
            lengths: vec![1; 3],
            greedy: None,
        };
        assert!(group.has_signal() && !Supervised.needs_rewards());
        assert_eq!(Supervised.advantages(&[group]), [[1.0; 3]]);
    }
}
