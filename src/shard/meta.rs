//! Key-value metadata of a shard: schema version, run, producer, and what its token ids mean.

use parquet::file::metadata::KeyValue;

use super::ShardError;

/// The schema that this release writes, and the newest that it reads.
pub const SCHEMA_VERSION: u32 = 1;

const VERSION_KEY: &str = "lego.schema_version";

/// Who wrote a shard, and under which tokenizer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardMeta {
    /// The run.
    pub run_id: String,
    /// Program and version.
    pub producer: String,
    /// SHA-256 of tokenizer.json; empty where the engine gives no ids.
    pub tokenizer_sha256: String,
    /// SHA-256 of the chat template.
    pub template_sha256: String,
    /// Size of the vocabulary; 0 where the engine gives no ids.
    pub vocab_size: u32,
}

impl ShardMeta {
    /// As stored in the file.
    pub(super) fn to_key_values(&self) -> Vec<KeyValue> {
        [
            (VERSION_KEY, SCHEMA_VERSION.to_string()),
            ("lego.run_id", self.run_id.clone()),
            ("lego.producer", self.producer.clone()),
            ("lego.tokenizer_sha256", self.tokenizer_sha256.clone()),
            ("lego.template_sha256", self.template_sha256.clone()),
            ("lego.vocab_size", self.vocab_size.to_string()),
        ]
        .map(|(key, value)| KeyValue::new(key.to_owned(), value))
        .to_vec()
    }

    /// As found in a file; refuses foreign files and those of a newer schema.
    pub(super) fn of(file: &str, pairs: Option<&Vec<KeyValue>>) -> Result<Self, ShardError> {
        let find = |key: &str| {
            pairs
                .into_iter()
                .flatten()
                .find(|pair| pair.key == key)
                .and_then(|pair| pair.value.clone())
        };
        let Some(version) = find(VERSION_KEY) else {
            return Err(ShardError::damaged(
                file,
                &format!("its metadata has no `{VERSION_KEY}`, so another program wrote it"),
            ));
        };
        let found: u32 = version.parse().ok().filter(|&version| version > 0).ok_or_else(|| {
            ShardError::damaged(
                file,
                &format!("`{VERSION_KEY}` is `{version}`, expected a whole number from 1"),
            )
        })?;
        if found > SCHEMA_VERSION {
            return Err(ShardError::Newer {
                file: file.to_owned(),
                found,
                newest: SCHEMA_VERSION,
            });
        }
        let vocab = find("lego.vocab_size").unwrap_or_default();
        Ok(Self {
            run_id: find("lego.run_id").unwrap_or_default(),
            producer: find("lego.producer").unwrap_or_default(),
            tokenizer_sha256: find("lego.tokenizer_sha256").unwrap_or_default(),
            template_sha256: find("lego.template_sha256").unwrap_or_default(),
            vocab_size: vocab.parse().map_err(|_| {
                ShardError::damaged(
                    file,
                    &format!("`lego.vocab_size` is `{vocab}`, expected a whole number"),
                )
            })?,
        })
    }

    /// Whether token ids of `self` (read from `file`) mean what they mean to `policy`.
    pub fn check(&self, file: &str, policy: &Self) -> Result<(), ShardError> {
        let pairs = [
            (
                "the tokenizer's sha256",
                self.tokenizer_sha256.clone(),
                policy.tokenizer_sha256.clone(),
            ),
            (
                "the chat template's sha256",
                self.template_sha256.clone(),
                policy.template_sha256.clone(),
            ),
            (
                "the vocabulary size",
                self.vocab_size.to_string(),
                policy.vocab_size.to_string(),
            ),
        ];
        match pairs.into_iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((what, found, expected)) => Err(ShardError::Mismatch {
                file: file.to_owned(),
                what,
                found,
                expected,
            }),
        }
    }
}
