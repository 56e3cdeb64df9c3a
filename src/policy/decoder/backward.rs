//! The backward pass of one layer, written out by hand over the values that the forward pass kept.
//!
//! The derivation is the usual one; finite differences and burn's own autodiff check it in the tests.

use super::experts_backward::{ExpertScratch, ExpertTransposes};
use super::forward::{Activations, Rows};
use super::learning::Learning;
use super::packed::{Decoder, Mlp, heads};
use crate::kernels::attention_backward::{AttentionScratch, Gradients, Kept, attend_backward};
use crate::kernels::gemm::{Left, Store, multiply};
use crate::kernels::pack::{Packed, PackedLeft};
use crate::kernels::vector::{add_rows_to, rms_norm_backward, rotate_back, swiglu_backward};
use crate::layout::{LayerSlots, Projection};
use crate::lora::Lora;
use crate::weights::Weights;

/// Tokens of an outer product that are packed at a time.
const OUTER_BLOCK: usize = 256;

/// A layer's weights packed for `dx = dy · W`.
struct LayerTransposes {
    query: Packed,
    key: Packed,
    value: Packed,
    output: Packed,
    mlp: MlpTransposes,
}

enum MlpTransposes {
    Dense { gate: Packed, up: Packed, down: Packed },
    Experts(ExpertTransposes, usize),
}

/// All weights packed for the way back, and which of them learn.
pub(crate) struct Transposes {
    layers: Vec<LayerTransposes>,
    pub(crate) head: Packed,
    pub(crate) learning: Learning,
}

impl Transposes {
    pub(crate) fn new(weights: &Weights, lora: Option<&Lora>) -> Self {
        let slots = crate::layout::slots(weights.config());
        let plain = |slot: usize| {
            let shape = &weights.parameters()[slot].shape;
            Packed::plain(weights.at(slot), shape[0], shape[1])
        };
        let layers = slots.layers.iter().map(|l| LayerTransposes {
            query: plain(l.query.weight),
            key: plain(l.key.weight),
            value: plain(l.value.weight),
            output: plain(l.output.weight),
            mlp: match l.router {
                Some(router) => MlpTransposes::Experts(ExpertTransposes::new(weights, l, router), router),
                None => MlpTransposes::Dense {
                    gate: plain(l.gate),
                    up: plain(l.up),
                    down: plain(l.down),
                },
            },
        });
        Self {
            layers: layers.collect(),
            head: plain(slots.head),
            learning: Learning::new(weights, lora),
        }
    }
}

/// Buffers of the way back, reused from layer to layer.
#[derive(Default)]
pub(crate) struct BackwardScratch {
    pub(crate) outer: OuterScratch,
    attention: AttentionScratch,
    wide: Vec<f32>,
    branch: Vec<f32>,
    dqueries: Vec<f32>,
    dkeys: Vec<f32>,
    dvalues: Vec<f32>,
    draw: Vec<f32>,
    experts: ExpertScratch,
}

/// Packed operands of an outer product.
#[derive(Default)]
pub(crate) struct OuterScratch {
    left: PackedLeft,
    right: Packed,
    /// Rows reduced to an adapter's rank.
    pub(super) narrow: Vec<f32>,
}

/// `dweight[out, in] += dyᵀ[out, rows] · x[rows, in]`
pub(crate) fn outer(dy: &[f32], x: &[f32], out: usize, width: usize, dweight: &mut [f32], s: &mut OuterScratch) {
    for (dy, x) in dy.chunks(OUTER_BLOCK * out).zip(x.chunks(OUTER_BLOCK * width)) {
        let rows = dy.len() / out;
        s.left.fill_columns(dy, rows, out);
        s.right.fill_plain(x, rows, width, width);
        multiply(
            (out, width, rows),
            s.left.left(),
            s.right.right(),
            dweight,
            width,
            Store::Add,
        );
    }
}

/// `dx[rows, in] (+)= dy[rows, out] · W`
pub(crate) fn back(dy: &[f32], weight: &Packed, store: Store, dx: &mut Vec<f32>) {
    let (k, n) = (weight.k(), weight.n());
    let rows = dy.len() / k;
    dx.resize(rows * n, 0.0);
    multiply((rows, n, k), Left::rows(dy, k), weight.right(), dx, n, store);
}

