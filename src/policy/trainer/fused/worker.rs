//! One worker: forward and backward over its share of a micro-batch, with buffers that live on.

use crate::decoder::Span;
use crate::decoder::backward::{BackwardScratch, Transposes};
use crate::decoder::forward::{Activations, Rows};
use crate::decoder::head::{HeadState, Pick};
use crate::decoder::packed::{Decoder, Rotary};
use crate::kernels::attention::KeyValues;
use crate::kernels::vector::add;
use crate::objective::{LossStats, Objective, evaluate};
use crate::row::{LogProbs, Row, Sequence};

/// Floats of activations above which only each layer's input is kept and the layer is run again on the way back.
const KEPT_ACTIVATIONS: usize = 1 << 28;

#[derive(Default)]
pub(super) struct Worker {
    x: Vec<f32>,
    dx: Vec<f32>,
    /// One per layer, or a single one that every layer uses in turn.
    layers: Vec<Activations>,
    inputs: Vec<Vec<f32>>,
    stores: Vec<KeyValues>,
    head: HeadState,
    scratch: BackwardScratch,
    /// By slot; empty when nothing has been accumulated.
    gradients: Vec<Vec<f32>>,
}

/// The rows of a pass and where they lie.
struct Plan {
    spans: Vec<Span>,
    angles: Vec<usize>,
    rotary: Rotary,
    parallel: bool,
}

impl Plan {
    fn new<'a>(decoder: &Decoder, tokens: impl Iterator<Item = &'a [u32]>, parallel: bool) -> Self {
        let (mut spans, mut angles, mut longest) = (Vec::new(), Vec::new(), 0);
        for tokens in tokens {
            spans.push(Span { start: angles.len(), rows: tokens.len() });
            angles.extend(0..tokens.len());
            longest = longest.max(tokens.len());
        }
        Self { spans, angles, rotary: Rotary::new(&decoder.config, 0..longest), parallel }
    }

    fn rows(&self) -> Rows<'_> {
        Rows { spans: &self.spans, rotary: &self.rotary, angles: &self.angles, parallel: self.parallel }
    }
}

impl Decoder {
    /// A zero gradient by slot.
    pub(super) fn zeros(&self) -> Vec<Vec<f32>> {
        let parameters = crate::layout::parameters(&self.config);
        parameters.iter().map(|p| vec![0.0; p.shape.iter().product()]).collect()
    }
}

impl Worker {
    pub(super) fn take(&mut self) -> Vec<Vec<f32>> {
        std::mem::take(&mut self.gradients)
    }

    pub(super) fn log_probs(
        &mut self,
        decoder: &Decoder,
        sequences: &[Sequence<'_>],
        temperature: f32,
        parallel: bool,
    ) -> Vec<LogProbs> {
        let plan = Plan::new(decoder, sequences.iter().map(|s| s.tokens), parallel);
        self.forward(decoder, &plan, sequences.iter().map(|s| s.tokens), Keep::Nothing);
        let picks = sequences.iter().zip(&plan.spans).flat_map(|(s, span)| {
            (s.loss_start..s.tokens.len()).map(|i| Pick { row: span.start + i - 1, target: s.tokens[i] })
        });
        let picks: Vec<Pick> = picks.collect();
        decoder.score(&self.x, &picks, temperature, false, parallel, &mut self.head);
        let mut done = 0;
        let cut = |s: &Sequence<'_>| {
            let range = done..done + s.tokens.len() - s.loss_start;
            done = range.end;
            LogProbs {
                logprobs: self.head.logprobs[range.clone()].to_vec(),
                entropy: self.head.entropies[range].to_vec(),
            }
        };
        sequences.iter().map(cut).collect()
    }

