//! One generation inside the scheduler: its tokens, its cache, its sampler, its reader.

use lego_policy::{KvCache, Sampler, Slot};

use super::outbox::Outbox;
use super::shared::Admission;
use crate::inference::{EngineUsage, Finish};
use crate::trajectory::{Experts, FinishReason, PolicyVersion, RoutedRows, SessionKey, TokenId};

/// A generation that waits or runs.
pub(super) struct Sequence {
    pub(super) id: String,
    pub(super) session: SessionKey,
    /// The prompt, then what was sampled.
    pub(super) tokens: Vec<TokenId>,
    pub(super) prompt_len: usize,
    /// Holds `tokens[..cache.len()]`; empty while it waits.
    pub(super) cache: KvCache,
    /// Prompt tokens that a cache held when it first ran; `None` before.
    pub(super) cached: Option<usize>,
    /// Tokens to sample at most.
    pub(super) budget: usize,
    pub(super) stop: Vec<TokenId>,
    /// The first position whose experts are to be told, and what their records look like; `None`: they are not.
    pub(super) routing: Option<(usize, Experts)>,
    pub(super) sampler: Sampler,
    pub(super) outbox: Outbox,
    /// Held for its drop.
    pub(super) _place: Admission,
}

impl Sequence {
    /// Tokens to feed before the next one can be sampled: one while it decodes.
    pub(super) fn need(&self) -> usize {
        self.tokens.len() - self.cache.len()
    }

    /// Whether it has ever been in the batch; it may wait again since.
    pub(super) fn has_begun(&self) -> bool {
        self.cached.is_some()
    }

    fn sampled(&self) -> usize {
        self.tokens.len() - self.prompt_len
    }

    /// The next `chunk` tokens, for a pass of the model.
    pub(super) fn slot(&mut self, chunk: usize) -> Slot<'_> {
        let fed = self.cache.len();
        Slot {
            cache: &mut self.cache,
            tokens: &self.tokens[fed..fed + chunk],
        }
    }

    /// Samples one token from `logits`.
    ///
    /// # Errors
    /// When the logits are not numbers: the weights are broken.
    pub(super) fn sample(&mut self, logits: &[f32], version: PolicyVersion) -> Result<Option<FinishReason>, String> {
        let sampled = self.sampler.sample(logits);
        if !sampled.logprob.is_finite() {
            return Err(format!(
                "log-prob {} of token {} under weights {version}",
                sampled.logprob, sampled.token
            ));
        }
        self.tokens.push(sampled.token);
        self.outbox.push(sampled.token, sampled.logprob, version);
        Ok(if self.stop.contains(&sampled.token) {
            Some(FinishReason::Stop)
        } else if self.sampled() >= self.budget {
            Some(FinishReason::Length)
        } else {
            None
        })
    }

    /// Tells the reader that it has ended; what its cache holds is handed back.
    pub(super) fn end(self, reason: FinishReason, error: Option<String>) -> (SessionKey, Vec<TokenId>, KvCache) {
        let usage = EngineUsage {
            prompt: self.prompt_len as u32,
            cached: self.cached.unwrap_or(0) as u32,
            completion: self.sampled() as u32,
        };
        let routing = self
            .routing
            .and_then(|(from, experts)| record(&self.cache, from, experts));
        self.outbox.finish(Finish {
            reason,
            usage,
            error,
            routing,
            rejected: false,
        });
        let mut tokens = self.tokens;
        tokens.truncate(self.cache.len());
        (self.session, tokens, self.cache)
    }
}

/// The experts of the positions that a cache holds, from `from` on; none if there is none.
fn record(cache: &KvCache, from: usize, experts: Experts) -> Option<RoutedRows> {
    let width = usize::from(experts.layers) * usize::from(experts.top_k);
    let indices = cache
        .experts()
        .get(from * width..)
        .filter(|indices| !indices.is_empty())?;
    let rows = if experts.index_bytes() == 1 {
        indices.iter().map(|index| *index as u8).collect()
    } else {
        indices.iter().flat_map(|index| index.to_le_bytes()).collect()
    };
    Some(RoutedRows {
        start: from as u32,
        experts,
        rows,
    })
}
