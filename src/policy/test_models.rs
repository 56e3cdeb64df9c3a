//! Small models and rows for the tests of this package: every family, with odd sizes.

use std::collections::BTreeMap;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use crate::config::{Family, ModelConfig, Moe};
use crate::row::{Row, Sequence};
use crate::weights::{HostTensor, Weights};

/// Two layers, 37 tokens; sizes that are no multiple of any tile.
pub(crate) fn config(family: Family) -> ModelConfig {
    ModelConfig {
        family,
        hidden_size: 20,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: if family == Family::Llama { 6 } else { 16 },
        intermediate_size: 28,
        tie_word_embeddings: !matches!(family, Family::Qwen3 | Family::Mixtral),
        attention_bias: family == Family::Qwen2,
        qk_norm: matches!(family, Family::Qwen3 | Family::Qwen3Moe),
        moe: matches!(family, Family::Qwen3Moe | Family::Mixtral).then(|| Moe {
            experts: 5,
            per_token: 2,
            intermediate_size: if family == Family::Mixtral { 28 } else { 12 },
            norm_topk_prob: family == Family::Mixtral,
            dense_layers: Vec::new(),
        }),
        max_position_embeddings: 256,
        ..ModelConfig::tiny(37)
    }
}

pub(crate) const FAMILIES: [Family; 3] = [Family::Llama, Family::Qwen2, Family::Qwen3];
pub(crate) const WITH_EXPERTS: [Family; 2] = [Family::Qwen3Moe, Family::Mixtral];

/// Weights large enough that every part matters: matrices ±0.5, gains near 1, biases not 0.
pub(crate) fn weights(config: ModelConfig, seed: u64) -> Weights {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let fresh = Weights::init(config.clone(), 0).unwrap();
    let tensors = fresh.iter().map(|(name, tensor)| {
        let centre = if name.contains("norm") { 1.0 } else { 0.0 };
        let data = tensor
            .data
            .iter()
            .map(|_| centre + rng.random_range(-0.5..0.5))
            .collect();
        (
            name.to_owned(),
            HostTensor {
                shape: tensor.shape.clone(),
                data,
            },
        )
    });
    Weights::from_tensors(config, tensors.collect::<BTreeMap<_, _>>()).unwrap()
}

/// Owned numbers of a row.
#[derive(Clone)]
pub(crate) struct OwnedRow {
    pub(crate) tokens: Vec<u32>,
    pub(crate) start: usize,
    pub(crate) mask: Vec<u8>,
    pub(crate) old: Vec<f32>,
    pub(crate) advantages: Vec<f32>,
    pub(crate) coefficients: Vec<f32>,
    pub(crate) reference: Vec<f32>,
}

impl OwnedRow {
    pub(crate) fn row(&self) -> Row<'_> {
        Row {
            tokens: &self.tokens,
            loss_start: self.start,
            mask: &self.mask,
            old_logprobs: &self.old,
            advantages: &self.advantages,
            coefficients: &self.coefficients,
            importance: &[],
            ref_logprobs: Some(&self.reference),
            experts: &[],
        }
    }

    pub(crate) fn sequence(&self) -> Sequence<'_> {
        self.row().sequence()
    }
}

/// Rows of different lengths with masks that have holes; advantage and coefficient are one number a row.
pub(crate) fn rows(count: usize, vocab: usize, seed: u64) -> Vec<OwnedRow> {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let row = |i: usize| {
        let (start, response) = (1 + i % 4, 3 + rng.random_range(0..30));
        let len = start + response;
        let advantage = if i.is_multiple_of(2) { 1.0 } else { -0.7 };
        let mut draw = |n: usize, low: f32, high: f32| (0..n).map(|_| rng.random_range(low..high)).collect::<Vec<_>>();
        let old = draw(response, -4.5, -3.0);
        let reference = draw(response, -4.5, -3.0);
        OwnedRow {
            tokens: draw(len, 0.0, vocab as f32).into_iter().map(|t| t as u32).collect(),
            start,
            mask: draw(response, 0.0, 4.0)
                .into_iter()
                .map(|m| u8::from(m > 1.0))
                .collect(),
            old,
            advantages: vec![advantage; response],
            coefficients: vec![1.0 / (3.0 + i as f32); response],
            reference,
        }
    };
    (0..count).map(row).collect()
}