    /// Adds the gradient of the rows' loss; gives each row's sums.
    pub(super) fn accumulate(
        &mut self,
        decoder: &Decoder,
        transposes: &Transposes,
        rows: &[Row<'_>],
        objective: &Objective,
        parallel: bool,
    ) -> Vec<LossStats> {
        if self.gradients.is_empty() {
            self.gradients = decoder.zeros();
        }
        let plan = Plan::new(decoder, rows.iter().map(|r| r.tokens), parallel);
        let keep = if plan.angles.len() * activation_floats(decoder) > KEPT_ACTIVATIONS {
            Keep::Inputs
        } else {
            Keep::All
        };
        self.forward(decoder, &plan, rows.iter().map(|r| r.tokens), keep);
        let masked: Vec<Vec<usize>> = rows.iter().map(Row::masked).collect();
        let picks = rows.iter().zip(&masked).zip(&plan.spans).flat_map(|((row, masked), span)| {
            masked.iter().map(|p| {
                let at = row.loss_start + p;
                Pick { row: span.start + at - 1, target: row.tokens[at] }
            })
        });
        let picks: Vec<Pick> = picks.collect();
        decoder.score(&self.x, &picks, objective.temperature, true, parallel, &mut self.head);
        let (mut dlogprobs, mut dentropies, mut done) = (Vec::new(), Vec::new(), 0);
        let losses = rows.iter().zip(&masked).map(|(row, masked)| {
            let range = done..done + masked.len();
            done = range.end;
            let scores = (&self.head.logprobs[range.clone()], &self.head.entropies[range]);
            evaluate(row, masked, scores, objective, (&mut dlogprobs, &mut dentropies))
        });
        let stats = losses.collect();
        self.dx.resize(self.x.len(), 0.0);
        decoder.score_backward(
            transposes,
            &picks,
            (&dlogprobs, &dentropies),
            objective.temperature,
            &mut self.dx,
            &mut self.gradients,
            &mut self.head,
            &mut self.scratch.outer,
        );
        self.backward(decoder, transposes, &plan, rows);
        stats
    }

    fn forward<'a>(
        &mut self,
        decoder: &Decoder,
        plan: &Plan,
        tokens: impl Iterator<Item = &'a [u32]>,
        keep: Keep,
    ) {
        let layers = decoder.layers.len();
        self.layers.resize_with(if keep == Keep::All { layers } else { 1 }, Activations::default);
        self.inputs.clear();
        let heads = decoder.heads();
        self.stores.resize_with(self.stores.len().max(plan.spans.len()), || KeyValues::new(heads));
        decoder.embed(tokens.flatten().copied(), &mut self.x);
        for index in 0..layers {
            if keep == Keep::Inputs {
                self.inputs.push(self.x.clone());
            }
            let activations = if keep == Keep::All { &mut self.layers[index] } else { &mut self.layers[0] };
            let mut stores = emptied(&mut self.stores, plan);
            decoder.layer(index, &plan.rows(), &mut stores, &mut self.x, activations);
        }
    }

    fn backward(&mut self, decoder: &Decoder, transposes: &Transposes, plan: &Plan, tokens: &[Row<'_>]) {
        let rows = plan.rows();
        for index in (0..decoder.layers.len()).rev() {
            let activations = if let Some(mut input) = self.inputs.pop() {
                let mut stores = emptied(&mut self.stores, plan);
                decoder.layer(index, &rows, &mut stores, &mut input, &mut self.layers[0]);
                &mut self.layers[0]
            } else {
                &mut self.layers[index]
            };
            let (dx, grads) = (&mut self.dx, &mut self.gradients);
            decoder.layer_backward(index, transposes, &rows, activations, dx, grads, &mut self.scratch);
        }
        let d = decoder.config.hidden_size;
        let embedding = &mut self.gradients[decoder.slots.embedding];
        let tokens = tokens.iter().flat_map(|row| row.tokens);
        for (token, gradient) in tokens.zip(self.dx.chunks_exact(d)) {
            add(&mut embedding[*token as usize * d..][..d], gradient);
        }
    }
}

/// What a forward pass leaves for a backward pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Nothing,
    Inputs,
    All,
}

fn emptied<'a>(stores: &'a mut [KeyValues], plan: &Plan) -> Vec<&'a mut KeyValues> {
    let empty = |store: &'a mut KeyValues| {
        store.truncate(0);
        store
    };
    stores.iter_mut().take(plan.spans.len()).map(empty).collect()
}

/// Floats that [`Activations`] take per token over all layers.
fn activation_floats(decoder: &Decoder) -> usize {
    let (c, heads) = (&decoder.config, decoder.heads());
    c.num_hidden_layers * (5 * c.hidden_size + 3 * heads.query_width() + 3 * heads.key_width() + 3 * c.intermediate_size)
}
