//! One worker: builds the graph over its share of a micro-batch, lets burn walk it back, and sums the gradients.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

use super::Version;
use super::ops::{self, Node};
use super::pass::{Buffers, Pass, Plan, emptied};
use crate::decoder::head::Pick;
use crate::decoder::packed::Decoder;
use crate::kernels::vector::add;
use crate::objective::{LossStats, Objective, evaluate};
use crate::row::{LogProbs, Row, Sequence};

/// Floats of activations above which only each layer's input is kept and the layer is run again on the way back.
const KEPT_ACTIVATIONS: usize = 1 << 28;

#[derive(Default)]
pub(super) struct Worker {
    buffers: Buffers,
    /// By slot; empty when nothing has been accumulated.
    gradients: Vec<Vec<f32>>,
}

impl Worker {
    /// What has been accumulated, which is then no more.
    pub(super) fn take(&mut self) -> Vec<Vec<f32>> {
        std::mem::take(&mut self.gradients)
    }

    /// Scores without a graph.
    pub(super) fn log_probs(
        &mut self,
        decoder: &Decoder,
        sequences: &[Sequence<'_>],
        temperature: f32,
        parallel: bool,
    ) -> Vec<LogProbs> {
        let plan = Plan::new(decoder, sequences.iter().map(|s| s.tokens), parallel);
        let buffers = &mut self.buffers;
        buffers.prepare(decoder, &plan, false);
        let mut x = Vec::new();
        decoder.embed(sequences.iter().flat_map(|s| s.tokens).copied(), &mut x);
        for index in 0..decoder.layers.len() {
            let mut stores = emptied(&mut buffers.stores, &plan);
            decoder.layer(index, &plan.rows(), &mut stores, &mut x, &mut buffers.layers[0]);
        }
        let picks = sequences.iter().zip(&plan.spans).flat_map(|(s, span)| {
            (s.loss_start..s.tokens.len()).map(|at| Pick {
                row: span.start + at - 1,
                target: s.tokens[at],
            })
        });
        let picks: Vec<Pick> = picks.collect();
        decoder.score(&x, &picks, temperature, false, parallel, &mut buffers.head);
        let mut done = 0;
        let cut = |s: &Sequence<'_>| {
            let range = done..done + s.tokens.len() - s.loss_start;
            done = range.end;
            LogProbs {
                logprobs: buffers.head.logprobs[range.clone()].to_vec(),
                entropy: buffers.head.entropies[range].to_vec(),
            }
        };
        sequences.iter().map(cut).collect()
    }

    /// Adds the gradient of the rows' loss; gives each row's sums.
    pub(super) fn accumulate(
        &mut self,
        version: &Version,
        rows: &[Row<'_>],
        objective: &Objective,
        parallel: bool,
    ) -> Vec<LossStats> {
        let decoder = &version.decoder;
        let masked: Vec<Vec<usize>> = rows.iter().map(Row::masked).collect();
        let plan = Plan::new(decoder, rows.iter().map(|r| r.tokens), parallel);
        let picks = picks(rows, &masked, &plan);
        if picks.is_empty() {
            return vec![LossStats::default(); rows.len()];
        }
        let keep_all = plan.tokens() * activation_floats(decoder) <= KEPT_ACTIVATIONS;
        self.buffers.prepare(decoder, &plan, keep_all);
        let tokens = rows.iter().flat_map(|row| row.tokens).copied().collect();
        let pass = Arc::new(Pass::new(
            (decoder, &version.transposes),
            plan,
            (tokens, picks),
            objective.temperature,
            keep_all,
            std::mem::take(&mut self.buffers),
        ));
        let leaves = version.leaves();
        let slots = &decoder.slots;
        let mut x = ops::embed(&pass, &leaves[slots.embedding]);
        for index in 0..decoder.layers.len() {
            x = ops::layer(&pass, index, &x, &leaves);
        }
        let scores = ops::score(&pass, &x, &leaves[slots.final_norm], &leaves[slots.head]);
        let (stats, upstream) = losses(rows, &masked, &pass, objective);
        // The loss itself is evaluated on the host; this sum has the same gradient.
        let surrogate = (scores * upstream).sum();
        let found = surrogate.backward();
        if self.gradients.is_empty() {
            self.gradients = decoder.sizes.iter().map(|size| vec![0.0; *size]).collect();
        }
        for (sum, leaf) in self.gradients.iter_mut().zip(&leaves) {
            if let Some(gradient) = leaf.grad(&found) {
                ops::with_floats(gradient, |gradient| add(sum, gradient));
            }
        }
        drop((found, x));
        self.buffers = std::mem::take(&mut *pass.buffers());
        stats
    }
}

/// Each row's sums, and the gradient of the loss for the graph's scores.
fn losses(rows: &[Row<'_>], masked: &[Vec<usize>], pass: &Pass, objective: &Objective) -> (Vec<LossStats>, Node) {
    let head = &pass.buffers().head;
    let (mut dlogprobs, mut dentropies, mut done) = (Vec::new(), Vec::new(), 0);
    let row = |(row, masked): (&Row<'_>, &Vec<usize>)| {
        let range = done..done + masked.len();
        done = range.end;
        let scores = (&head.logprobs[range.clone()], &head.entropies[range]);
        evaluate(row, masked, scores, objective, (&mut dlogprobs, &mut dentropies))
    };
    let stats = rows.iter().zip(masked).map(row).collect();
    dlogprobs.append(&mut dentropies);
    let len = dlogprobs.len();
    (
        stats,
        Tensor::from_data(TensorData::new(dlogprobs, [len]), &burn_flex::FlexDevice),
    )
}

fn picks(rows: &[Row<'_>], masked: &[Vec<usize>], plan: &Plan) -> Vec<Pick> {
    let row = |((row, masked), span): ((&Row<'_>, &Vec<usize>), &crate::decoder::Span)| {
        let pick = |p: &usize| {
            let at = row.loss_start + p;
            Pick {
                row: span.start + at - 1,
                target: row.tokens[at],
            }
        };
        masked.iter().map(pick).collect::<Vec<_>>()
    };
    rows.iter().zip(masked).zip(&plan.spans).flat_map(row).collect()
}

/// Floats that a pass keeps per token over all layers.
fn activation_floats(decoder: &Decoder) -> usize {
    let (c, heads) = (&decoder.config, decoder.heads());
    c.num_hidden_layers
        * (5 * c.hidden_size + 3 * heads.query_width() + 3 * heads.key_width() + 3 * c.intermediate_size)
}
