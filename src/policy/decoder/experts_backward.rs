//! Routed experts, the way back: to the experts' weights, to the router through the weights of the chosen experts, and
//! to the input. The choice itself has no gradient, whoever made it.

use super::backward::{OuterScratch, back, outer};
use super::experts::{ExpertActivations, Experts};
use crate::kernels::gemm::Store;
use crate::kernels::pack::Packed;
use crate::kernels::vector::{dot, swiglu_backward};
use crate::layout::LayerSlots;
use crate::weights::Weights;

/// The experts of a layer, packed for the way back.
pub(crate) struct ExpertTransposes {
    router: Packed,
    gate: Vec<Packed>,
    up: Vec<Packed>,
    down: Vec<Packed>,
}

impl ExpertTransposes {
    pub(crate) fn new(weights: &Weights, slots: &LayerSlots, router: usize) -> Self {
        let each = |slot: usize| -> Vec<Packed> {
            let shape = &weights.parameters()[slot].shape;
            let (out, from) = (shape[1], shape[2]);
            let parts = weights.at(slot).chunks_exact(out * from);
            parts.map(|weight| Packed::plain(weight, out, from)).collect()
        };
        let shape = &weights.parameters()[router].shape;
        Self {
            router: Packed::plain(weights.at(router), shape[0], shape[1]),
            gate: each(slots.gate),
            up: each(slots.up),
            down: each(slots.down),
        }
    }
}

/// Buffers, reused from layer to layer.
#[derive(Default)]
pub(crate) struct ExpertScratch {
    dy: Vec<f32>,
    wide: Vec<f32>,
    narrow: Vec<f32>,
    dweights: Vec<f32>,
    dlogits: Vec<f32>,
}

impl Experts {
    /// Takes `dy`, the gradient of what the experts gave for the normed rows `x`, to that of `x` (`dx` becomes it),
    /// adding those of the weights where there is a `scratch` for them. Gate and up of `a` are overwritten.
    #[expect(clippy::too_many_arguments, reason = "each is a buffer with an owner of its own")]
    pub(crate) fn backward(
        &self,
        transposes: &ExpertTransposes,
        (slots, router): (&LayerSlots, usize),
        a: &mut ExpertActivations,
        x: &[f32],
        dy: &[f32],
        dx: &mut Vec<f32>,
        grads: &mut [Vec<f32>],
        s: &mut ExpertScratch,
        mut scratch: Option<&mut OuterScratch>,
    ) {
        let (inner, per_token) = (self.moe.intermediate_size, self.moe.per_token);
        let width = self.router.weight.k();
        let size = inner * width;
        dx.clear();
        dx.resize(x.len(), 0.0);
        s.dweights.clear();
        s.dweights.resize(a.chosen.len(), 0.0);
        for expert in 0..self.moe.experts {
            let range = a.ranges[expert].clone();
            if range.is_empty() {
                continue;
            }
            s.dy.clear();
            for place in range.clone() {
                let pair = a.pairs[place];
                let row = &dy[pair / per_token * width..][..width];
                s.dweights[pair] = dot(row, &a.outputs[place * width..][..width]);
                s.dy.extend(row.iter().map(|value| a.weights[pair] * value));
            }
            let (hidden, wide) = (
                range.start * width..range.end * width,
                range.start * inner..range.end * inner,
            );
            let own = expert * size..(expert + 1) * size;
            if let Some(scratch) = &mut scratch {
                let down = &mut grads[slots.down][own.clone()];
                outer(&s.dy, &a.gated[wide.clone()], width, inner, down, scratch);
            }
            back(&s.dy, &transposes.down[expert], Store::Replace, &mut s.wide);
            let (gate, up) = (&mut a.gate[wide.clone()], &mut a.up[wide]);
            swiglu_backward(&s.wide, gate, up);
            let inputs = &a.inputs[hidden];
            if let Some(scratch) = &mut scratch {
                outer(gate, inputs, inner, width, &mut grads[slots.gate][own.clone()], scratch);
                outer(up, inputs, inner, width, &mut grads[slots.up][own], scratch);
            }
            back(gate, &transposes.gate[expert], Store::Replace, &mut s.narrow);
            back(up, &transposes.up[expert], Store::Add, &mut s.narrow);
            for (place, found) in range.zip(s.narrow.chunks_exact(width)) {
                let sum = &mut dx[a.pairs[place] / per_token * width..][..width];
                sum.iter_mut().zip(found).for_each(|(sum, value)| *sum += value);
            }
        }
        self.dlogits(a, s);
        if let Some(scratch) = scratch {
            outer(&s.dlogits, x, self.moe.experts, width, &mut grads[router], scratch);
        }
        back(&s.dlogits, &transposes.router, Store::Add, dx);
    }

    /// Gradient of the router's logits from that of the chosen experts' weights w. Scaled to a sum of 1, w is a softmax
    /// over the chosen: `w·(dw − Σ w·dw)`; else it is a part of the whole softmax p: `p·(dw − Σ p·dw)`, dw being 0 for
    /// the rest.
    fn dlogits(&self, a: &ExpertActivations, s: &mut ExpertScratch) {
        let (experts, per_token) = (self.moe.experts, self.moe.per_token);
        s.dlogits.clear();
        s.dlogits.resize(a.probabilities.len(), 0.0);
        let rows = a
            .probabilities
            .chunks_exact(experts)
            .zip(s.dlogits.chunks_exact_mut(experts));
        for (row, (probabilities, dlogits)) in rows.enumerate() {
            let own = row * per_token..(row + 1) * per_token;
            let (chosen, weights, dweights) = (&a.chosen[own.clone()], &a.weights[own.clone()], &s.dweights[own]);
            let mean = dot(weights, dweights);
            if !self.moe.norm_topk_prob {
                dlogits.iter_mut().zip(probabilities).for_each(|(d, p)| *d = -p * mean);
            }
            for ((expert, weight), dweight) in chosen.iter().zip(weights).zip(dweights) {
                let scaled = if self.moe.norm_topk_prob {
                    dweight - mean
                } else {
                    *dweight
                };
                dlogits[usize::from(*expert)] += weight * scaled;
            }
        }
    }
}
