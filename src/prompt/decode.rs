//! Ids to text, one at a time, without ever cutting a character in two.

use std::collections::HashMap;

use tokenizers::DecoderWrapper;

use crate::trajectory::TokenId;

/// The bytes of every token of a byte-level tokenizer.
pub(super) struct ByteTable {
    bytes: Vec<u8>,
    /// Token `id` holds `bytes[ends[id - 1]..ends[id]]`.
    ends: Vec<u32>,
}

impl ByteTable {
    /// The table, if the tokenizer decodes by plain concatenation of bytes.
    pub(super) fn of(tokenizer: &tokenizers::Tokenizer) -> Option<Self> {
        if !matches!(tokenizer.get_decoder(), Some(DecoderWrapper::ByteLevel(_))) {
            return None;
        }
        let alphabet = byte_alphabet();
        let added = tokenizer.get_added_tokens_decoder();
        let last = tokenizer.get_vocab(true).into_values().max()?;
        let mut table = Self {
            bytes: Vec::new(),
            ends: Vec::with_capacity(last as usize + 1),
        };
        for id in 0..=last {
            if let Some(token) = added.get(&id) {
                table.bytes.extend_from_slice(token.content.as_bytes());
            } else if let Some(token) = tokenizer.id_to_token(id) {
                match token
                    .chars()
                    .map(|char| alphabet.get(&char).copied())
                    .collect::<Option<Vec<u8>>>()
                {
                    Some(bytes) => table.bytes.extend(bytes),
                    None => table.bytes.extend_from_slice(token.as_bytes()),
                }
            }
            table.ends.push(table.bytes.len() as u32);
        }
        Some(table)
    }

    /// One more than the highest id.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of one token; none for an id that does not exist.
    pub(super) fn bytes(&self, id: TokenId) -> &[u8] {
        let index = id as usize;
        let Some(&end) = self.ends.get(index) else { return &[] };
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.bytes[start as usize..end as usize]
    }
}

/// The printable stand-ins of byte-level BPE (GPT-2): printable Latin-1 stands for itself, every other byte
/// for U+0100 and up, in order.
fn byte_alphabet() -> HashMap<char, u8> {
    let mut next = 0x100;
    (0..=255u8)
        .filter_map(|byte| {
            let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
            let code = if printable {
                u32::from(byte)
            } else {
                next += 1;
                next - 1
            };
            char::from_u32(code).map(|char| (char, byte))
        })
        .collect()
}

/// A running decode.
pub struct DecodeStream<'a> {
    tokenizer: &'a tokenizers::Tokenizer,
    table: Option<&'a ByteTable>,
    /// Bytes that do not make a whole character yet (byte-level).
    pending: Vec<u8>,
    /// Ids since the last clean cut, and how many of them the emitted text covers (other decoders).
    window: Vec<TokenId>,
    emitted: usize,
}

impl<'a> DecodeStream<'a> {
    pub(super) fn new(tokenizer: &'a tokenizers::Tokenizer, table: Option<&'a ByteTable>) -> Self {
        Self {
            tokenizer,
            table,
            pending: Vec::new(),
            window: Vec::new(),
            emitted: 0,
        }
    }

    /// Text that this token completes; often empty in the middle of a character.
    pub fn push(&mut self, id: TokenId) -> String {
        let mut text = String::new();
        self.push_onto(id, &mut text);
        text
    }

    /// Appends to `text` what this token completes.
    pub fn push_onto(&mut self, id: TokenId, text: &mut String) {
        let Some(table) = self.table else {
            text.push_str(&self.push_windowed(id));
            return;
        };
        let bytes = table.bytes(id);
        match std::str::from_utf8(bytes) {
            Ok(whole) if self.pending.is_empty() => text.push_str(whole),
            _ => {
                self.pending.extend_from_slice(bytes);
                take_whole_characters(&mut self.pending, text);
            }
        }
    }

    /// What is left; bytes that never became a character are U+FFFD.
    pub fn finish(&mut self) -> String {
        if self.table.is_some() {
            let rest = std::mem::take(&mut self.pending);
            return String::from_utf8_lossy(&rest).into_owned();
        }
        let before = self.text(..self.emitted);
        let whole = self.text(..);
        self.window.clear();
        self.emitted = 0;
        whole.get(before.len()..).unwrap_or_default().to_owned()
    }

    /// Decoders that look at neighbours (sentence pieces): decode a short window with and without the new
    /// token, and emit the difference.
    fn push_windowed(&mut self, id: TokenId) -> String {
        let before = self.text(..self.emitted);
        self.window.push(id);
        let whole = self.text(..);
        if whole.len() <= before.len() || whole.ends_with('\u{FFFD}') {
            return String::new();
        }
        let new = whole.get(before.len()..).unwrap_or_default().to_owned();
        self.window.drain(..self.emitted);
        self.emitted = self.window.len();
        new
    }

    fn text(&self, range: impl std::slice::SliceIndex<[TokenId], Output = [TokenId]>) -> String {
        self.tokenizer.decode(&self.window[range], false).unwrap_or_default()
    }
}

/// Moves every whole character from the front of `bytes` to `text`; what cannot become one is U+FFFD.
fn take_whole_characters(bytes: &mut Vec<u8>, text: &mut String) {
    let mut at = 0;
    loop {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(rest) => {
                text.push_str(rest);
                bytes.clear();
                return;
            }
            Err(error) => {
                let valid = at + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[at..valid]));
                at = valid;
                let Some(length) = error.error_len() else {
                    bytes.drain(..at);
                    return;
                };
                text.push('\u{FFFD}');
                at += length;
            }
        }
    }
}
