//! The shape of a policy, as Hugging Face's `config.json` states it, in both directions.
//!
//! Families: `llama` (SmolLM2 among them), `qwen2`, `qwen3`, dense. What this code cannot compute exactly (another
//! `model_type`, scaled rotary embeddings, sliding windows) is refused, never approximated.

use serde_json::{Map, Value, json};

#[cfg(test)]
mod tests;

/// Architecture family: `model_type` of `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama and everything that calls itself so (SmolLM2).
    Llama,
    /// Qwen2 and 2.5: biases on q, k, v.
    Qwen2,
    /// Qwen3, dense: RMS norm on each head of q and k.
    Qwen3,
}

impl Family {
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Llama => ("llama", "LlamaForCausalLM"),
            Self::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Self::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
        }
    }
}

/// Element type of the weights on disk; in memory they are f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    F32,
    Bf16,
    F16,
}

impl StoredType {
    fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}

/// Everything that fixes a decoder's computation and its tensors' shapes. Sizes are counts of floats.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    pub family: Family,
    pub hidden_size: usize,
    pub num_hidden_layers: usize,
    pub num_attention_heads: usize,
    pub num_key_value_heads: usize,
    pub head_dim: usize,
    pub intermediate_size: usize,
    pub vocab_size: usize,
    pub rope_theta: f64,
    pub rms_norm_eps: f64,
    pub tie_word_embeddings: bool,
    /// Biases on q, k and v (and on o for the families other than Qwen2).
    pub attention_bias: bool,
    /// RMS norm on each head of q and k before the rotation.
    pub qk_norm: bool,
    pub max_position_embeddings: usize,
    pub bos_token_id: Option<u32>,
    pub eos_token_ids: Vec<u32>,
    pub dtype: StoredType,
}

