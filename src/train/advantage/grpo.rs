//! Group-relative advantage (GRPO; without the division it is Dr. GRPO's).

use super::{Algorithm, Group};

/// Keeps the division finite where a group's returns hardly differ.
const EPSILON: f64 = 1e-6;

/// A = (S − mean) / (std + 1e-6) with the sample standard deviation (n − 1); A = S − mean without `norm_by_std`.
#[derive(Debug, Clone, Copy)]
pub struct Grpo {
    /// Whether to divide.
    pub norm_by_std: bool,
}

impl Algorithm for Grpo {
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        groups
            .iter()
            .map(|group| {
                let mean = group.mean();
                let scale = if self.norm_by_std {
                    sample_std(&group.returns, mean) + EPSILON
                } else {
                    1.0
                };
                group.credit(|value| (value - mean) / scale)
            })
            .collect()
    }
}

/// Standard deviation with n − 1; 0 for fewer than two values.
fn sample_std(values: &[f32], mean: f64) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let squares: f64 = values.iter().map(|&value| (f64::from(value) - mean).powi(2)).sum();
    (squares / (values.len() - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    const NORMALISED: Grpo = Grpo { norm_by_std: true };

    fn close(found: &[f32], expected: &[f32]) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-6, "found {found:?}, expected {expected:?}");
        }
    }

    #[test]
    fn one_success_of_two() {
        close(
            &NORMALISED.advantages(&[group(&[1.0, 0.0])])[0],
            &[0.707_105_8, -0.707_105_8],
        );
    }

    #[test]
    fn one_success_of_eight() {
        let returns = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        let advantages = NORMALISED.advantages(&[group(&returns)]);
        close(&advantages[0][..2], &[2.474_866_7, -0.353_552_4]);
    }

    #[test]
    fn without_the_division() {
        close(
            &Grpo { norm_by_std: false }.advantages(&[group(&[1.0, 0.0, 0.0, 0.0])])[0],
            &[0.75, -0.25, -0.25, -0.25],
        );
    }

    #[test]
    fn groups_do_not_touch_each_other() {
        let advantages = NORMALISED.advantages(&[group(&[1.0, 0.0]), group(&[5.0, 5.0])]);
        close(&advantages[0], &[0.707_105_8, -0.707_105_8]);
        close(&advantages[1], &[0.0, 0.0]);
    }
}
