//! The shape of a policy, as Hugging Face's `config.json` states it, in both directions.
//!
//! Families: `llama` (SmolLM2 among them), `qwen2`, `qwen3`, dense; `qwen3_moe` and `mixtral`. What this code cannot compute exactly (another
//! `model_type`, scaled rotary embeddings, sliding windows) is refused, never approximated.

use serde_json::{Value, json};

mod keys;
mod moe;
#[cfg(test)]
mod tests;

use keys::{Keys, unsupported};
pub use moe::Moe;

/// Architecture family: `model_type` of `config.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Llama and everything that calls itself so (SmolLM2).
    Llama,
    /// Qwen2 and 2.5: biases on q, k, v.
    Qwen2,
    /// Qwen3, dense: RMS norm on each head of q and k.
    Qwen3,
    /// Qwen3 with routed experts.
    Qwen3Moe,
    /// Mixtral: Llama with routed experts.
    Mixtral,
}

impl Family {
    /// `model_type`, and what begins the names of its classes.
    fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Llama => ("llama", "Llama"),
            Self::Qwen2 => ("qwen2", "Qwen2"),
            Self::Qwen3 => ("qwen3", "Qwen3"),
            Self::Qwen3Moe => ("qwen3_moe", "Qwen3Moe"),
            Self::Mixtral => ("mixtral", "Mixtral"),
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
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of config.json, or its kind of head"
)]
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
    pub moe: Option<Moe>,
    /// One value of each state instead of logits over the vocabulary: a critic's shape.
    pub value_head: bool,
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
    /// Reads the text of a policy's `config.json`. Keys that do not change the computation are passed over.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn from_json(text: &str) -> Result<Self, ConfigError> {
        let config = Self::read(text)?;
        if config.value_head {
            return Err(unsupported(
                "architectures",
                &json!(config.architecture()),
                "a causal language model",
            ));
        }
        Ok(config)
    }

    /// The same of a critic, as [`ModelConfig::to_json`] writes it.
    ///
    /// # Errors
    /// [`ConfigError`] names the key.
    pub fn critic_from_json(text: &str) -> Result<Self, ConfigError> {
        let config = Self::read(text)?;
        if !config.value_head {
            let supported = "token classification with one label, as critics are written";
            return Err(unsupported("architectures", &json!(config.architecture()), supported));
        }
        Ok(config)
    }

    /// The critic of a policy's shape.
    #[must_use]
    pub fn critic(&self) -> Self {
        Self {
            value_head: true,
            tie_word_embeddings: false,
            ..self.clone()
        }
    }

    fn architecture(&self) -> String {
        let task = if self.value_head {
            "ForTokenClassification"
        } else {
            "ForCausalLM"
        };
        format!("{}{task}", self.family.names().1)
    }

    fn read(text: &str) -> Result<Self, ConfigError> {
        let value: Value = serde_json::from_str(text).map_err(|error| ConfigError::Syntax(error.to_string()))?;
        let object = value
            .as_object()
            .ok_or_else(|| ConfigError::Syntax("found another value".to_owned()))?;
        let keys = Keys(object);
        let family = match keys.text("model_type")? {
            Some("llama") => Family::Llama,
            Some("qwen2") => Family::Qwen2,
            Some("qwen3") => Family::Qwen3,
            Some("qwen3_moe") => Family::Qwen3Moe,
            Some("mixtral") => Family::Mixtral,
            Some(other) => {
                let supported = "llama, qwen2, qwen3, qwen3_moe, mixtral";
                return Err(unsupported("model_type", &json!(other), supported));
            }
            None => return Err(ConfigError::Missing { key: "model_type" }),
        };
        let hidden_size = keys.size("hidden_size")?;
        let num_attention_heads = keys.size("num_attention_heads")?;
        let num_hidden_layers = keys.size("num_hidden_layers")?;
        let config = Self {
            family,
            hidden_size,
            num_hidden_layers,
            num_attention_heads,
            num_key_value_heads: keys.size_or("num_key_value_heads", num_attention_heads)?,
            head_dim: keys.size_or("head_dim", hidden_size / num_attention_heads.max(1))?,
            intermediate_size: keys.size("intermediate_size")?,
            vocab_size: keys.size("vocab_size")?,
            rope_theta: keys.rope_theta()?,
            rms_norm_eps: keys.float_or("rms_norm_eps", 1e-6)?,
            tie_word_embeddings: keys.flag_or("tie_word_embeddings", false)?,
            attention_bias: keys.flag_or("attention_bias", family == Family::Qwen2)?,
            qk_norm: matches!(family, Family::Qwen3 | Family::Qwen3Moe),
            max_position_embeddings: keys.size_or("max_position_embeddings", 2048)?,
            bos_token_id: keys.token_ids("bos_token_id")?.first().copied(),
            eos_token_ids: keys.token_ids("eos_token_id")?,
            dtype: keys.dtype()?,
            moe: match family {
                Family::Qwen3Moe => Some(keys.qwen3_experts(num_hidden_layers)?),
                Family::Mixtral => Some(keys.mixtral_experts()?),
                Family::Llama | Family::Qwen2 | Family::Qwen3 => None,
            },
            value_head: keys.classifies_tokens(),
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
            moe: None,
            value_head: false,
        }
    }

    /// The text of a `config.json` that Hugging Face transformers reads as this model.
    pub fn to_json(&self) -> String {
        let (model_type, _) = self.family.names();
        let eos = match self.eos_token_ids.as_slice() {
            [] => Value::Null,
            [one] => json!(one),
            many => json!(many),
        };
        let mut value = json!({
            "architectures": [self.architecture()],
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
        if let Some(moe) = &self.moe {
            value["num_experts_per_tok"] = json!(moe.per_token);
            if self.family == Family::Mixtral {
                value["num_local_experts"] = json!(moe.experts);
                value["sliding_window"] = Value::Null;
            } else {
                value["num_experts"] = json!(moe.experts);
                value["moe_intermediate_size"] = json!(moe.intermediate_size);
                value["norm_topk_prob"] = json!(moe.norm_topk_prob);
                value["mlp_only_layers"] = json!(moe.dense_layers);
                value["decoder_sparse_step"] = json!(1);
            }
        }
        if self.value_head {
            value["id2label"] = json!({"0": "value"});
            value["label2id"] = json!({"value": 0});
        }
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
        if let Some(moe) = &self.moe {
            for (key, size) in [
                ("num_experts", moe.experts),
                ("num_experts_per_tok", moe.per_token),
                ("moe_intermediate_size", moe.intermediate_size),
            ] {
                if size == 0 || size > WIDTH {
                    return wrong(key, format!("= {size} is not within 1..={WIDTH}"));
                }
            }
            // One index below the type's largest says that a position has no recorded expert.
            if moe.experts >= usize::from(u16::MAX) {
                return wrong(
                    "num_experts",
                    format!("= {} is more than {}", moe.experts, u16::MAX - 1),
                );
            }
            if moe.per_token > moe.experts {
                return wrong("num_experts_per_tok", format!("= {} of {}", moe.per_token, moe.experts));
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

    /// The experts of a layer; `None` where it has an ordinary MLP.
    pub fn experts_of(&self, layer: usize) -> Option<&Moe> {
        self.moe.as_ref().filter(|moe| !moe.dense_layers.contains(&layer))
    }

    /// Experts that a position's record names: `layers · per_token`; 0 of a dense model.
    pub fn experts_per_position(&self) -> usize {
        self.moe
            .as_ref()
            .map_or(0, |moe| self.num_hidden_layers * moe.per_token)
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
