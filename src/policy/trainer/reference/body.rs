//! The decoder's body in burn's operations, generic over the backend (differentiable or not).

use std::cell::RefCell;

use burn::tensor::{Bool, Int, Tensor, TensorData, activation, backend::Backend};

use crate::config::ModelConfig;
use crate::decoder::packed::Rotary;
use crate::layout::{LayerSlots, Projection, Slots};

/// Weights by slot, flat, with what is needed to read them.
pub(super) struct Body<'a, B: Backend> {
    pub(super) config: &'a ModelConfig,
    pub(super) slots: &'a Slots,
    pub(super) weights: &'a [Tensor<B, 1>],
    /// Prescribed experts, `[rows · width, layers, per_token]`; empty: none.
    pub(super) prescribed: &'a [u16],
    /// The experts that the routers of all layers chose, in the same order, after a pass; empty of a dense model.
    pub(super) chosen: RefCell<Vec<u16>>,
}

/// Rotary tables `[width, head_dim / 2]` and the causal mask `[width, width]`, true where hidden.
struct Tables<B: Backend> {
    cos: Tensor<B, 4>,
    sin: Tensor<B, 4>,
    hidden: Tensor<B, 4, Bool>,
}

impl<B: Backend> Body<'_, B> {
    /// Hidden states after the final norm, `[rows · width, hidden]`, of token ids `[rows, width]`.
    pub(super) fn hidden(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 2> {
        let [rows, width] = ids.dims();
        let d = self.config.hidden_size;
        let tables = self.tables(width, &ids.device());
        let embedding = self.matrix(self.slots.embedding, self.config.vocab_size, d);
        let mut x = embedding
            .select(0, ids.reshape([rows * width]))
            .reshape([rows, width, d]);
        for (index, slots) in self.slots.layers.iter().enumerate() {
            let normed = self.norm(x.clone(), slots.attention_norm);
            x = x + self.attention(slots, &normed, &tables);
            let normed = self.norm(x.clone(), slots.mlp_norm);
            x = x + match self.config.experts_of(index) {
                Some(moe) => self.experts(index, moe, normed),
                None => self.mlp(slots, normed),
            };
        }
        self.norm(x, self.slots.final_norm).reshape([rows * width, d])
    }

    /// The weight at `slot` as `[out, in]`.
    pub(super) fn matrix(&self, slot: usize, out: usize, from: usize) -> Tensor<B, 2> {
        self.weights[slot].clone().reshape([out, from])
    }

    fn tables(&self, width: usize, device: &B::Device) -> Tables<B> {
        let half = self.config.head_dim / 2;
        let rotary = Rotary::new(self.config, 0..width);
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in 0..width {
            let (c, s) = rotary.row(position);
            cos.extend_from_slice(c);
            sin.extend_from_slice(s);
        }
        let table = |values| Tensor::from_data(TensorData::new(values, [1, 1, width, half]), device);
        let hidden: Vec<bool> = (0..width * width).map(|i| i % width > i / width).collect();
        Tables {
            cos: table(cos),
            sin: table(sin),
            hidden: Tensor::from_data(TensorData::new(hidden, [1, 1, width, width]), device),
        }
    }

    /// RMS norm over the last dimension.
    fn norm<const D: usize>(&self, x: Tensor<B, D>, slot: usize) -> Tensor<B, D> {
        let mean = x.clone().powf_scalar(2.0).mean_dim(D - 1);
        let scale = (mean + self.config.rms_norm_eps).sqrt().recip();
        x * scale * self.weights[slot].clone().unsqueeze()
    }

    pub(super) fn linear(&self, x: Tensor<B, 3>, slots: Projection, out: usize) -> Tensor<B, 3> {
        let [rows, width, from] = x.dims();
        let weight = self.matrix(slots.weight, out, from).transpose();
        let y = x
            .reshape([rows * width, from])
            .matmul(weight)
            .reshape([rows, width, out]);
        match slots.bias {
            Some(bias) => y + self.weights[bias].clone().unsqueeze(),
            None => y,
        }
    }

    fn attention(&self, slots: &LayerSlots, x: &Tensor<B, 3>, tables: &Tables<B>) -> Tensor<B, 3> {
        let c = self.config;
        let [rows, width, _] = x.dims();
        let (heads, key_heads, dim) = (c.num_attention_heads, c.num_key_value_heads, c.head_dim);
        let project = |slots: Projection, heads: usize| {
            self.linear(x.clone(), slots, heads * dim)
                .reshape([rows, width, heads, dim])
        };
        let normed = |x: Tensor<B, 4>, slot: Option<usize>| match slot {
            Some(slot) => self.norm(x, slot),
            None => x,
        };
        let query = normed(project(slots.query, heads), slots.query_norm).swap_dims(1, 2);
        let key = normed(project(slots.key, key_heads), slots.key_norm).swap_dims(1, 2);
        let value = project(slots.value, key_heads).swap_dims(1, 2);
        // Query heads of a group are folded into the rows of their key head, so that keys need no copies.
        let folded = [rows, key_heads, heads / key_heads * width, dim];
        let query = rotate(query, tables).reshape(folded);
        let scores = query.matmul(rotate(key, tables).swap_dims(2, 3)) / (dim as f64).sqrt();
        let square = [rows, heads, width, width];
        let scores = scores
            .reshape(square)
            .mask_fill(tables.hidden.clone().expand(square), -1e30);
        let weights = activation::softmax(scores, 3).reshape([rows, key_heads, heads / key_heads * width, width]);
        let out = weights.matmul(value).reshape([rows, heads, width, dim]).swap_dims(1, 2);
        self.linear(out.reshape([rows, width, heads * dim]), slots.output, c.hidden_size)
    }

    fn mlp(&self, slots: &LayerSlots, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let plain = |slot| Projection {
            weight: slot,
            bias: None,
        };
        let inner = self.config.intermediate_size;
        let gate = activation::silu(self.linear(x.clone(), plain(slots.gate), inner));
        let up = self.linear(x, plain(slots.up), inner);
        self.linear(gate * up, plain(slots.down), self.config.hidden_size)
    }
}

fn rotate<B: Backend>(x: Tensor<B, 4>, tables: &Tables<B>) -> Tensor<B, 4> {
    let half = x.dims()[3] / 2;
    let (a, b) = (x.clone().narrow(3, 0, half), x.narrow(3, half, half));
    let (cos, sin) = (tables.cos.clone(), tables.sin.clone());
    let first = a.clone() * cos.clone() - b.clone() * sin.clone();
    Tensor::cat(vec![first, b * cos + a * sin], 3)
}