/// Why a `config.json` is not usable.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("config.json is not a JSON object: {0}")]
    Syntax(String),
    #[error("config.json: `{key}` is missing")]
    Missing { key: &'static str },
    #[error("config.json: `{key}` should be {expected}, found {found}")]
    Type {
        key: &'static str,
        expected: &'static str,
        found: String,
    },
    #[error("config.json: `{key}` = {found} is not supported (supported: {supported})")]
    Unsupported {
        key: &'static str,
        found: String,
        supported: &'static str,
    },
    #[error("config.json: `{key}` {problem}")]
    Inconsistent { key: &'static str, problem: String },
}

/// Sizes far above those of every model that there is: what is larger is a slip, and would exhaust the memory.
const WIDTH: usize = 1 << 24;
const DEPTH: usize = 1 << 12;

impl ModelConfig {
    /// Reads the text of a `config.json`. Keys that do not change the computation are passed over.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let object = value
            .as_object()
            .ok_or_else(|| ConfigError::Syntax("found another value".to_owned()))?;
        let keys = Keys(object);
        let family = match keys.text("model_type")? {
            Some("llama") => Family::Llama,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some(other) => {
                return Err(unsupported("model_type", &json!(other), "llama, qwen2, qwen3"));
            }
            None => return Err(ConfigError::Missing { key: "model_type" }),
        };
        let hidden_size = keys.size("hidden_size")?;
        let num_attention_heads = keys.size("num_attention_heads")?;
        let config = Self {
            family,
            hidden_size,
            num_hidden_layers: keys.size("num_hidden_layers")?,
            num_attention_heads,
            num_key_value_heads: keys.size_or("num_key_value_heads", num_attention_heads)?,
            head_dim: keys.size_or("head_dim", hidden_size / num_attention_heads.max(1))?,
            intermediate_size: keys.size("intermediate_size")?,
            vocab_size: keys.size("vocab_size")?,
            rope_theta: keys.rope_theta()?,
            rms_norm_eps: keys.float_or("rms_norm_eps", 1e-6)?,
            tie_word_embeddings: keys.flag_or("tie_word_embeddings", false)?,
            attention_bias: keys.flag_or("attention_bias", family == Family::Qwen2)?,
            qk_norm: family == Family::Qwen3,
            max_position_embeddings: keys.size_or("max_position_embeddings", 2048)?,
            bos_token_id: keys.token_ids("bos_token_id")?.first().copied(),
            eos_token_ids: keys.token_ids("eos_token_id")?,
            dtype: keys.dtype()?,
        };
        keys.refuse_unsupported()?;
        config.validate()?;
        Ok(config)
    }

    /// A decoder of 853k parameters at 512 tokens: 4 layers, width 128, 4 query and 2 key heads, tied.
    pub fn tiny(vocab_size: usize) -> Self {
        Self {
            family: Family::Llama,
            hidden_size: 128,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 2,
            head_dim: 32,
            intermediate_size: 384,
            vocab_size,
            rope_theta: 10_000.0,
            rms_norm_eps: 1e-5,
            tie_word_embeddings: true,
            attention_bias: false,
            qk_norm: false,
            max_position_embeddings: 4096,
            bos_token_id: None,
            eos_token_ids: Vec::new(),
            dtype: StoredType::F32,
        }
    }

    /// The text of a `config.json` that Hugging Face transformers reads as this model.
    pub fn to_json(&self) -> String {
        let (model_type, architecture) = self.family.names();
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        let value = json!({
            "architectures": [architecture],
            "model_type": model_type,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "num_key_value_heads": self.num_key_value_heads,
            "head_dim": self.head_dim,
            "intermediate_size": self.intermediate_size,
            "vocab_size": self.vocab_size,
            "hidden_act": "silu",
            "rope_theta": self.rope_theta,
            "rms_norm_eps": self.rms_norm_eps,
            "tie_word_embeddings": self.tie_word_embeddings,
            "attention_bias": self.attention_bias,
            "max_position_embeddings": self.max_position_embeddings,
            "bos_token_id": self.bos_token_id,
            "eos_token_id": eos,
            "torch_dtype": self.dtype.name(),
        });
        format!("{value:#}\n")
    }

    /// Checks what the keys say together.
    ///
    /// # Errors
    /// The first key that cannot be, with the reason.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wrong = |key, problem: String| Err(ConfigError::Inconsistent { key, problem });
        for (key, size, most) in [
            ("hidden_size", self.hidden_size, WIDTH),
            ("num_hidden_layers", self.num_hidden_layers, DEPTH),
            ("num_attention_heads", self.num_attention_heads, WIDTH),
            ("num_key_value_heads", self.num_key_value_heads, WIDTH),
            ("head_dim", self.head_dim, WIDTH),
            ("intermediate_size", self.intermediate_size, WIDTH),
            ("vocab_size", self.vocab_size, WIDTH),
            ("max_position_embeddings", self.max_position_embeddings, 1 << 30),
        ] {
            if size == 0 {
                return wrong(key, "is 0".to_owned());
            }
            if size > most {
                return wrong(key, format!("= {size} is more than {most}"));
            }
        }
        if !self.num_attention_heads.is_multiple_of(self.num_key_value_heads) {
            let heads = self.num_attention_heads;
            return wrong(
                "num_key_value_heads",
                format!("= {} does not divide {heads}", self.num_key_value_heads),
            );
        }
        if !self.head_dim.is_multiple_of(2) {
            return wrong(
                "head_dim",
                format!("= {} is odd; rotary embedding needs pairs", self.head_dim),
            );
        }
        if !(self.rope_theta > 0.0 && self.rope_theta.is_finite()) {
            return wrong("rope_theta", format!("= {} is not a positive number", self.rope_theta));
        }
        if !(self.rms_norm_eps >= 0.0 && self.rms_norm_eps.is_finite()) {
            return wrong(
                "rms_norm_eps",
                format!("= {} is not a number of at least 0", self.rms_norm_eps),
            );
        }
        Ok(())
    }

    /// Number of trained floats.
    pub fn parameter_count(&self) -> usize {
        crate::layout::parameters(self)
            .iter()
            .map(|p| p.shape.iter().product::<usize>())
            .sum()
    }

    /// Bytes of keys and values that one token takes in a cache, over all layers.
    pub fn kv_bytes_per_token(&self) -> usize {
        let padded = self.head_dim.next_multiple_of(16);
        self.num_hidden_layers * self.num_key_value_heads * (self.head_dim + padded) * size_of::<f32>()
    }

    /// Whether the output projection of attention has a bias.
    pub(crate) fn output_bias(&self) -> bool {
        self.attention_bias && self.family != Family::Qwen2
    }
}

