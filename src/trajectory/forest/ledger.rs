//! The loss ledger: every token that the engine sampled stands in exactly one account.

use std::collections::BTreeMap;

/// Sampled tokens by what became of them (proxy.md §6).
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Ledger {
    /// In a segment with mask 1.
    pub trained: u64,
    /// In a segment, but masked; by reason.
    pub masked: BTreeMap<String, u64>,
    /// In no segment; by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Of conversations that are not to be trained.
    pub side_conversation: u64,
    /// Of generations that were aborted or failed.
    pub aborted: u64,
    /// Of answers sampled again for the same prompt, another of which is kept.
    pub duplicate: u64,
}

impl Ledger {
    /// The reason under which answers stand that the agent asked to replace.
    pub const ROLLED_BACK: &str = "rolled_back";

    /// The reason under which answers of an API stand that gives no token ids.
    pub const NO_TOKEN_IDS: &str = "no_token_ids";

    /// The reason under which answers stand whose client had left before their end, and did not come back for it.
    pub const UNSEEN: &str = "unseen";

    /// All accounts together: what the engine's own usage must add up to.
    pub fn total(&self) -> u64 {
        self.trained
            + self.masked.values().sum::<u64>()
            + self.dropped.values().sum::<u64>()
            + self.side_conversation
            + self.aborted
            + self.duplicate
    }

    /// Moves everything trained to `dropped` under this reason: the episode will not be trained.
    pub fn drop_trained(&mut self, reason: &str) {
        let moved = std::mem::take(&mut self.trained);
        *self.dropped.entry(reason.to_owned()).or_default() += moved;
    }

    /// Adds another session's accounts.
    pub fn add(&mut self, other: &Self) {
        self.trained += other.trained;
        self.side_conversation += other.side_conversation;
        self.aborted += other.aborted;
        self.duplicate += other.duplicate;
        for (mine, theirs) in [(&mut self.masked, &other.masked), (&mut self.dropped, &other.dropped)] {
            for (reason, tokens) in theirs {
                *mine.entry(reason.clone()).or_default() += tokens;
            }
        }
    }
}
