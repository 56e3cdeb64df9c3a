//! The forward pass of one layer and of the whole body, with what the backward pass needs kept where asked for.

use rayon::prelude::*;

use super::Span;
use super::experts::{ExpertActivations, Prescribed};
use super::packed::{Decoder, Layer, Mlp, Rotary};
use crate::kernels::attention::{Heads, KeyValues, attend};
use crate::kernels::vector::{add, rms_norm, rotate, swiglu};

/// Scores of a layer below which sequences are taken one after another.
const PARALLEL_ATTENTION: usize = 1 << 16;

/// One layer's values on the way forward, each `[rows, width]`; reused from pass to pass.
#[derive(Default)]
pub(crate) struct Activations {
    /// The layer's input.
    pub(crate) input: Vec<f32>,
    pub(crate) input_scales: Vec<f32>,
    /// After the first norm.
    pub(crate) normed: Vec<f32>,
    /// Queries and keys before their norm; empty without one.
    pub(crate) raw_queries: Vec<f32>,
    pub(crate) raw_keys: Vec<f32>,
    pub(crate) query_scales: Vec<f32>,
    pub(crate) key_scales: Vec<f32>,
    /// Rotated.
    pub(crate) queries: Vec<f32>,
    pub(crate) keys: Vec<f32>,
    pub(crate) values: Vec<f32>,
    /// `log Σ exp` of the scores: sequence after sequence, `[query head][position]` each.
    pub(crate) log_sums: Vec<f32>,
    pub(crate) attended: Vec<f32>,
    /// After attention and its residual.
    pub(crate) middle: Vec<f32>,
    pub(crate) middle_scales: Vec<f32>,
    pub(crate) middle_normed: Vec<f32>,
    pub(crate) gate: Vec<f32>,
    pub(crate) up: Vec<f32>,
    pub(crate) gated: Vec<f32>,
    /// In place of gate, up and gated where the layer has experts.
    pub(crate) experts: ExpertActivations,
    /// The branch on its way to the residual.
    branch: Vec<f32>,
}

/// Rows of one pass: which belong together, and which row of the rotary tables each one takes.
pub(crate) struct Rows<'a> {
    pub(crate) spans: &'a [Span],
    pub(crate) rotary: &'a Rotary,
    pub(crate) angles: &'a [usize],
    /// Experts of each row as they are prescribed, `[rows, layers, per_token]`; empty: none are.
    pub(crate) experts: &'a [u16],
    /// Whether one pass may use several threads (not where passes themselves run side by side).
    pub(crate) parallel: bool,
}

impl Decoder {
    /// Looks up the embeddings of `tokens` into `x`, `[tokens, hidden]`. Tokens are within the vocabulary.
    pub(crate) fn embed(&self, tokens: impl Iterator<Item = u32>, x: &mut Vec<f32>) {
        let d = self.config.hidden_size;
        x.clear();
        for token in tokens {
            x.extend_from_slice(&self.embedding[token as usize * d..][..d]);
        }
    }

    /// Takes `x` through layer `index` in place. `stores[i]` gets the keys and values of span i appended.
    pub(crate) fn layer(
        &self,
        index: usize,
        rows: &Rows<'_>,
        stores: &mut [&mut KeyValues],
        x: &mut [f32],
        a: &mut Activations,
    ) {
        let layer = &self.layers[index];
        let count = rows.angles.len();
        let (d, eps) = (self.config.hidden_size, self.config.rms_norm_eps as f32);
        copy(x, &mut a.input);
        norm(&a.input, &layer.attention_norm, eps, &mut a.input_scales, &mut a.normed);
        self.project(layer, rows, a);
        attention(self.heads(), rows, stores, a);
        layer.output.forward(&a.attended, count, rows.parallel, &mut a.branch);
        add(x, &a.branch);
        copy(x, &mut a.middle);
        norm(
            &a.middle,
            &layer.mlp_norm,
            eps,
            &mut a.middle_scales,
            &mut a.middle_normed,
        );
        match &layer.mlp {
            Mlp::Dense { gate, up, down } => {
                gate.forward(&a.middle_normed, count, rows.parallel, &mut a.gate);
                up.forward(&a.middle_normed, count, rows.parallel, &mut a.up);
                a.gated.resize(a.gate.len(), 0.0);
                swiglu(&a.gate, &a.up, &mut a.gated);
                down.forward(&a.gated, count, rows.parallel, &mut a.branch);
            }
            Mlp::Experts(experts) => {
                let prescribed = Prescribed {
                    all: rows.experts,
                    layers: self.layers.len(),
                    layer: index,
                };
                let (kept, out) = (&mut a.experts, &mut a.branch);
                experts.forward(&a.middle_normed, count, rows.parallel, prescribed, kept, out);
            }
        }
        debug_assert_eq!(a.branch.len(), count * d);
        add(x, &a.branch);
    }

