//! Routed experts, forward: a token goes through its most probable experts, or through those that are prescribed for it,
//! and takes the sum of what they give, weighted by their probabilities.
//!
//! Tokens are gathered by expert, so that each expert multiplies its own tokens once. A row's result does not depend on
//! which rows share its pass.

use std::ops::Range;

use super::packed::Linear;
use crate::config::Moe;
use crate::kernels::vector::swiglu;

/// In place of an expert's index: none is recorded for this position, and it is routed as usual.
pub const NO_EXPERT: u16 = u16::MAX;

/// The experts of a layer, packed.
pub(crate) struct Experts {
    pub(crate) moe: Moe,
    pub(crate) router: Linear,
    pub(crate) gate: Vec<Linear>,
    pub(crate) up: Vec<Linear>,
    pub(crate) down: Vec<Linear>,
}

/// What the experts of a layer leave for the way back. A *pair* is a token with one of its experts; pairs are ordered by
/// expert.
#[derive(Default)]
pub(crate) struct ExpertActivations {
    /// The router's softmax, `[rows, experts]`.
    pub(crate) probabilities: Vec<f32>,
    /// The experts that rows went through, `[rows, per_token]`.
    pub(crate) chosen: Vec<u16>,
    /// Those that the router would have chosen.
    pub(crate) own: Vec<u16>,
    /// Weight of each chosen expert, `[rows, per_token]`.
    pub(crate) weights: Vec<f32>,
    /// Where each pair is in `chosen`.
    pub(crate) pairs: Vec<usize>,
    /// Pairs of each expert.
    pub(crate) ranges: Vec<Range<usize>>,
    /// Input of each pair, `[pairs, hidden]`.
    pub(crate) inputs: Vec<f32>,
    /// `[pairs, intermediate]`.
    pub(crate) gate: Vec<f32>,
    pub(crate) up: Vec<f32>,
    pub(crate) gated: Vec<f32>,
    /// Output of each pair, not weighted, `[pairs, hidden]`.
    pub(crate) outputs: Vec<f32>,
    part: Vec<f32>,
}

/// Experts that are prescribed: `[positions, layers, per_token]`; no rows at all, or some of [`NO_EXPERT`].
#[derive(Clone, Copy)]
pub(crate) struct Prescribed<'a> {
    pub(crate) all: &'a [u16],
    pub(crate) layers: usize,
    pub(crate) layer: usize,
}

impl Prescribed<'_> {
    /// The experts of a row, if they are prescribed.
    fn row(&self, row: usize, per_token: usize) -> Option<&[u16]> {
        let experts = self
            .all
            .get((row * self.layers + self.layer) * per_token..)?
            .get(..per_token)?;
        (!experts.contains(&NO_EXPERT)).then_some(experts)
    }
}

impl Experts {
    /// `branch[rows, hidden]` becomes what the experts give for the normed rows `x`.
    pub(crate) fn forward(
        &self,
        x: &[f32],
        rows: usize,
        parallel: bool,
        prescribed: Prescribed<'_>,
        a: &mut ExpertActivations,
        branch: &mut Vec<f32>,
    ) {
        let width = x.len() / rows.max(1);
        self.router.forward(x, rows, parallel, &mut a.probabilities);
        self.choose(rows, prescribed, a);
        self.gather(x, width, a);
        for buffer in [&mut a.gate, &mut a.up, &mut a.outputs] {
            buffer.clear();
        }
        for (expert, range) in a.ranges.iter().enumerate() {
            let (count, inputs) = (range.len(), &a.inputs[range.start * width..range.end * width]);
            if count == 0 {
                continue;
            }
            for (map, out) in [(&self.gate[expert], &mut a.gate), (&self.up[expert], &mut a.up)] {
                map.forward(inputs, count, parallel, &mut a.part);
                out.extend_from_slice(&a.part);
            }
        }
        a.gated.resize(a.gate.len(), 0.0);
        swiglu(&a.gate, &a.up, &mut a.gated);
        let inner = self.moe.intermediate_size;
        for (expert, range) in a.ranges.iter().enumerate().filter(|(_, range)| !range.is_empty()) {
            let gated = &a.gated[range.start * inner..range.end * inner];
            self.down[expert].forward(gated, range.len(), parallel, &mut a.part);
            a.outputs.extend_from_slice(&a.part);
        }
        branch.clear();
        branch.resize(rows * width, 0.0);
        for (pair, output) in a.pairs.iter().zip(a.outputs.chunks_exact(width)) {
            let sum = &mut branch[pair / self.moe.per_token * width..][..width];
            let weight = a.weights[*pair];
            sum.iter_mut()
                .zip(output)
                .for_each(|(sum, value)| *sum += weight * value);
        }
    }

    /// Softmax of the router's logits, the choice, and its weights.
    fn choose(&self, rows: usize, prescribed: Prescribed<'_>, a: &mut ExpertActivations) {
        let (experts, per_token) = (self.moe.experts, self.moe.per_token);
        for buffer in [&mut a.chosen, &mut a.own] {
            buffer.clear();
        }
        a.weights.clear();
        for (row, logits) in a.probabilities.chunks_exact_mut(experts).enumerate().take(rows) {
            softmax(logits);
            most_probable(logits, per_token, &mut a.own);
            let own = &a.own[row * per_token..];
            a.chosen
                .extend_from_slice(prescribed.row(row, per_token).unwrap_or(own));
            let chosen = &a.chosen[row * per_token..];
            let sum: f32 = chosen.iter().map(|expert| logits[usize::from(*expert)]).sum();
            let scale = if self.moe.norm_topk_prob { 1.0 / sum } else { 1.0 };
            a.weights
                .extend(chosen.iter().map(|expert| logits[usize::from(*expert)] * scale));
        }
    }

    /// Orders the pairs by expert and gathers their inputs.
    fn gather(&self, x: &[f32], width: usize, a: &mut ExpertActivations) {
        let mut counts = vec![0; self.moe.experts];
        for expert in &a.chosen {
            counts[usize::from(*expert)] += 1;
        }
        a.ranges.clear();
        let mut start = 0;
        for count in counts {
            a.ranges.push(start..start + count);
            start += count;
        }
        let mut next: Vec<usize> = a.ranges.iter().map(|range| range.start).collect();
        a.pairs.clear();
        a.pairs.resize(start, 0);
        for (pair, expert) in a.chosen.iter().enumerate() {
            let place = &mut next[usize::from(*expert)];
            a.pairs[*place] = pair;
            *place += 1;
        }
        a.inputs.clear();
        for pair in &a.pairs {
            a.inputs
                .extend_from_slice(&x[pair / self.moe.per_token * width..][..width]);
        }
    }
}

fn softmax(logits: &mut [f32]) {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for logit in logits.iter_mut() {
        *logit = (*logit - max).exp();
        sum += *logit;
    }
    for value in logits {
        *value /= sum;
    }
}

/// The `count` most probable experts, most probable first; of equals the first.
pub(crate) fn most_probable(probabilities: &[f32], count: usize, chosen: &mut Vec<u16>) {
    let mut order: Vec<u16> = (0..probabilities.len() as u16).collect();
    order.sort_by(|a, b| {
        probabilities[usize::from(*b)]
            .total_cmp(&probabilities[usize::from(*a)])
            .then(a.cmp(b))
    });
    chosen.extend_from_slice(&order[..count]);
}
