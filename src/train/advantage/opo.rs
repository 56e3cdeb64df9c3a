//! Advantage with the optimal reward baseline (OPO, Hao et al. 2025).

use super::{Algorithm, Group};

/// A = S − Σ len·S / Σ len over the group, len being an episode's trained tokens.
#[derive(Debug, Clone, Copy)]
pub struct Opo;

impl Algorithm for Opo {
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        groups
            .iter()
            .map(|group| {
                let tokens: usize = group.lengths.iter().sum();
                let weighted = |(value, length): (&f32, &usize)| f64::from(*value) * *length as f64;
                let sum: f64 = group.returns.iter().zip(&group.lengths).map(weighted).sum();
                // Without a token there is nothing to train either.
                let baseline = if tokens == 0 { 0.0 } else { sum / tokens as f64 };
                group.credit(|value| value - baseline)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    #[test]
    fn longer_episodes_count_more() {
        let group = Group {
            lengths: vec![30, 10, 60],
            ..group(&[1.0, 0.0, 0.5])
        };
        // (30·1 + 60·0.5) / 100 = 0.6.
        let advantages = Opo.advantages(&[group]).remove(0);
        for (found, expected) in advantages.iter().zip([0.4, -0.6, -0.1]) {
            assert!((found - expected).abs() < 1e-6, "{advantages:?}");
        }
    }
}
