//! A segment: one stretch of context and sampled tokens that an engine saw in this very order.

use serde::{Deserialize, Serialize};

use super::{PolicyVersion, RoutedRows, TokenId};

/// The weights that sampled response positions `start..end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionSpan {
    /// First response position.
    pub start: u32,
    /// One past the last response position.
    pub end: u32,
    /// The weights.
    pub version: PolicyVersion,
}

/// One row of a rollout shard, without the identity it shares with its episode.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Segment {
    /// What the engine saw before the first sampled token.
    pub prompt_ids: Vec<TokenId>,
    /// Sampled tokens and the context between them.
    pub response_ids: Vec<TokenId>,
    /// 1 where the policy sampled the token and it trains here; as long as `response_ids`.
    pub response_mask: Vec<u8>,
    /// Log-probs at sampling temperature, 0.0 where the mask is 0; `None` if the engine gave none.
    pub response_logprobs: Option<Vec<f32>>,
    /// Run-length over response positions; positions that the policy did not sample are not covered.
    pub weight_versions: Vec<VersionSpan>,
    /// Experts that positions went through, prompt and response counted together, in order; a position without a row is
    /// one of which the engine said nothing.
    pub routing: Vec<RoutedRows>,
    /// Whether it belongs to the agent's main conversation (against a title generator or a sub-agent).
    pub is_main_agent: bool,
}

impl Segment {
    /// Number of tokens that train here.
    pub fn trained_tokens(&self) -> usize {
        self.response_mask.iter().map(|&mask| usize::from(mask)).sum()
    }

    /// Prompt and response together.
    pub fn total_tokens(&self) -> usize {
        self.prompt_ids.len() + self.response_ids.len()
    }
}

/// Whether this can be the log-prob of a token: finite, and not above 0. A log-softmax in f32 may round to a few ulp above it.
pub fn is_logprob(value: f32) -> bool {
    value.is_finite() && value <= 1e-3
}
