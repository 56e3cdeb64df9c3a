//! `[policy]`

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The model that is trained.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PolicySection {
    /// Hugging Face folder: config.json, safetensors, tokenizer files; or `hf:org/name[@revision]`, which is downloaded into the
    /// cache of Hugging Face's clients (`HF_HOME`).
    #[schemars(extend("format" = "path"))]
    pub model: PathBuf,
    /// Folder with `tokenizer.json` and `tokenizer_config.json`, where it is not the model's own; or `hf:org/name[@revision]`.
    #[schemars(extend("format" = "path"))]
    pub tokenizer: Option<PathBuf>,
    /// Jinja file, where the tokenizer's own template is not to be used.
    #[schemars(extend("format" = "path"))]
    pub chat_template: Option<PathBuf>,
    /// Type of the weights in the engine; the trainer computes in f32.
    pub dtype: DtypeName,
    /// Window in tokens; absent: the model's own.
    #[schemars(range(min = 1))]
    pub max_model_len: Option<u32>,
    /// Where the trainer and the embedded engine compute: `cpu`, `cuda` or `cuda:<n>`.
    pub device: DeviceName,
}

/// Type of the weights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DtypeName {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, the exponent of f32.
    Bf16,
}

/// `cpu`, `cuda` or `cuda:<n>`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DeviceName {
    /// The processor.
    #[default]
    Cpu,
    /// An NVIDIA GPU.
    Cuda(u32),
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl std::str::FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected `cpu`, `cuda` or `cuda:<n>`, found `{text}`");
        match text.split_once(':') {
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", index)) => index.parse().map(Self::Cuda).map_err(|_| wrong()),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for DeviceName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for DeviceName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for DeviceName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "DeviceName".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(cpu|cuda(:[0-9]+)?)$" })
    }
}
