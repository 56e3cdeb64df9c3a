//! The return itself, for estimators that take their baseline elsewhere: from the batch, or from a value function.

use super::{Algorithm, Group};

/// A = S.
#[derive(Debug, Clone, Copy)]
pub struct Plain;

impl Algorithm for Plain {
    fn advantages(&self, groups: &[Group]) -> Vec<Vec<f32>> {
        groups.iter().map(|group| group.returns.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::group;
    use super::*;

    #[test]
    fn nothing_is_taken_off() {
        assert_eq!(
            Plain.advantages(&[group(&[1.0, 1.0]), group(&[0.5])]),
            [vec![1.0, 1.0], vec![0.5]]
        );
    }
}
