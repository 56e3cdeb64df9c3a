//! Final norm, head and log-softmax at chosen rows: log-probs, entropies and their derivatives.
//!
//! Runs over chunks of rows, so that no more than a chunk of logits over the vocabulary need exist; where all of them
//! are small they are kept for the way back, else computed a second time.

use super::backward::{OuterScratch, Transposes, back};
use super::packed::Decoder;
use crate::kernels::gemm::Store;
use crate::kernels::vector::{distribution, distribution_backward};

/// Floats of logits in one chunk.
const CHUNK: usize = 1 << 20;
/// Floats of probabilities that are kept rather than computed twice.
const KEEP: usize = 1 << 24;

/// A position whose next token is scored: the row of its hidden state, and that token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pick {
    pub(crate) row: usize,
    pub(crate) target: u32,
}

/// What the head found at each pick, and what it needs on the way back.
#[derive(Default)]
pub(crate) struct HeadState {
    pub(super) hidden: Vec<f32>,
    pub(super) normed: Vec<f32>,
    pub(super) scales: Vec<f32>,
    /// Probabilities of every chunk, when they were small enough to keep.
    kept: Vec<f32>,
    logits: Vec<f32>,
    pub(super) dnormed: Vec<f32>,
    pub(super) dhidden: Vec<f32>,
    pub(crate) logprobs: Vec<f32>,
    pub(crate) entropies: Vec<f32>,
}

impl Decoder {
    /// Log-probs of the picks' targets and entropies of their distributions under `logits / temperature`, from the
    /// body's output `x`.
    pub(crate) fn score(
        &self,
        x: &[f32],
        picks: &[Pick],
        temperature: f32,
        keep: bool,
        parallel: bool,
        s: &mut HeadState,
    ) {
        let (d, vocab) = (self.config.hidden_size, self.config.vocab_size);
        self.norm_picks(x, picks, s);
        for out in [&mut s.logprobs, &mut s.entropies, &mut s.kept] {
            out.clear();
        }
        let keep = keep && picks.len() * vocab <= KEEP;
        for (picks, normed) in chunks(picks, &s.normed, d, vocab) {
            self.head.forward(normed, picks.len(), parallel, &mut s.logits);
            for (pick, row) in picks.iter().zip(s.logits.chunks_exact_mut(vocab)) {
                let target = row[pick.target as usize] / temperature;
                let sums = distribution(row, 1.0 / temperature);
                s.logprobs.push(target - sums.log_sum);
                s.entropies.push(sums.entropy);
            }
            if keep {
                s.kept.extend_from_slice(&s.logits);
            }
        }
    }

    /// Gradient for `x` (overwritten, zero at rows without a pick) and for the head's and the norm's weights (added), of
    /// `Σ dlogprobs·logprob + dentropies·entropy`. Picks are those of the last [`Decoder::score`].
    #[expect(clippy::too_many_arguments, reason = "each is a buffer with an owner of its own")]
    pub(crate) fn score_backward(
        &self,
        transposes: &Transposes,
        picks: &[Pick],
        (dlogprobs, dentropies): (&[f32], &[f32]),
        temperature: f32,
        dx: &mut [f32],
        grads: &mut [Vec<f32>],
        s: &mut HeadState,
        scratch: &mut OuterScratch,
    ) {
        let (d, vocab, scale) = (self.config.hidden_size, self.config.vocab_size, 1.0 / temperature);
        s.dhidden.clear();
        let mut done = 0;
        for (picks, normed) in chunks(picks, &s.normed, d, vocab) {
            if s.kept.is_empty() {
                self.head.forward(normed, picks.len(), false, &mut s.logits);
                for row in s.logits.chunks_exact_mut(vocab) {
                    distribution(row, scale);
                }
            } else {
                s.logits.clear();
                s.logits
                    .extend_from_slice(&s.kept[done * vocab..][..picks.len() * vocab]);
            }
            for (i, (pick, row)) in picks.iter().zip(s.logits.chunks_exact_mut(vocab)).enumerate() {
                let at = done + i;
                distribution_backward(row, dlogprobs[at], dentropies[at], s.entropies[at], scale);
                row[pick.target as usize] += dlogprobs[at] * scale;
            }
            let (slot, shape) = (self.slots.head, (vocab, d));
            let learning = &transposes.learning;
            learning.outer(slot, (&s.logits, normed), shape, &mut grads[slot], scratch);
            back(&s.logits, &transposes.head, Store::Replace, &mut s.dnormed);
            s.dhidden.extend_from_slice(&s.dnormed);
            done += picks.len();
        }
        self.norm_picks_backward(picks, dx, grads, s);
    }
}

fn chunks<'a>(
    picks: &'a [Pick],
    normed: &'a [f32],
    d: usize,
    vocab: usize,
) -> impl Iterator<Item = (&'a [Pick], &'a [f32])> {
    let rows = (CHUNK / vocab).clamp(32, 1024);
    picks.chunks(rows).zip(normed.chunks(rows * d))
}
