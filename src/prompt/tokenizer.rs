//! The policy's own tokenizer: text to ids and back, exactly as its tokenizer.json says.

use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::PromptError;
use super::decode::{ByteTable, DecodeStream};
use super::encode_cache::{EncodeCache, encode_plainly};
use crate::trajectory::TokenId;

/// What makes a Hugging Face folder usable beside weights and config.json.
pub const TOKENIZER_FILES: [&str; 9] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "generation_config.json",
];

/// A tokenizer and the ids that end an answer.
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
    bytes: Option<ByteTable>,
    cache: EncodeCache,
    stops: Vec<StopToken>,
    /// Ids that the policy may have, which can be more than the tokenizer names.
    id_limit: usize,
    sha256: String,
}

/// A token that ends an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopToken {
    /// Its id.
    pub id: TokenId,
    /// Its text in rendered prompts.
    pub text: String,
}

impl Tokenizer {
    /// Reads `tokenizer.json` and the ids that end an answer: `eos_token` of `tokenizer_config.json`, then
    /// `eos_token_id` of `generation_config.json` and `config.json`, where these exist.
    pub fn load(dir: &Path) -> Result<Self, PromptError> {
        let path = dir.join("tokenizer.json");
        let data = read(&path)?;
        let inner = tokenizers::Tokenizer::from_bytes(&data).map_err(|error| PromptError::Malformed {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        let stops = stop_tokens(dir, &inner)?;
        let bytes = ByteTable::of(&inner);
        let cache = EncodeCache::of(&inner);
        let config = read_json(&dir.join("config.json"))?.unwrap_or(Value::Null);
        let padded = config["vocab_size"].as_u64().unwrap_or(0) as usize;
        // The table of a byte-level tokenizer has found the highest id already.
        let named = match &bytes {
            Some(table) => table.len(),
            None => highest(&inner).map_or(0, |(id, _)| id as usize + 1),
        };
        let id_limit = padded.max(named);
        Ok(Self {
            inner,
            bytes,
            cache,
            stops,
            id_limit,
            sha256: hex_digest(&data),
        })
    }

    /// Ids of a text in which special tokens stand for themselves; nothing is added.
    pub fn encode(&self, text: &str) -> Result<Vec<TokenId>, PromptError> {
        self.cache.encode(&self.inner, text)
    }

    /// Tokens that a long text has, in pieces and only until there are more than `limit`: a little more or less than in one
    /// piece, in memory that the text's length does not matter to.
    pub fn count_up_to(&self, text: &str, limit: usize) -> Result<usize, PromptError> {
        const PIECE: usize = 64 << 10;
        let (mut count, mut rest) = (0, text);
        while !rest.is_empty() && count <= limit {
            let mut end = rest.len().min(PIECE);
            while !rest.is_char_boundary(end) {
                end += 1;
            }
            count += encode_plainly(&self.inner, &rest[..end])?.len();
            rest = &rest[end..];
        }
        Ok(count)
    }

    /// The text of ids, special tokens included. Incomplete UTF-8 becomes U+FFFD.
    pub fn decode(&self, ids: &[TokenId]) -> String {
        let mut stream = self.decode_stream();
        let mut text = String::new();
        for &id in ids {
            stream.push_onto(id, &mut text);
        }
        text.push_str(&stream.finish());
        text
    }

    /// Decodes token by token and never hands out half a character.
    pub fn decode_stream(&self) -> DecodeStream<'_> {
        DecodeStream::new(&self.inner, self.bytes.as_ref())
    }

    /// The raw bytes of one token, as the API's log-prob objects show them.
    pub fn token_bytes(&self, id: TokenId) -> Vec<u8> {
        match &self.bytes {
            Some(table) => table.bytes(id).to_vec(),
            None => self.inner.decode(&[id], false).unwrap_or_default().into_bytes(),
        }
    }

    /// The tokens that end an answer, the template's own first.
    pub fn stops(&self) -> &[StopToken] {
        &self.stops
    }

    /// Their ids.
    pub fn stop_ids(&self) -> Vec<TokenId> {
        self.stops.iter().map(|stop| stop.id).collect()
    }

    /// Whether this token ends an answer.
    pub fn is_stop(&self, id: TokenId) -> bool {
        self.stops.iter().any(|stop| stop.id == id)
    }

    /// Number of ids, added tokens included.
    pub fn vocab_size(&self) -> usize {
        self.inner.get_vocab_size(true)
    }

    /// One more than the highest id that the policy may sample.
    pub fn id_limit(&self) -> usize {
        self.id_limit
    }

    /// The highest id, with its text; none of an empty vocabulary.
    pub fn highest(&self) -> Option<(TokenId, String)> {
        highest(&self.inner)
    }

    /// SHA-256 of tokenizer.json, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer")
            .field("sha256", &self.sha256)
            .field("stops", &self.stops)
            .finish_non_exhaustive()
    }
}

fn highest(inner: &tokenizers::Tokenizer) -> Option<(TokenId, String)> {
    inner.get_vocab(true).into_iter().map(|(text, id)| (id, text)).max()
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, PromptError> {
    std::fs::read(path).map_err(|source| PromptError::Read {
        path: path.to_owned(),
        source,
    })
}

/// A JSON object from a file; `None` if the file does not exist.
pub(super) fn read_json(path: &Path) -> Result<Option<Value>, PromptError> {
    if !path.exists() {
        return Ok(None);
    }
    serde_json::from_slice(&read(path)?)
        .map(Some)
        .map_err(|error| PromptError::Malformed {
            path: path.to_owned(),
            reason: error.to_string(),
        })
}

pub(super) fn hex_digest(data: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(data)
        .iter()
        .fold(String::with_capacity(64), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// A special token of `tokenizer_config.json`: a string, or an object with `content`.
pub(super) fn token_text(config: &Value, key: &str) -> Option<String> {
    let value = &config[key];
    value.as_str().or_else(|| value["content"].as_str()).map(str::to_owned)
}

fn stop_tokens(dir: &Path, inner: &tokenizers::Tokenizer) -> Result<Vec<StopToken>, PromptError> {
    let mut stops: Vec<StopToken> = Vec::new();
    let mut push = |id: TokenId, text: Option<String>| {
        if let Some(text) = text
            && !stops.iter().any(|stop| stop.id == id)
        {
            stops.push(StopToken { id, text });
        }
    };
    let path = dir.join("tokenizer_config.json");
    if let Some(text) = read_json(&path)?.and_then(|config| token_text(&config, "eos_token")) {
        let id = inner.token_to_id(&text).ok_or_else(|| PromptError::Malformed {
            path,
            reason: format!("`eos_token` is `{text}`, which tokenizer.json does not have"),
        })?;
        push(id, Some(text));
    }
    for name in ["generation_config.json", "config.json"] {
        let Some(config) = read_json(&dir.join(name))? else {
            continue;
        };
        let ids = match &config["eos_token_id"] {
            Value::Array(ids) => ids.clone(),
            single => vec![single.clone()],
        };
        for id in ids.iter().filter_map(Value::as_u64) {
            push(id as TokenId, inner.id_to_token(id as TokenId));
        }
    }
    if stops.is_empty() {
        Err(PromptError::NoStopToken(dir.to_owned()))
    } else {
        Ok(stops)
    }
}