    /// Adds the experts that the routers of layer `index` chose for the rows to `all`, `[rows, layers, per_token]`, which is empty
    /// before the first layer. Nothing for a dense model.
    pub(crate) fn note_experts(&self, index: usize, a: &Activations, rows: usize, all: &mut Vec<u16>) {
        let Some(moe) = &self.config.moe else { return };
        let (width, layers) = (moe.per_token, self.layers.len());
        all.resize(rows * layers * width, 0);
        if let Mlp::Experts(_) = self.layers[index].mlp {
            for (row, chosen) in a.experts.own.chunks_exact(width).enumerate() {
                all[(row * layers + index) * width..][..width].copy_from_slice(chosen);
            }
        }
    }

    /// Queries, keys and values of the normed input; norm per head where there is one; rotation.
    fn project(&self, layer: &Layer, rows: &Rows<'_>, a: &mut Activations) {
        let (count, eps) = (rows.angles.len(), self.config.rms_norm_eps as f32);
        layer.query.forward(&a.normed, count, rows.parallel, &mut a.queries);
        layer.key.forward(&a.normed, count, rows.parallel, &mut a.keys);
        layer.value.forward(&a.normed, count, rows.parallel, &mut a.values);
        if let Some(weight) = &layer.query_norm {
            std::mem::swap(&mut a.queries, &mut a.raw_queries);
            norm(&a.raw_queries, weight, eps, &mut a.query_scales, &mut a.queries);
        }
        if let Some(weight) = &layer.key_norm {
            std::mem::swap(&mut a.keys, &mut a.raw_keys);
            norm(&a.raw_keys, weight, eps, &mut a.key_scales, &mut a.keys);
        }
        let heads = self.heads();
        for (i, &angle) in rows.angles.iter().enumerate() {
            let (cos, sin) = rows.rotary.row(angle);
            rotate(
                &mut a.queries[i * heads.query_width()..][..heads.query_width()],
                cos,
                sin,
            );
            rotate(&mut a.keys[i * heads.key_width()..][..heads.key_width()], cos, sin);
        }
    }
}

fn attention(heads: Heads, rows: &Rows<'_>, stores: &mut [&mut KeyValues], a: &mut Activations) {
    let (width, key_width) = (heads.query_width(), heads.key_width());
    a.attended.resize(a.queries.len(), 0.0);
    a.log_sums.resize(a.queries.len() / heads.dim, 0.0);
    let mut work = 0;
    let mut tasks = Vec::with_capacity(rows.spans.len());
    let (mut outs, mut sums) = (a.attended.as_mut_slice(), a.log_sums.as_mut_slice());
    for (span, store) in rows.spans.iter().zip(stores) {
        let (out, sum);
        (out, outs) = outs.split_at_mut(span.rows * width);
        (sum, sums) = sums.split_at_mut(span.rows * heads.query);
        store.append(&a.keys[span.floats(key_width)], &a.values[span.floats(key_width)]);
        work += span.rows * store.len() * heads.query;
        tasks.push((&a.queries[span.floats(width)], &**store, out, sum));
    }
    if !rows.parallel || work < PARALLEL_ATTENTION || tasks.len() == 1 {
        let mut scores = Vec::new();
        for (queries, store, out, sum) in tasks {
            attend(queries, store, out, sum, &mut scores);
        }
    } else {
        tasks
            .into_par_iter()
            .for_each_init(Vec::new, |scores, (queries, store, out, sum)| {
                attend(queries, store, out, sum, scores);
            });
    }
}

pub(crate) fn norm(x: &[f32], weight: &[f32], eps: f32, scales: &mut Vec<f32>, out: &mut Vec<f32>) {
    scales.resize(x.len() / weight.len(), 0.0);
    out.resize(x.len(), 0.0);
    rms_norm(x, weight, eps, scales, out);
}

fn copy(from: &[f32], to: &mut Vec<f32>) {
    to.clear();
    to.extend_from_slice(from);
}