impl Decoder {
    /// Takes `dx`, the gradient of layer `index`'s output, to that of its input, adding the gradients of its weights to
    /// `grads` (by slot). `a` is what the forward pass kept; its gate and up are overwritten.
    #[expect(clippy::too_many_arguments, reason = "each is a buffer with an owner of its own")]
    pub(crate) fn layer_backward(
        &self,
        index: usize,
        transposes: &Transposes,
        rows: &Rows<'_>,
        a: &mut Activations,
        dx: &mut [f32],
        grads: &mut [Vec<f32>],
        s: &mut BackwardScratch,
    ) {
        let (slots, weights, layer) = (
            &self.slots.layers[index],
            &transposes.layers[index],
            &self.layers[index],
        );
        let (d, learning) = (self.config.hidden_size, &transposes.learning);
        let width = heads(&self.config).query_width();
        match (&weights.mlp, &layer.mlp) {
            (MlpTransposes::Dense { gate, up, down }, _) => {
                let f = self.config.intermediate_size;
                learning.outer(slots.down, (dx, &a.gated), (d, f), &mut grads[slots.down], &mut s.outer);
                back(dx, down, Store::Replace, &mut s.wide);
                swiglu_backward(&s.wide, &mut a.gate, &mut a.up);
                for (slot, dy) in [(slots.gate, &a.gate), (slots.up, &a.up)] {
                    learning.outer(slot, (dy, &a.middle_normed), (f, d), &mut grads[slot], &mut s.outer);
                }
                back(&a.gate, gate, Store::Replace, &mut s.branch);
                back(&a.up, up, Store::Add, &mut s.branch);
            }
            (MlpTransposes::Experts(transposes, router), Mlp::Experts(experts)) => experts.backward(
                transposes,
                (slots, *router),
                &mut a.experts,
                &a.middle_normed,
                dx,
                &mut s.branch,
                grads,
                &mut s.experts,
                // Experts and routers have no adapters.
                learning.is_whole().then_some(&mut s.outer),
            ),
            (MlpTransposes::Experts(..), Mlp::Dense { .. }) => {
                unreachable!("both are packed from the same slots")
            }
        }
        let gain = &mut grads[slots.mlp_norm];
        rms_norm_backward(&s.branch, &a.middle, &layer.mlp_norm, &a.middle_scales, dx, gain);

        let slot = slots.output.weight;
        learning.outer(slot, (dx, &a.attended), (d, width), &mut grads[slot], &mut s.outer);
        bias(dx, slots.output, grads);
        back(dx, &weights.output, Store::Replace, &mut s.branch);
        self.attention_backward(rows, a, s);
        self.norms_backward(index, rows, a, grads, s);
        self.projections_backward(slots, (weights, learning), a, grads, s);
        let gain = &mut grads[slots.attention_norm];
        rms_norm_backward(&s.branch, &a.input, &layer.attention_norm, &a.input_scales, dx, gain);
    }

    fn attention_backward(&self, rows: &Rows<'_>, a: &Activations, s: &mut BackwardScratch) {
        let heads = self.heads();
        let (width, key_width) = (heads.query_width(), heads.key_width());
        s.dqueries.resize(a.queries.len(), 0.0);
        s.dkeys.resize(a.keys.len(), 0.0);
        s.dvalues.resize(a.values.len(), 0.0);
        for span in rows.spans {
            let (q, k) = (span.floats(width), span.floats(key_width));
            let kept = Kept {
                queries: &a.queries[q.clone()],
                keys: &a.keys[k.clone()],
                values: &a.values[k.clone()],
                out: &a.attended[q.clone()],
                log_sums: &a.log_sums[span.floats(heads.query)],
            };
            let mut grads = Gradients {
                queries: &mut s.dqueries[q.clone()],
                keys: &mut s.dkeys[k.clone()],
                values: &mut s.dvalues[k],
            };
            attend_backward(heads, kept, &s.branch[q], &mut grads, &mut s.attention);
        }
    }

    /// Back through the rotation and, where there are any, the norms of queries and keys.
    fn norms_backward(
        &self,
        index: usize,
        rows: &Rows<'_>,
        a: &Activations,
        grads: &mut [Vec<f32>],
        s: &mut BackwardScratch,
    ) {
        let heads = self.heads();
        for (i, &angle) in rows.angles.iter().enumerate() {
            let (cos, sin) = rows.rotary.row(angle);
            rotate_back(
                &mut s.dqueries[i * heads.query_width()..][..heads.query_width()],
                cos,
                sin,
            );
            rotate_back(&mut s.dkeys[i * heads.key_width()..][..heads.key_width()], cos, sin);
        }
        let (slots, layer) = (&self.slots.layers[index], &self.layers[index]);
        let norms = [
            (
                slots.query_norm,
                &layer.query_norm,
                &a.raw_queries,
                &a.query_scales,
                &mut s.dqueries,
            ),
            (
                slots.key_norm,
                &layer.key_norm,
                &a.raw_keys,
                &a.key_scales,
                &mut s.dkeys,
            ),
        ];
        for (slot, weight, raw, scales, gradient) in norms {
            if let (Some(slot), Some(weight)) = (slot, weight) {
                s.draw.clear();
                s.draw.resize(raw.len(), 0.0);
                rms_norm_backward(gradient, raw, weight, scales, &mut s.draw, &mut grads[slot]);
                std::mem::swap(gradient, &mut s.draw);
            }
        }
    }

    fn projections_backward(
        &self,
        slots: &LayerSlots,
        (weights, learning): (&LayerTransposes, &Learning),
        a: &Activations,
        grads: &mut [Vec<f32>],
        s: &mut BackwardScratch,
    ) {
        let (d, heads) = (self.config.hidden_size, self.heads());
        let maps = [
            (
                slots.query,
                &weights.query,
                &s.dqueries,
                heads.query_width(),
                Store::Replace,
            ),
            (slots.key, &weights.key, &s.dkeys, heads.key_width(), Store::Add),
            (slots.value, &weights.value, &s.dvalues, heads.key_width(), Store::Add),
        ];
        for (slot, weight, gradient, width, store) in maps {
            let weights = &mut grads[slot.weight];
            learning.outer(slot.weight, (gradient, &a.normed), (width, d), weights, &mut s.outer);
            bias(gradient, slot, grads);
            back(gradient, weight, store, &mut s.branch);
        }
    }
}

fn bias(gradient: &[f32], slots: Projection, grads: &mut [Vec<f32>]) {
    if let Some(slot) = slots.bias {
        add_rows_to(gradient, &mut grads[slot]);
    }
}
