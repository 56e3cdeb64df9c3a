//! Inference: token by token over sessions whose keys and values are kept on the host.
//!
//! A slot's logits are bit for bit the same whichever slots share its pass and however its tokens were cut into
//! passes. Scheduling, eviction and text belong to the engine that is built on this.

use std::sync::Arc;

use crate::config::ModelConfig;
use crate::decoder::Span;
use crate::decoder::forward::{Activations, Rows};
use crate::decoder::packed::{Decoder, Rotary, heads};
use crate::kernels::attention::KeyValues;
use crate::kernels::vector::rms_norm;
use crate::weights::Weights;

#[cfg(test)]
mod tests;

/// A policy packed for decoding; clones share it.
#[derive(Clone)]
pub struct DecodeModel {
    decoder: Arc<Decoder>,
}

/// Keys and values of one session, all layers.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<KeyValues>,
    len: usize,
    /// `[tokens, layers, per_token]`; empty of a dense model.
    experts: Vec<u16>,
    experts_per_position: usize,
}

/// One session's part in a pass: the tokens that follow what its cache holds.
pub struct Slot<'a> {
    pub cache: &'a mut KvCache,
    pub tokens: &'a [u32],
}

/// Which positions' logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logits {
    /// Those after each slot's last token.
    Last,
    /// Those after every token.
    All,
}

/// Logits of one slot, `[rows, vocab]`: one row under [`Logits::Last`], one per token under [`Logits::All`].
#[derive(Clone, Debug, PartialEq)]
pub struct SlotLogits {
    values: Vec<f32>,
    vocab: usize,
}

/// Why a pass was refused; no cache was touched.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DecodeError {
    #[error("slot {slot} has no tokens")]
    Empty { slot: usize },
    #[error("slot {slot}: token {token} is not below vocab_size {vocab_size}")]
    Token { slot: usize, token: u32, vocab_size: usize },
    #[error("slot {slot} would reach {len} tokens, max_position_embeddings is {max}")]
    TooLong { slot: usize, len: usize, max: usize },
    #[error("slot {slot}: its cache belongs to a model of another shape")]
    OtherModel { slot: usize },
}

impl KvCache {
    /// Tokens held.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `len` tokens; the memory stays allocated.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.layers.iter_mut().for_each(|layer| layer.truncate(len));
        self.experts.truncate(self.len * self.experts_per_position);
    }

    /// The experts that each token held went through, `[tokens, layers, per_token]`; empty of a dense model.
    pub fn experts(&self) -> &[u16] {
        &self.experts
    }

    /// Holds nothing any more.
    pub fn clear(&mut self) {
        self.truncate(0);
    }

    /// Bytes allocated, which may exceed `len · kv_bytes_per_token`.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(KeyValues::bytes).sum()
    }
}

impl SlotLogits {
    /// Logits after the slot's last token, `[vocab]`.
    pub fn last(&self) -> &[f32] {
        self.row(self.rows() - 1)
    }

    /// Row `index`, `[vocab]`.
    pub fn row(&self, index: usize) -> &[f32] {
        &self.values[index * self.vocab..][..self.vocab]
    }

    pub fn rows(&self) -> usize {
        self.values.len() / self.vocab
    }
}

impl DecodeModel {
    /// Packs `weights`; the cost is one copy of them.
    pub fn new(weights: &Weights) -> Self {
        Self {
            decoder: Arc::new(Decoder::new(weights)),
        }
    }

    pub fn config(&self) -> &ModelConfig {
        &self.decoder.config
    }

    /// An empty cache for a session with this model.
    pub fn new_cache(&self) -> KvCache {
        let layers = vec![KeyValues::new(self.decoder.heads()); self.decoder.layers.len()];
        KvCache {
            layers,
            len: 0,
            experts: Vec::new(),
            experts_per_position: self.decoder.config.experts_per_position(),
        }
    }

