//! The clipped value loss and its derivative, on plain numbers.

use crate::row::ValueRow;

/// Sums over the masked positions; micro-batches add up by [`ValueStats::merge`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ValueStats {
    /// Σ coefficient · loss.
    pub loss: f64,
    /// Number of masked positions.
    pub tokens: f64,
    /// Positions where the clip decides the loss.
    pub clipped: f64,
    /// Σ value.
    pub value: f64,
    /// A value or the loss was not finite.
    pub non_finite: bool,
}

impl ValueStats {
    /// Adds another micro-batch's sums.
    pub fn merge(&mut self, other: &Self) {
        self.loss += other.loss;
        self.tokens += other.tokens;
        self.clipped += other.clipped;
        self.value += other.value;
        self.non_finite |= other.non_finite;
    }
}

/// `½·max((v − R)², (v_clip − R)²)` at the masked positions `at` of a row, `v_clip` being v held within `clip` of the old
/// value (Schulman et al. 2017, as PPO's implementations have it). Pushes the derivative of `Σ coefficient · loss` by each
/// value.
pub fn value_loss(row: &ValueRow<'_>, at: &[usize], values: &[f32], clip: f32, dvalues: &mut Vec<f32>) -> ValueStats {
    let mut stats = ValueStats {
        tokens: at.len() as f64,
        ..ValueStats::default()
    };
    for (&position, &value) in at.iter().zip(values) {
        let (value, old, clip) = (f64::from(value), f64::from(row.old_values[position]), f64::from(clip));
        let (target, coefficient) = (f64::from(row.returns[position]), f64::from(row.coefficients[position]));
        let held = value.clamp(old - clip, old + clip);
        let (plain, clipped) = ((value - target).powi(2), (held - target).powi(2));
        let is_clipped = clipped > plain;
        let loss = coefficient * 0.5 * plain.max(clipped);
        // Where the clip decides, the value is out of its bounds and does not move the loss.
        dvalues.push(if is_clipped {
            0.0
        } else {
            (coefficient * (value - target)) as f32
        });
        stats.loss += loss;
        stats.clipped += f64::from(u8::from(is_clipped));
        stats.value += value;
        stats.non_finite |= !(loss.is_finite() && value.is_finite());
    }
    stats
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clipped_and_plain_by_hand() {
        let row = ValueRow {
            tokens: &[0, 1, 2, 3],
            loss_start: 1,
            mask: &[1, 1, 1],
            old_values: &[0.0, 0.0, 0.0],
            returns: &[1.0, 1.0, -1.0],
            coefficients: &[1.0, 0.5, 1.0],
        };
        let mut slopes = Vec::new();
        // 0.2 within the clip: ½·0.8². 0.9 is held at 0.5: ½·½·0.5² by the clip, without slope. −0.9: ½·(0.1² , 0.5²).
        let stats = value_loss(&row, &[0, 1, 2], &[0.2, 0.9, -0.9], 0.5, &mut slopes);
        assert!((stats.loss - (0.32 + 0.0625 + 0.125)).abs() < 1e-6, "{stats:?}");
        assert_eq!((stats.clipped as u32, stats.tokens as u32), (2, 3));
        assert!(
            (slopes[0] + 0.8).abs() < 1e-6 && slopes[1..] == [0.0, 0.0],
            "{slopes:?}"
        );
        // Out of bounds on the wrong side: the plain loss is the larger one and pulls back.
        slopes.clear();
        let stats = value_loss(&row, &[0], &[-0.9], 0.5, &mut slopes);
        assert!((stats.loss - 0.5 * 1.9 * 1.9).abs() < 1e-5 && (slopes[0] + 1.9).abs() < 1e-6);
    }
}