fn unsupported(key: &'static str, found: &Value, supported: &'static str) -> ConfigError {
    ConfigError::Unsupported {
        key,
        found: found.to_string(),
        supported,
    }
}

/// Typed access to the object; a JSON null counts as absent, as it does for transformers.
struct Keys<'a>(&'a Map<String, Value>);

impl<'a> Keys<'a> {
    fn value(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        key: &'static str,
        expected: &'static str,
        get: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let found = || ConfigError::Type {
            key,
            expected,
            found: value.to_string(),
        };
        get(value).map(Some).ok_or_else(found)
    }

    fn text(&self, key: &'static str) -> Result<Option<&'a str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    fn size(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.optional_size(key)?.ok_or(ConfigError::Missing { key })
    }

    fn size_or(&self, key: &'static str, default: usize) -> Result<usize, ConfigError> {
        Ok(self.optional_size(key)?.unwrap_or(default))
    }

    fn optional_size(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        self.read(key, "a whole number below 2^32", |v| {
            v.as_u64().and_then(|n| u32::try_from(n).ok())
        })
        .map(|size| size.map(|n| n as usize))
    }

    fn float_or(&self, key: &'static str, default: f64) -> Result<f64, ConfigError> {
        Ok(self.read(key, "a number", Value::as_f64)?.unwrap_or(default))
    }

    fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    fn token_ids(&self, key: &'static str) -> Result<Vec<u32>, ConfigError> {
        let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let ids = self.read(key, "a token id or a list of them", |value| match value {
            Value::Array(many) => many.iter().map(id).collect(),
            one => id(one).map(|one| vec![one]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    fn dtype(&self) -> Result<StoredType, ConfigError> {
        // transformers 5 writes `dtype`, earlier ones `torch_dtype`.
        let key = if self.value("dtype").is_some() {
            "dtype"
        } else {
            "torch_dtype"
        };
        match self.text(key)? {
            None | Some("float32") => Ok(StoredType::F32),
            Some("bfloat16") => Ok(StoredType::Bf16),
            Some("float16") => Ok(StoredType::F16),
            Some(other) => Err(unsupported(key, &json!(other), "float32, bfloat16, float16")),
        }
    }

    /// `rope_theta` at the top, or inside `rope_parameters` as transformers 5 writes it.
    fn rope_theta(&self) -> Result<f64, ConfigError> {
        let nested = self
            .value("rope_parameters")
            .and_then(|p| p.get("rope_theta"))
            .and_then(Value::as_f64);
        self.float_or("rope_theta", nested.unwrap_or(10_000.0))
    }

    fn refuse_unsupported(&self) -> Result<(), ConfigError> {
        for key in ["rope_scaling", "rope_parameters"] {
            let kind = |v: &Value| v.get("rope_type").or_else(|| v.get("type")).cloned();
            if let Some(value) = self.value(key)
                && kind(value).is_none_or(|kind| kind != "default")
            {
                return Err(unsupported(key, value, "none, or rope_type default"));
            }
        }
        if self.flag_or("use_sliding_window", false)? {
            return Err(unsupported("use_sliding_window", &json!(true), "false"));
        }
        if self.flag_or("mlp_bias", false)? {
            return Err(unsupported("mlp_bias", &json!(true), "false"));
        }
        match self.text("hidden_act")? {
            None | Some("silu" | "swish") => Ok(()),
            Some(other) => Err(unsupported("hidden_act", &json!(other), "silu")),
        }
    }
}
