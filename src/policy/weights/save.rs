//! Writes a Hugging Face folder. Files are fsynced; making the folder appear as a whole is the caller's affair.

use std::{fs, io::Write as _, path::Path};

use half::{bf16, f16};
use serde_json::{Map, Value, json};

use super::stack::stored;
use super::{Weights, WeightsError};
use crate::config::StoredType;

impl Weights {
    /// Writes `config.json` and `model.safetensors` into `dir`, which exists, in the configuration's element type.
    ///
    /// # Errors
    /// [`WeightsError::Io`] names the file.
    pub fn save(&self, dir: &Path) -> Result<(), WeightsError> {
        write_synced(
            &dir.join("config.json"),
            std::iter::once(self.config().to_json().into_bytes()),
        )?;
        let all = self.parameters().iter().zip(&self.tensors);
        let tensors: Vec<_> = all.flat_map(|(p, tensor)| stored(p, &tensor.data)).collect();
        write_tensors(
            &dir.join("model.safetensors"),
            &tensors,
            self.config().dtype,
            &[("format", "pt")],
        )
    }
}

/// Writes named f32 tensors as a safetensors file of element type `stored`, with string metadata.
///
/// The header is made here, because the library's own writer wants every tensor's bytes in memory at once.
pub(crate) fn write_tensors(
    path: &Path,
    tensors: &[(String, &[usize], &[f32])],
    stored: StoredType,
    metadata: &[(&str, &str)],
) -> Result<(), WeightsError> {
    let (kind, width) = match stored {
        StoredType::F32 => ("F32", 4),
        StoredType::Bf16 => ("BF16", 2),
        StoredType::F16 => ("F16", 2),
    };
    let mut header = Map::new();
    let metadata: Map<_, _> = metadata.iter().map(|(k, v)| ((*k).to_owned(), json!(v))).collect();
    header.insert("__metadata__".to_owned(), Value::Object(metadata));
    let mut offset = 0;
    for (name, shape, data) in tensors {
        let end = offset + data.len() * width;
        header.insert(
            name.clone(),
            json!({"dtype": kind, "shape": shape, "data_offsets": [offset, end]}),
        );
        offset = end;
    }
    let mut header = Value::Object(header).to_string();
    // The format wants the data aligned to eight bytes; padding is by spaces.
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    let length = (header.len() as u64).to_le_bytes().to_vec();
    let head = [length, header.into_bytes()].into_iter();
    write_synced(
        path,
        head.chain(tensors.iter().map(|(_, _, data)| encode(data, stored))),
    )
}

fn encode(data: &[f32], stored: StoredType) -> Vec<u8> {
    match stored {
        StoredType::F32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        StoredType::Bf16 => data.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
        StoredType::F16 => data.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
    }
}

pub(crate) fn write_synced(path: &Path, parts: impl Iterator<Item = Vec<u8>>) -> Result<(), WeightsError> {
    let write = || {
        let mut file = fs::File::create(path)?;
        for part in parts {
            file.write_all(&part)?;
        }
        file.sync_all()
    };
    write().map_err(|source| WeightsError::Io {
        path: path.to_owned(),
        source,
    })
}
