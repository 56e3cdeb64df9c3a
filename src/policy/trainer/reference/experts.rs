//! Routed experts in burn's operations: every expert computes every token, and those that are not chosen count 0.
//!
//! Slow and simple: what the fused experts are checked against.

use burn::tensor::{Tensor, TensorData, activation, backend::Backend};

use super::body::Body;
use super::floats;
use crate::NO_EXPERT;
use crate::config::Moe;
use crate::decoder::experts::most_probable;
use crate::layout::Projection;

impl<B: Backend> Body<'_, B> {
    /// What the experts of layer `index` give for the normed `x`, `[rows, width, hidden]`.
    pub(super) fn experts(&self, index: usize, moe: &Moe, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let [rows, width, hidden] = x.dims();
        let slots = &self.slots.layers[index];
        let positions = rows * width;
        let router = Projection {
            weight: slots.router.unwrap_or(slots.gate),
            bias: None,
        };
        let logits = self
            .linear(x.clone(), router, moe.experts)
            .reshape([positions, moe.experts]);
        let probabilities = activation::softmax(logits, 1);
        let chosen = self.choose(index, moe, &floats(probabilities.clone()));
        let mut mask = vec![0.0_f32; positions * moe.experts];
        for (position, chosen) in chosen.chunks_exact(moe.per_token).enumerate() {
            for expert in chosen {
                mask[position * moe.experts + usize::from(*expert)] = 1.0;
            }
        }
        let mask = Tensor::from_data(TensorData::new(mask, [positions, moe.experts]), &x.device());
        let mut weights = probabilities * mask;
        if moe.norm_topk_prob {
            weights = weights.clone() / weights.sum_dim(1);
        }
        let flat = x.reshape([positions, hidden]);
        let inner = moe.intermediate_size;
        let mut sum = Tensor::zeros([positions, hidden], &flat.device());
        for expert in 0..moe.experts {
            let map = |slot: usize, out: usize, from: usize| {
                let size = out * from;
                let own = self.weights[slot].clone().narrow(0, expert * size, size);
                own.reshape([out, from]).transpose()
            };
            let gate = activation::silu(flat.clone().matmul(map(slots.gate, inner, hidden)));
            let up = flat.clone().matmul(map(slots.up, inner, hidden));
            let out = (gate * up).matmul(map(slots.down, hidden, inner));
            sum = sum + out * weights.clone().narrow(1, expert, 1);
        }
        sum.reshape([rows, width, hidden])
    }

    /// The experts of each position, `[positions, per_token]`; those that the router would choose are noted.
    fn choose(&self, index: usize, moe: &Moe, probabilities: &[f32]) -> Vec<u16> {
        let (layers, per_token) = (self.slots.layers.len(), moe.per_token);
        let positions = probabilities.len() / moe.experts;
        let mut chosen = Vec::with_capacity(positions * per_token);
        let mut noted = self.chosen.borrow_mut();
        noted.resize(positions * layers * per_token, 0);
        for (position, probabilities) in probabilities.chunks_exact(moe.experts).enumerate() {
            let at = (position * layers + index) * per_token;
            let mut own = Vec::new();
            most_probable(probabilities, per_token, &mut own);
            let prescribed = self.prescribed.get(at..at + per_token);
            chosen.extend_from_slice(
                prescribed
                    .filter(|experts| !experts.contains(&NO_EXPERT))
                    .unwrap_or(&own),
            );
            noted[at..at + per_token].copy_from_slice(&own);
        }
        chosen
    }
}
