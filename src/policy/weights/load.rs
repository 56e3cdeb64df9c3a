//! Reads a Hugging Face folder: `config.json` and `model.safetensors`, whole or in shards.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
};

use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{HostTensor, Weights, WeightsError};
use crate::config::{ConfigError, ModelConfig};

impl Weights {
    /// Loads `dir` (`config.json` and `model.safetensors`, or the shards that `model.safetensors.index.json` names), as
    /// f32 whatever is stored.
    ///
    /// # Errors
    /// [`WeightsError`] names the file, the key or the tensor.
    pub fn load(dir: &Path) -> Result<Self, WeightsError> {
        Self::load_as(config(dir)?, dir)
    }

    /// Loads a critic from a folder that [`Weights::save`] wrote.
    ///
    /// # Errors
    /// [`WeightsError`] names the file, the key or the tensor.
    pub fn load_critic(dir: &Path) -> Result<Self, WeightsError> {
        Self::load_as(read_config(dir, ModelConfig::critic_from_json)?, dir)
    }

    /// The safetensors files of a folder, there or not: `model.safetensors`, or those that its index names.
    ///
    /// # Errors
    /// [`WeightsError::NoWeights`] where neither is there, or an index that is none.
    pub fn files(dir: &Path) -> Result<Vec<PathBuf>, WeightsError> {
        files(dir)
    }

    fn load_as(config: ModelConfig, dir: &Path) -> Result<Self, WeightsError> {
        let mut tensors = BTreeMap::new();
        for file in files(dir)? {
            load_tensors(&file, &mut tensors)?;
        }
        Self::from_tensors(config, tensors)?.finite()
    }
}

/// What the folder's `config.json` says.
pub(super) fn config(dir: &Path) -> Result<ModelConfig, WeightsError> {
    read_config(dir, ModelConfig::from_json)
}

fn read_config(dir: &Path, parse: fn(&str) -> Result<ModelConfig, ConfigError>) -> Result<ModelConfig, WeightsError> {
    let path = dir.join("config.json");
    let text = String::from_utf8_lossy(&read(&path)?).into_owned();
    parse(&text).map_err(|source| WeightsError::Config { path, source })
}

/// The folder's safetensors files: one, or those that its index names.
pub(super) fn files(dir: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let single = dir.join("model.safetensors");
    let index = dir.join("model.safetensors.index.json");
    if single.exists() {
        Ok(vec![single])
    } else if index.exists() {
        Ok(shards(&index)?.iter().map(|shard| dir.join(shard)).collect())
    } else {
        Err(WeightsError::NoWeights(dir.to_owned()))
    }
}

fn read(path: &Path) -> Result<Vec<u8>, WeightsError> {
    fs::read(path).map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}

fn shards(index: &Path) -> Result<Vec<String>, WeightsError> {
    let wrong = |message: &str| WeightsError::Format {
        path: index.to_owned(),
        message: message.to_owned(),
    };
    let value: serde_json::Value = serde_json::from_slice(&read(index)?).map_err(|error| wrong(&error.to_string()))?;
    let map = value
        .get("weight_map")
        .and_then(|map| map.as_object())
        .ok_or_else(|| wrong("no `weight_map`"))?;
    let mut files = Vec::new();
    for file in map.values() {
        let file = file
            .as_str()
            .ok_or_else(|| wrong("`weight_map` holds something other than file names"))?;
        // A shard lies beside its index; a path that leads elsewhere is not followed.
        if file.contains(['/', '\\']) {
            return Err(wrong(&format!(
                "`weight_map` names `{file}`, which is not a plain file name"
            )));
        }
        files.push(file.to_owned());
    }
    files.sort();
    files.dedup();
    Ok(files)
}

/// Adds every tensor of a safetensors file to `tensors`; gives the file's string metadata.
pub(crate) fn load_tensors(
    path: &Path,
    tensors: &mut BTreeMap<String, HostTensor>,
) -> Result<HashMap<String, String>, WeightsError> {
    let bytes = read(path)?;
    let wrong = |error: safetensors::SafeTensorError| {
        let message = error.to_string();
        WeightsError::Format {
            path: path.to_owned(),
            message,
        }
    };
    let (_, header) = SafeTensors::read_metadata(&bytes).map_err(wrong)?;
    let file = SafeTensors::deserialize(&bytes).map_err(wrong)?;
    for (name, view) in file.tensors() {
        let data = floats(&view).ok_or_else(|| wrong_type(path, &name, view.dtype()))?;
        tensors.insert(
            name,
            HostTensor {
                shape: view.shape().to_vec(),
                data: data.into(),
            },
        );
    }
    Ok(header.metadata().clone().unwrap_or_default())
}

pub(super) fn wrong_type(path: &Path, name: &str, found: Dtype) -> WeightsError {
    WeightsError::ElementType {
        path: path.to_owned(),
        name: name.to_owned(),
        found: format!("{found:?}"),
    }
}

fn floats(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    match view.dtype() {
        Dtype::F32 => Some(
            bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|b| f32::from_le_bytes(*b))
                .collect(),
        ),
        Dtype::BF16 => Some(
            bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| bf16::from_le_bytes(*b).to_f32())
                .collect(),
        ),
        Dtype::F16 => Some(
            bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|b| f16::from_le_bytes(*b).to_f32())
                .collect(),
        ),
        _ => None,
    }
}
