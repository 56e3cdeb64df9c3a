//! Idle key-value caches, found again by the tokens that filled them.
//!
//! An entry stands for an exact token sequence under the current weights; nothing here knows the weights,
//! so `clear` is called whenever they change.

use lego_policy::KvCache;

use crate::trajectory::{SessionKey, TokenId};

/// Caches that no running generation holds.
#[derive(Default)]
pub(super) struct CachePool {
    entries: Vec<Entry>,
    clock: u64,
}

struct Entry {
    session: SessionKey,
    tokens: Vec<TokenId>,
    cache: KvCache,
    used: u64,
}

/// How far two token sequences agree.
pub(super) fn common_prefix(a: &[TokenId], b: &[TokenId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

impl CachePool {
    /// Tokens held.
    pub(super) fn tokens(&self) -> usize {
        self.entries.iter().map(|entry| entry.tokens.len()).sum()
    }

    /// How much of `wanted` the best entry holds.
    pub(super) fn longest(&self, wanted: &[TokenId]) -> usize {
        self.entries
            .iter()
            .map(|entry| common_prefix(&entry.tokens, wanted))
            .max()
            .unwrap_or(0)
    }

    /// A cache that holds as much of `wanted` as any does, and nothing else.
    ///
    /// The entry of the same session is handed over where `wanted` continues it; a fork, or another session's
    /// entry, is copied, since its owner may yet go on.
    pub(super) fn take(&mut self, session: &SessionKey, wanted: &[TokenId]) -> Option<KvCache> {
        let (index, shared) = self
            .entries
            .iter()
            .enumerate()
            .map(|(index, entry)| (index, common_prefix(&entry.tokens, wanted)))
            .max_by_key(|&(index, shared)| (shared, self.entries[index].session == *session))
            .filter(|&(_, shared)| shared > 0)?;
        let entry = &mut self.entries[index];
        if entry.session == *session && entry.tokens.len() == shared {
            return Some(self.entries.swap_remove(index).cache);
        }
        self.clock += 1;
        entry.used = self.clock;
        Some(copy_prefix(&entry.cache, shared))
    }

    /// Keeps the cache of a generation that ended. `tokens` are those that filled it.
    pub(super) fn put(&mut self, session: SessionKey, tokens: Vec<TokenId>, cache: KvCache) {
        if tokens.is_empty() {
            return;
        }
        self.entries
            .retain(|entry| entry.session != session || !tokens.starts_with(&entry.tokens));
        self.clock += 1;
        self.entries.push(Entry {
            session,
            tokens,
            cache,
            used: self.clock,
        });
    }

    /// Drops the entry that was used longest ago. `false`: there is none.
    pub(super) fn evict(&mut self) -> bool {
        let oldest = self
            .entries
            .iter()
            .enumerate()
            .min_by_key(|(_, entry)| entry.used)
            .map(|(index, _)| index);
        oldest.map(|index| self.entries.swap_remove(index)).is_some()
    }

    /// Drops everything: the weights have changed.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }
}

/// The first `length` positions of a cache.
pub(super) fn copy_prefix(cache: &KvCache, length: usize) -> KvCache {
    let mut copy = cache.clone();
    copy.truncate(length);
    copy
}
