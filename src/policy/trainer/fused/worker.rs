//! One worker: builds the graph over its share of a micro-batch, lets burn walk it back, and sums the gradients.

use std::sync::Arc;

use burn::tensor::{Tensor, TensorData};

use super::Version;
use super::ops::{self, Leaf, Node};
use super::pass::{Buffers, Pass, Plan, emptied};
use crate::decoder::head::Pick;
use crate::decoder::packed::Decoder;
use crate::kernels::vector::add;
use crate::objective::{LossStats, Objective, ValueStats, evaluate, value_loss};
use crate::row::{LogProbs, Row, Sequence, ValueRow};

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
        let (x, picks, experts) = self.body(decoder, sequences, parallel);
        let head = &mut self.buffers.head;
        decoder.score(&x, &picks, temperature, false, parallel, head);
        let per_position = decoder.config.experts_per_position();
        let mut position = 0;
        let cut = |(sequence, range): (&Sequence<'_>, std::ops::Range<usize>)| {
            let first = position;
            position += sequence.tokens.len();
            LogProbs {
                logprobs: head.logprobs[range.clone()].to_vec(),
                entropy: head.entropies[range].to_vec(),
                experts: experts[first * per_position..position * per_position].to_vec(),
            }
        };
        sequences.iter().zip(responses(sequences)).map(cut).collect()
    }

    /// Values without a graph.
    pub(super) fn values(&mut self, decoder: &Decoder, sequences: &[Sequence<'_>], parallel: bool) -> Vec<Vec<f32>> {
        let (x, picks, _) = self.body(decoder, sequences, parallel);
        let values = decoder.value(&x, &picks, &mut self.buffers.head);
        responses(sequences).map(|range| values[range].to_vec()).collect()
    }

    /// The body's output, the rows whose next tokens are those of the responses, and the experts of all rows.
    fn body(
        &mut self,
        decoder: &Decoder,
        sequences: &[Sequence<'_>],
        parallel: bool,
    ) -> (Vec<f32>, Vec<Pick>, Vec<u16>) {
        let plan = Plan::new(decoder, sequences, parallel);
        let buffers = &mut self.buffers;
        buffers.prepare(decoder, &plan, false);
        let (mut x, mut experts) = (Vec::new(), Vec::new());
        decoder.embed(sequences.iter().flat_map(|s| s.tokens).copied(), &mut x);
        for index in 0..decoder.layers.len() {
            let mut stores = emptied(&mut buffers.stores, &plan);
            decoder.layer(index, &plan.rows(), &mut stores, &mut x, &mut buffers.layers[0]);
            decoder.note_experts(index, &buffers.layers[0], plan.tokens(), &mut experts);
        }
        let picks = sequences.iter().zip(&plan.spans).flat_map(|(s, span)| {
            (s.loss_start..s.tokens.len()).map(|at| Pick {
                row: span.start + at - 1,
                target: s.tokens[at],
            })
        });
        (x, picks.collect(), experts)
    }

    /// Adds the gradient of the rows' loss; gives each row's sums.
    pub(super) fn accumulate(
        &mut self,
        version: &Version,
        rows: &[Row<'_>],
        objective: &Objective,
        parallel: bool,
    ) -> Vec<LossStats> {
        let masked: Vec<Vec<usize>> = rows.iter().map(Row::masked).collect();
        let sequences: Vec<Sequence<'_>> = rows.iter().map(Row::sequence).collect();
        let slots = &version.decoder.slots;
        let found = self.differentiate(
            version,
            &sequences,
            &masked,
            objective.temperature,
            parallel,
            |pass, x, leaves| {
                let scores = ops::score(pass, x, &leaves[slots.final_norm], &leaves[slots.head]);
                let (stats, upstream) = losses(rows, &masked, pass, objective);
                (scores, upstream, stats)
            },
        );
        found.unwrap_or_else(|| vec![LossStats::default(); rows.len()])
    }

    /// Adds the gradient of the rows' value loss; gives each row's sums.
    pub(super) fn accumulate_values(
        &mut self,
        version: &Version,
        rows: &[ValueRow<'_>],
        clip: f32,
        parallel: bool,
    ) -> Vec<ValueStats> {
        let masked: Vec<Vec<usize>> = rows.iter().map(ValueRow::masked).collect();
        let sequences: Vec<Sequence<'_>> = rows.iter().map(ValueRow::sequence).collect();
        let found = self.differentiate(version, &sequences, &masked, 1.0, parallel, |pass, x, leaves| {
            let (scores, values) = ops::value(pass, x, leaves);
            let (mut dvalues, mut done) = (Vec::with_capacity(values.len()), 0);
            let row = |(row, masked): (&ValueRow<'_>, &Vec<usize>)| {
                let own = &values[done..done + masked.len()];
                done += masked.len();
                value_loss(row, masked, own, clip, &mut dvalues)
            };
            let stats = rows.iter().zip(&masked).map(row).collect();
            (scores, constant(dvalues), stats)
        });
        found.unwrap_or_else(|| vec![ValueStats::default(); rows.len()])
    }

    /// Builds the graph up to the body's output, has `head` put scores and their gradient on top, and adds the gradients
    /// of all weights. `None` where no position is masked.
    fn differentiate<T>(
        &mut self,
        version: &Version,
        sequences: &[Sequence<'_>],
        masked: &[Vec<usize>],
        temperature: f32,
        parallel: bool,
        head: impl FnOnce(&Arc<Pass>, &Node, &[Leaf]) -> (Node, Node, T),
    ) -> Option<T> {
        let decoder = &version.decoder;
        let plan = Plan::new(decoder, sequences, parallel);
        let picks = picks(sequences, masked, &plan);
        if picks.is_empty() {
            return None;
        }
        let keep_all = !version.recompute && plan.tokens() * activation_floats(decoder) <= KEPT_ACTIVATIONS;
        self.buffers.prepare(decoder, &plan, keep_all);
        let tokens = sequences.iter().flat_map(|s| s.tokens).copied().collect();
        let pass = Arc::new(Pass::new(
            (decoder, &version.transposes),
            plan,
            (tokens, picks),
            temperature,
            keep_all,
            std::mem::take(&mut self.buffers),
        ));
        let leaves = version.leaves();
        let mut x = ops::embed(&pass, &leaves[decoder.slots.embedding]);
        for index in 0..decoder.layers.len() {
            x = ops::layer(&pass, index, &x, &leaves);
        }
        let (scores, upstream, found) = head(&pass, &x, &leaves);
        // The loss itself is evaluated on the host; this sum has the same gradient.
        let gradients = (scores * upstream).sum().backward();
        if self.gradients.is_empty() {
            let trained = version.transposes.learning.trained();
            self.gradients = trained.iter().map(|size| vec![0.0; *size]).collect();
        }
        for (sum, leaf) in self.gradients.iter_mut().zip(&leaves) {
            if let Some(gradient) = leaf.grad(&gradients) {
                ops::with_floats(gradient, |gradient| add(sum, gradient));
            }
        }
        drop((gradients, x));
        self.buffers = std::mem::take(&mut *pass.buffers());
        Some(found)
    }
}

/// Where the responses of some sequences lie, one after the other.
fn responses<'a>(sequences: &'a [Sequence<'_>]) -> impl Iterator<Item = std::ops::Range<usize>> + 'a {
    let mut done = 0;
    sequences.iter().map(move |s| {
        let range = done..done + s.tokens.len() - s.loss_start;
        done = range.end;
        range
    })
}

fn constant(values: Vec<f32>) -> Node {
    let len = values.len();
    Tensor::from_data(TensorData::new(values, [len]), &burn_flex::FlexDevice)
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
    (stats, constant(dlogprobs))
}

fn picks(sequences: &[Sequence<'_>], masked: &[Vec<usize>], plan: &Plan) -> Vec<Pick> {
    let of_row = |((sequence, masked), span): ((&Sequence<'_>, &Vec<usize>), &crate::decoder::Span)| {
        let pick = |p: &usize| {
            let at = sequence.loss_start + p;
            Pick {
                row: span.start + at - 1,
                target: sequence.tokens[at],
            }
        };
        masked.iter().map(pick).collect::<Vec<_>>()
    };
    sequences.iter().zip(masked).zip(&plan.spans).flat_map(of_row).collect()
}

/// Floats that a pass keeps per token over all layers.
fn activation_floats(decoder: &Decoder) -> usize {
    let (c, heads) = (&decoder.config, decoder.heads());
    let experts = c.moe.as_ref();
    let inner = experts.map_or(3 * c.intermediate_size, |moe| {
        moe.experts + moe.per_token * (3 * moe.intermediate_size + 2 * c.hidden_size)
    });
    c.num_hidden_layers * (5 * c.hidden_size + 3 * heads.query_width() + 3 * heads.key_width() + inner)
}
