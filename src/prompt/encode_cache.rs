//! Encoding with memory: stretches between special tokens are encoded once.
//!
//! A byte-level tokenizer cuts its input at special tokens before anything else, so what lies between two
//! of them is encoded alone. The trials of a group share system prompt, tools and issue, which are long.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokenizers::DecoderWrapper;

use super::PromptError;
use crate::trajectory::TokenId;

/// Text held at most, in bytes, in each of the two generations.
const GENERATION_BYTES: usize = 8 << 20;

#[derive(Default)]
pub(super) struct EncodeCache {
    /// Special tokens at which text is cut, longest first; empty: nothing is cut and nothing remembered.
    cuts: Vec<(String, TokenId)>,
    seen: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Box<str>, Arc<[TokenId]>>,
    old: HashMap<Box<str>, Arc<[TokenId]>>,
    young_bytes: usize,
}

impl EncodeCache {
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        if !matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return Self::default();
        }
        let added = tokenizer.get_added_tokens_decoder();
        let plain =
            |token: &tokenizers::AddedToken| !(token.lstrip || token.rstrip || token.single_word || token.normalized);
        let mut cuts: Vec<(String, TokenId)> = added
            .iter()
            .filter(|(_, token)| token.special && plain(token) && !token.content.is_empty())
            // A token inside another would be cut where the tokenizer prefers the longer one.
            .filter(|(id, token)| {
                !added
                    .iter()
                    .any(|(other, longer)| other != *id && longer.content.contains(&token.content))
            })
            .map(|(&id, token)| (token.content.clone(), id))
            .collect();
        cuts.sort_by(|left, right| right.0.len().cmp(&left.0.len()).then_with(|| left.0.cmp(&right.0)));
        Self {
            cuts,
            seen: Mutex::default(),
        }
    }

    pub(super) fn encode(&self, tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<TokenId>, PromptError> {
        if self.cuts.is_empty() {
            return encode_plainly(tokenizer, text);
        }
        let mut ids = Vec::with_capacity(text.len() / 3 + 8);
        let mut rest = text;
        while let Some((at, length, id)) = self.next_cut(rest) {
            self.encode_stretch(tokenizer, &rest[..at], &mut ids)?;
            ids.push(id);
            rest = &rest[at + length..];
        }
        self.encode_stretch(tokenizer, rest, &mut ids)?;
        Ok(ids)
    }

    /// Position, length and id of the first special token.
    fn next_cut(&self, text: &str) -> Option<(usize, usize, TokenId)> {
        // Nearly all special tokens begin with `<`; only where one does not, every position is tried.
        let angled = self.cuts.iter().all(|(token, _)| token.starts_with('<'));
        let mut at = 0;
        while at < text.len() {
            if angled {
                at += text[at..].find('<')?;
            }
            let here = &text[at..];
            if let Some((token, id)) = self.cuts.iter().find(|(token, _)| here.starts_with(token.as_str())) {
                return Some((at, token.len(), *id));
            }
            at += here.chars().next().map_or(1, char::len_utf8);
        }
        None
    }

    fn encode_stretch(
        &self,
        tokenizer: &tokenizers::Tokenizer,
        text: &str,
        ids: &mut Vec<TokenId>,
    ) -> Result<(), PromptError> {
        if text.is_empty() {
            return Ok(());
        }
        if let Some(known) = self.seen.lock().unwrap_or_else(PoisonError::into_inner).get(text) {
            ids.extend_from_slice(&known);
            return Ok(());
        }
        let fresh = encode_plainly(tokenizer, text)?;
        ids.extend_from_slice(&fresh);
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .put(text, fresh.into());
        Ok(())
    }
}

impl Generations {
    fn get(&mut self, text: &str) -> Option<Arc<[TokenId]>> {
        if let Some(ids) = self.young.get(text) {
            return Some(Arc::clone(ids));
        }
        let ids = self.old.remove(text)?;
        self.put(text, Arc::clone(&ids));
        Some(ids)
    }

    fn put(&mut self, text: &str, ids: Arc<[TokenId]>) {
        if text.len() > GENERATION_BYTES / 8 {
            return;
        }
        if self.young_bytes + text.len() > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += text.len();
        self.young.insert(text.into(), ids);
    }
}

pub(super) fn encode_plainly(tokenizer: &tokenizers::Tokenizer, text: &str) -> Result<Vec<TokenId>, PromptError> {
    match tokenizer.encode_fast(text, false) {
        Ok(encoding) => Ok(encoding.get_ids().to_vec()),
        Err(error) => Err(PromptError::Encode(error.to_string())),
    }
}
