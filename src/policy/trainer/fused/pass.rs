//! One pass over a share of rows: where they lie, and the buffers that its operations leave for their backward passes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::NO_EXPERT;
use crate::decoder::Span;
use crate::decoder::backward::{BackwardScratch, Transposes};
use crate::decoder::forward::{Activations, Rows};
use crate::decoder::head::{HeadState, Pick};
use crate::decoder::packed::{Decoder, Rotary};
use crate::kernels::attention::KeyValues;
use crate::row::Sequence;

/// The rows of a pass and where they lie.
pub(super) struct Plan {
    pub(super) spans: Vec<Span>,
    angles: Vec<usize>,
    /// Prescribed experts of all rows; empty: none.
    experts: Vec<u16>,
    rotary: Rotary,
    parallel: bool,
}

impl Plan {
    pub(super) fn new(decoder: &Decoder, sequences: &[Sequence<'_>], parallel: bool) -> Self {
        let (mut spans, mut angles, mut longest) = (Vec::new(), Vec::new(), 0);
        for Sequence { tokens, .. } in sequences {
            spans.push(Span {
                start: angles.len(),
                rows: tokens.len(),
            });
            angles.extend(0..tokens.len());
            longest = longest.max(tokens.len());
        }
        let mut experts = Vec::new();
        if sequences.iter().any(|sequence| !sequence.experts.is_empty()) {
            let per_position = decoder.config.experts_per_position();
            for sequence in sequences {
                experts.extend_from_slice(sequence.experts);
                if sequence.experts.is_empty() {
                    experts.extend(std::iter::repeat_n(NO_EXPERT, sequence.tokens.len() * per_position));
                }
            }
        }
        Self {
            spans,
            angles,
            experts,
            rotary: Rotary::new(&decoder.config, 0..longest),
            parallel,
        }
    }

    /// Tokens of the pass.
    pub(super) fn tokens(&self) -> usize {
        self.angles.len()
    }

    pub(super) fn rows(&self) -> Rows<'_> {
        Rows {
            spans: &self.spans,
            rotary: &self.rotary,
            angles: &self.angles,
            experts: &self.experts,
            parallel: self.parallel,
        }
    }
}

/// What the operations of one graph share.
pub(super) struct Pass {
    pub(super) decoder: Arc<Decoder>,
    pub(super) transposes: Arc<Transposes>,
    pub(super) plan: Plan,
    pub(super) tokens: Vec<u32>,
    pub(super) picks: Vec<Pick>,
    pub(super) temperature: f32,
    /// Whether every layer's activations are kept, and small probabilities; else only each layer's input, and the rest is computed
    /// again on the way back.
    pub(super) keep_all: bool,
    buffers: Mutex<Buffers>,
}

impl Pass {
    pub(super) fn new(
        (decoder, transposes): (&Arc<Decoder>, &Arc<Transposes>),
        plan: Plan,
        (tokens, picks): (Vec<u32>, Vec<Pick>),
        temperature: f32,
        keep_all: bool,
        buffers: Buffers,
    ) -> Self {
        let (decoder, transposes) = (Arc::clone(decoder), Arc::clone(transposes));
        Self {
            decoder,
            transposes,
            plan,
            tokens,
            picks,
            temperature,
            keep_all,
            buffers: Mutex::new(buffers),
        }
    }

    /// A graph runs on one thread; the lock is never waited for.
    pub(super) fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs layer `index` over `x` in place.
    pub(super) fn layer(&self, index: usize, x: &mut [f32]) {
        let buffers = &mut *self.buffers();
        if !self.keep_all {
            let input = &mut buffers.inputs[index];
            input.clear();
            input.extend_from_slice(x);
        }
        self.run(index, x, buffers);
    }

    /// Takes the gradient `dx` of layer `index`'s output to that of its input, adding to `grads` by slot.
    pub(super) fn layer_backward(&self, index: usize, dx: &mut [f32], grads: &mut [Vec<f32>]) {
        let buffers = &mut *self.buffers();
        if !self.keep_all {
            let mut input = std::mem::take(&mut buffers.inputs[index]);
            self.run(index, &mut input, buffers);
            buffers.inputs[index] = input;
        }
        let activations = &mut buffers.layers[if self.keep_all { index } else { 0 }];
        let (rows, scratch) = (self.plan.rows(), &mut buffers.scratch);
        self.decoder
            .layer_backward(index, &self.transposes, &rows, activations, dx, grads, scratch);
    }

    fn run(&self, index: usize, x: &mut [f32], buffers: &mut Buffers) {
        let activations = &mut buffers.layers[if self.keep_all { index } else { 0 }];
        let mut stores = emptied(&mut buffers.stores, &self.plan);
        self.decoder
            .layer(index, &self.plan.rows(), &mut stores, x, activations);
    }
}

/// Memory that lives on from pass to pass.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) layers: Vec<Activations>,
    inputs: Vec<Vec<f32>>,
    pub(super) stores: Vec<KeyValues>,
    pub(super) head: HeadState,
    pub(super) scratch: BackwardScratch,
}

impl Buffers {
    /// Makes room for a pass that keeps all activations or only inputs.
    pub(super) fn prepare(&mut self, decoder: &Decoder, plan: &Plan, keep_all: bool) {
        let layers = decoder.layers.len();
        self.layers
            .resize_with(if keep_all { layers } else { 1 }, Activations::default);
        self.inputs.resize_with(if keep_all { 0 } else { layers }, Vec::new);
        let heads = decoder.heads();
        self.stores
            .resize_with(self.stores.len().max(plan.spans.len()), || KeyValues::new(heads));
    }
}

/// The stores of a pass's spans, with nothing in them.
pub(super) fn emptied<'a>(stores: &'a mut [KeyValues], plan: &Plan) -> Vec<&'a mut KeyValues> {
    let empty = |store: &'a mut KeyValues| {
        store.truncate(0);
        store
    };
    stores.iter_mut().take(plan.spans.len()).map(empty).collect()
}
