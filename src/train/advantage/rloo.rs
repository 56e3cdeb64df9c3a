//! Leave-one-out advantage (RLOO).

use super::{Algorithm, Group};

/// A = n/(n − 1) · (S − mean): the return against the mean of the others.
#[derive(Debug, Clone, Copy)]
pub struct Rloo;

impl Algorithm for Rloo {
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        groups
            .iter()
            .map(|group| {
                let mean = group.mean();
                let size = group.size as f64;
                group.credit(|value| size / (size - 1.0) * (value - mean))
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    #[test]
    fn one_success_of_eight() {
        let advantages = Rloo.advantages(&[group(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])]);
        assert!((advantages[0][0] - 1.0).abs() < 1e-6);
        assert!((advantages[0][1] + 0.142_857_1).abs() < 1e-6);
    }
}
