//! Typed access to a `config.json`.

use serde_json::{Map, Value, json};

use super::{ConfigError, Moe, StoredType};

pub(super) fn unsupported(key: &'static str, found: &Value, supported: &'static str) -> ConfigError {
    ConfigError::Unsupported {
        key,
        found: found.to_string(),
        supported,
    }
}

/// Typed access to the object; a JSON null counts as absent, as it does for transformers.
pub(super) struct Keys<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Keys<'a> {
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn read<T>(
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

    pub(super) fn text(&self, key: &'static str) -> Result<Option<&'a str>, ConfigError> {
        self.read(key, "a string", Value::as_str)
    }

    pub(super) fn size(&self, key: &'static str) -> Result<usize, ConfigError> {
        self.optional_size(key)?.ok_or(ConfigError::Missing { key })
    }

    pub(super) fn size_or(&self, key: &'static str, default: usize) -> Result<usize, ConfigError> {
        Ok(self.optional_size(key)?.unwrap_or(default))
    }

    pub(super) fn optional_size(&self, key: &'static str) -> Result<Option<usize>, ConfigError> {
        self.read(key, "a whole number below 2^32", |v| {
            v.as_u64().and_then(|n| u32::try_from(n).ok())
        })
        .map(|size| size.map(|n| n as usize))
    }

    pub(super) fn float_or(&self, key: &'static str, default: f64) -> Result<f64, ConfigError> {
        Ok(self.read(key, "a number", Value::as_f64)?.unwrap_or(default))
    }

    pub(super) fn flag_or(&self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.read(key, "true or false", Value::as_bool)?.unwrap_or(default))
    }

    pub(super) fn token_ids(&self, key: &'static str) -> Result<Vec<u32>, ConfigError> {
        let id = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
        let ids = self.read(key, "a token id or a list of them", |value| match value {
            Value::Array(many) => many.iter().map(id).collect(),
            one => id(one).map(|one| vec![one]),
        })?;
        Ok(ids.unwrap_or_default())
    }

    pub(super) fn classifies_tokens(&self) -> bool {
        let names = self.value("architectures").and_then(Value::as_array);
        let classifies = |name: &Value| {
            name.as_str()
                .is_some_and(|name| name.ends_with("ForTokenClassification"))
        };
        names.is_some_and(|names| names.iter().any(classifies))
    }

    pub(super) fn dtype(&self) -> Result<StoredType, ConfigError> {
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
    pub(super) fn rope_theta(&self) -> Result<f64, ConfigError> {
        let nested = self
            .value("rope_parameters")
            .and_then(|p| p.get("rope_theta"))
            .and_then(Value::as_f64);
        self.float_or("rope_theta", nested.unwrap_or(10_000.0))
    }

    pub(super) fn refuse_unsupported(&self) -> Result<(), ConfigError> {
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

    /// The experts of a Qwen3-MoE: every `decoder_sparse_step`-th layer, those of `mlp_only_layers` excepted.
    pub(super) fn qwen3_experts(&self, layers: usize) -> Result<Moe, ConfigError> {
        let step = self.size_or("decoder_sparse_step", 1)?;
        let dense = self.read("mlp_only_layers", "a list of layers", |value| {
            let layer = |v: &Value| v.as_u64().and_then(|n| usize::try_from(n).ok());
            value.as_array()?.iter().map(layer).collect::<Option<Vec<usize>>>()
        })?;
        let dense = dense.unwrap_or_default();
        let is_dense = |layer: &usize| dense.contains(layer) || !(layer + 1).is_multiple_of(step.max(1));
        // transformers 5 writes Mixtral's name for it.
        let experts = match self.optional_size("num_experts")? {
            Some(experts) => experts,
            None => self
                .optional_size("num_local_experts")?
                .ok_or(ConfigError::Missing { key: "num_experts" })?,
        };
        Ok(Moe {
            experts,
            per_token: self.size_or("num_experts_per_tok", 8)?,
            intermediate_size: self.size("moe_intermediate_size")?,
            norm_topk_prob: self.flag_or("norm_topk_prob", false)?,
            dense_layers: (0..layers).filter(is_dense).collect(),
        })
    }

    /// The experts of a Mixtral: every layer's.
    pub(super) fn mixtral_experts(&self) -> Result<Moe, ConfigError> {
        if let Some(window) = self.value("sliding_window") {
            return Err(unsupported("sliding_window", window, "null"));
        }
        Ok(Moe {
            experts: self.size_or("num_local_experts", 8)?,
            per_token: self.size_or("num_experts_per_tok", 2)?,
            intermediate_size: self.size("intermediate_size")?,
            norm_topk_prob: true,
            dense_layers: Vec::new(),
        })
    }
}
