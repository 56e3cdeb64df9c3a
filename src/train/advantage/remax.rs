//! Advantage against a greedy episode (`ReMax`, Li et al. 2023).

use super::{Algorithm, Group};

/// A = S − S of one more episode of the task, sampled greedily. Without that one there is nothing to compare with: A = 0.
#[derive(Debug, Clone, Copy)]
pub struct Remax;

impl Algorithm for Remax {
    fn needs_greedy(&self) -> bool {
        true
    }

    fn has_signal(&self, group: &Group) -> bool {
        let differs = |baseline: f32| group.returns.iter().any(|value| (value - baseline).abs() > 0.0);
        group.greedy.is_some_and(differs)
    }

    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        let against = |group: &Group| match group.greedy {
            Some(baseline) => group.returns.iter().map(|value| value - baseline).collect(),
            None => vec![0.0; group.size],
        };
        groups.iter().map(against).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    #[test]
    fn the_greedy_reward_is_the_baseline() {
        let with = |greedy, returns: &[f32]| Group {
            greedy,
            ..group(returns)
        };
        let groups = [
            with(Some(1.0), &[1.0, 0.25]),
            with(None, &[1.0, 0.0]),
            with(Some(0.0), &[1.0]),
        ];
        assert_eq!(Remax.advantages(&groups), [vec![0.0, -0.75], vec![0.0, 0.0], vec![1.0]]);
        assert_eq!(groups.map(|group| Remax.has_signal(&group)), [true, false, true]);
        assert!(!Remax.has_signal(&with(Some(1.0), &[1.0, 1.0])));
    }
}