    /// Runs every slot's tokens, appends them to its cache, and gives the wanted logits slot by slot.
    ///
    /// # Errors
    /// [`DecodeError`] names the slot.
    pub fn forward(&self, slots: &mut [Slot<'_>], want: Logits) -> Result<Vec<SlotLogits>, DecodeError> {
        self.check(slots)?;
        let decoder = &*self.decoder;
        let (mut spans, mut positions) = (Vec::with_capacity(slots.len()), Vec::new());
        for slot in slots.iter() {
            spans.push(Span {
                start: positions.len(),
                rows: slot.tokens.len(),
            });
            positions.extend(slot.cache.len..slot.cache.len + slot.tokens.len());
        }
        let rotary = Rotary::new(&decoder.config, positions.iter().copied());
        let angles: Vec<usize> = (0..positions.len()).collect();
        let rows = Rows {
            spans: &spans,
            rotary: &rotary,
            angles: &angles,
            experts: &[],
            parallel: true,
        };
        let (mut x, mut experts) = (Vec::new(), Vec::new());
        decoder.embed(slots.iter().flat_map(|slot| slot.tokens).copied(), &mut x);
        let mut activations = Activations::default();
        for index in 0..decoder.layers.len() {
            let mut stores: Vec<&mut KeyValues> = slots.iter_mut().map(|slot| &mut slot.cache.layers[index]).collect();
            decoder.layer(index, &rows, &mut stores, &mut x, &mut activations);
            decoder.note_experts(index, &activations, positions.len(), &mut experts);
        }
        let per_position = decoder.config.experts_per_position();
        for (slot, span) in slots.iter_mut().zip(&spans) {
            slot.cache.len += slot.tokens.len();
            slot.cache
                .experts
                .extend_from_slice(&experts[span.floats(per_position)]);
        }
        Ok(self.head(&x, &spans, want))
    }

    fn head(&self, x: &[f32], spans: &[Span], want: Logits) -> Vec<SlotLogits> {
        let config = &self.decoder.config;
        let (d, vocab) = (config.hidden_size, config.vocab_size);
        let mut chosen = Vec::new();
        let wanted = |span: &Span| match want {
            Logits::Last => 1,
            Logits::All => span.rows,
        };
        for span in spans {
            let end = (span.start + span.rows) * d;
            chosen.extend_from_slice(&x[end - wanted(span) * d..end]);
        }
        let count = chosen.len() / d;
        let (mut scales, mut normed, mut logits) = (vec![0.0; count], vec![0.0; chosen.len()], Vec::new());
        rms_norm(
            &chosen,
            &self.decoder.final_norm,
            config.rms_norm_eps as f32,
            &mut scales,
            &mut normed,
        );
        self.decoder.head.forward(&normed, count, true, &mut logits);
        let mut rest = logits.as_slice();
        let cut = |span: &Span| {
            let values;
            (values, rest) = rest.split_at(wanted(span) * vocab);
            SlotLogits {
                values: values.to_vec(),
                vocab,
            }
        };
        spans.iter().map(cut).collect()
    }

    fn check(&self, slots: &[Slot<'_>]) -> Result<(), DecodeError> {
        let config = &self.decoder.config;
        for (slot, s) in slots.iter().enumerate() {
            let len = s.cache.len + s.tokens.len();
            if s.tokens.is_empty() {
                return Err(DecodeError::Empty { slot });
            }
            if let Some(&token) = s.tokens.iter().find(|t| **t as usize >= config.vocab_size) {
                return Err(DecodeError::Token {
                    slot,
                    token,
                    vocab_size: config.vocab_size,
                });
            }
            if len > config.max_position_embeddings {
                return Err(DecodeError::TooLong {
                    slot,
                    len,
                    max: config.max_position_embeddings,
                });
            }
            let fits = s.cache.layers.iter().all(|layer| layer.heads() == heads(config));
            if s.cache.layers.len() != config.num_hidden_layers || !fits {
                return Err(DecodeError::OtherModel { slot });
            }
        }
        Ok(())
    }
}
