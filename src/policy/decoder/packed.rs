//! Weights as the kernels want them, and the rotary tables. Made once for each version of the weights.

use std::sync::Arc;

use super::experts::Experts;
use crate::config::ModelConfig;
use crate::kernels::attention::Heads;
use crate::kernels::gemm::{Left, Store, multiply, multiply_parallel};
use crate::kernels::pack::Packed;
use crate::kernels::vector::add_to_rows;
use crate::layout::{LayerSlots, Projection, Slots, slots};
use crate::weights::Weights;

/// `y = x · Wᵀ + b`
pub(crate) struct Linear {
    pub(crate) weight: Packed,
    bias: Option<Arc<[f32]>>,
}

impl Linear {
    /// `x` is `[rows, in]`, `out` becomes `[rows, out]`; `parallel` allows the thread pool.
    pub(crate) fn forward(&self, x: &[f32], rows: usize, parallel: bool, out: &mut Vec<f32>) {
        let (k, n) = (self.weight.k(), self.weight.n());
        out.resize(rows * n, 0.0);
        let product = if parallel { multiply_parallel } else { multiply };
        product(
            (rows, n, k),
            Left::rows(x, k),
            self.weight.right(),
            out,
            n,
            Store::Replace,
        );
        if let Some(bias) = &self.bias {
            add_to_rows(out, bias);
        }
    }
}

/// One decoder layer.
pub(crate) struct Layer {
    pub(crate) attention_norm: Arc<[f32]>,
    pub(crate) query: Linear,
    pub(crate) key: Linear,
    pub(crate) value: Linear,
    pub(crate) output: Linear,
    pub(crate) query_norm: Option<Arc<[f32]>>,
    pub(crate) key_norm: Option<Arc<[f32]>>,
    pub(crate) mlp_norm: Arc<[f32]>,
    pub(crate) mlp: Mlp,
}

/// What follows attention in a layer.
pub(crate) enum Mlp {
    Dense { gate: Linear, up: Linear, down: Linear },
    Experts(Experts),
}

/// A whole decoder, packed for the forward pass.
pub(crate) struct Decoder {
    pub(crate) config: ModelConfig,
    pub(crate) slots: Slots,
    /// `[vocab, hidden]`, for looking up.
    pub(crate) embedding: Arc<[f32]>,
    pub(crate) layers: Vec<Layer>,
    pub(crate) final_norm: Arc<[f32]>,
    pub(crate) head: Linear,
    /// The head's weight as it is, for a critic: `[1, hidden]`.
    pub(crate) value_weight: Arc<[f32]>,
    pub(crate) value_bias: Option<Arc<[f32]>>,
}

impl Decoder {
    pub(crate) fn new(weights: &Weights) -> Self {
        let config = weights.config().clone();
        let slots = slots(&config);
        let layers = slots
            .layers
            .iter()
            .enumerate()
            .map(|(i, slots)| layer(weights, slots, i))
            .collect();
        let head = linear(
            weights,
            Projection {
                weight: slots.head,
                bias: None,
            },
        );
        Self {
            embedding: Arc::clone(weights.at(slots.embedding)),
            layers,
            final_norm: Arc::clone(weights.at(slots.final_norm)),
            head,
            value_weight: Arc::clone(weights.at(slots.head)),
            value_bias: slots.value_bias.map(|slot| Arc::clone(weights.at(slot))),
            slots,
            config,
        }
    }

    pub(crate) fn heads(&self) -> Heads {
        heads(&self.config)
    }
}

pub(crate) fn heads(config: &ModelConfig) -> Heads {
    Heads {
        query: config.num_attention_heads,
        key: config.num_key_value_heads,
        dim: config.head_dim,
    }
}

fn layer(weights: &Weights, slots: &LayerSlots, index: usize) -> Layer {
    let gain = |slot: usize| Arc::clone(weights.at(slot));
    let matrix = |slot: usize| {
        linear(
            weights,
            Projection {
                weight: slot,
                bias: None,
            },
        )
    };
    Layer {
        attention_norm: gain(slots.attention_norm),
        query: linear(weights, slots.query),
        key: linear(weights, slots.key),
        value: linear(weights, slots.value),
        output: linear(weights, slots.output),
        query_norm: slots.query_norm.map(gain),
        key_norm: slots.key_norm.map(gain),
        mlp_norm: gain(slots.mlp_norm),
        mlp: match (slots.router, weights.config().experts_of(index)) {
            (Some(router), Some(moe)) => Mlp::Experts(Experts {
                moe: moe.clone(),
                router: matrix(router),
                gate: each_expert(weights, slots.gate),
                up: each_expert(weights, slots.up),
                down: each_expert(weights, slots.down),
            }),
            _ => Mlp::Dense {
                gate: matrix(slots.gate),
                up: matrix(slots.up),
                down: matrix(slots.down),
            },
        },
    }
}

/// The maps of a layer's experts, which lie one behind the other.
fn each_expert(weights: &Weights, slot: usize) -> Vec<Linear> {
    let shape = &weights.parameters()[slot].shape;
    let (out, from) = (shape[1], shape[2]);
    let one = |weight: &[f32]| Linear {
        weight: Packed::transposed(weight, out, from),
        bias: None,
    };
    weights.at(slot).chunks_exact(out * from).map(one).collect()
}

fn linear(weights: &Weights, slots: Projection) -> Linear {
    let shape = &weights.parameters()[slots.weight].shape;
    Linear {
        weight: Packed::transposed(weights.at(slots.weight), shape[0], shape[1]),
        bias: slots.bias.map(|slot| Arc::clone(weights.at(slot))),
    }
}

/// Cosines and sines of the rotary embedding, `[positions, head_dim / 2]` (Su et al. 2021, halves convention of
/// Hugging Face), computed in f64.
pub(crate) struct Rotary {
    half: usize,
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl Rotary {
    pub(crate) fn new(config: &ModelConfig, positions: impl Iterator<Item = usize>) -> Self {
        let half = config.head_dim / 2;
        let frequencies: Vec<f64> = (0..half)
            .map(|i| config.rope_theta.powf(-((2 * i) as f64) / config.head_dim as f64))
            .collect();
        let (mut cos, mut sin) = (Vec::new(), Vec::new());
        for position in positions {
            for frequency in &frequencies {
                let (s, c) = (position as f64 * frequency).sin_cos();
                cos.push(c as f32);
                sin.push(s as f32);
            }
        }
        Self { half, cos, sin }
    }

    /// Row `index` of the tables: the `index`-th position given to [`Rotary::new`].
    pub(crate) fn row(&self, index: usize) -> (&[f32], &[f32]) {
        let range = index * self.half..(index + 1) * self.half;
        (&self.cos[range.clone()], &self.sin[range])
    }
}
