//! Final norm and value head at chosen rows, and the way back.

use super::forward::norm;
use super::head::{HeadState, Pick};
use super::packed::Decoder;
use crate::kernels::vector::{dot, rms_norm_backward};

impl Decoder {
    /// The value at each pick's row, from the body's output `x`.
    pub(crate) fn value(&self, x: &[f32], picks: &[Pick], s: &mut HeadState) -> Vec<f32> {
        let d = self.config.hidden_size;
        self.norm_picks(x, picks, s);
        let bias = self.value_bias.as_ref().map_or(0.0, |bias| bias[0]);
        s.normed
            .chunks_exact(d)
            .map(|row| dot(row, &self.value_weight) + bias)
            .collect()
    }

    /// Gradient for `x` (overwritten, zero at rows without a pick) and for the weights of head and norm (added), of
    /// `Σ dvalues·value`. Picks are those of the last [`Decoder::value`].
    pub(crate) fn value_backward(
        &self,
        picks: &[Pick],
        dvalues: &[f32],
        dx: &mut [f32],
        grads: &mut [Vec<f32>],
        s: &mut HeadState,
    ) {
        let d = self.config.hidden_size;
        s.dhidden.clear();
        for (row, dvalue) in s.normed.chunks_exact(d).zip(dvalues) {
            let sum = &mut grads[self.slots.head];
            sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += dvalue * value);
            s.dhidden.extend(self.value_weight.iter().map(|weight| dvalue * weight));
        }
        if let Some(bias) = self.slots.value_bias {
            grads[bias][0] += dvalues.iter().sum::<f32>();
        }
        self.norm_picks_backward(picks, dx, grads, s);
    }

    /// Norms the rows of the picks.
    pub(super) fn norm_picks(&self, x: &[f32], picks: &[Pick], s: &mut HeadState) {
        let d = self.config.hidden_size;
        s.hidden.clear();
        for pick in picks {
            s.hidden.extend_from_slice(&x[pick.row * d..][..d]);
        }
        let eps = self.config.rms_norm_eps as f32;
        norm(&s.hidden, &self.final_norm, eps, &mut s.scales, &mut s.normed);
    }

    /// Takes `dhidden`, the gradient of the normed rows, through the norm to `dx`.
    pub(super) fn norm_picks_backward(
        &self,
        picks: &[Pick],
        dx: &mut [f32],
        grads: &mut [Vec<f32>],
        s: &mut HeadState,
    ) {
        let d = self.config.hidden_size;
        s.dnormed.clear();
        s.dnormed.resize(s.dhidden.len(), 0.0);
        let gain = &mut grads[self.slots.final_norm];
        rms_norm_backward(&s.dhidden, &s.hidden, &self.final_norm, &s.scales, &mut s.dnormed, gain);
        dx.fill(0.0);
        for (pick, gradient) in picks.iter().zip(s.dnormed.chunks_exact(d)) {
            for (to, from) in dx[pick.row * d..][..d].iter_mut().zip(gradient) {
                *to += from;
            }
        }
    }
}
