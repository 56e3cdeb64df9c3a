//! Looks at a model's folder without reading its weights: the headers of its safetensors files say enough.

use std::{
    collections::BTreeMap,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use safetensors::{Dtype, tensor::Metadata};

use super::load::{config, files, wrong_type};
use super::stack::stack_shapes;
use super::{Weights, WeightsError, fit};
use crate::config::ModelConfig;
use crate::layout::parameters;

/// The longest header that the format allows.
const LONGEST_HEADER: u64 = 100_000_000;

impl Weights {
    /// Whether [`Weights::load`] would find every tensor that `config.json` asks for, of the right shape and type, and
    /// files as long as their headers say. The values are not read.
    ///
    /// # Errors
    /// [`WeightsError`] names the file, the key or the tensor.
    pub fn check(dir: &Path) -> Result<ModelConfig, WeightsError> {
        let config = config(dir)?;
        let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for path in files(dir)? {
            for (name, info) in header(&path)?.tensors() {
                if !matches!(info.dtype, Dtype::F32 | Dtype::BF16 | Dtype::F16) {
                    return Err(wrong_type(&path, &name, info.dtype));
                }
                shapes.insert(name, info.shape.clone());
            }
        }
        config.validate()?;
        stack_shapes(&parameters(&config), &mut shapes);
        let found = shapes.iter().map(|(name, shape)| (name.as_str(), shape.as_slice()));
        fit(&config, found.collect())?;
        Ok(config)
    }
}

/// The header of a file, if the file is as long as it says.
fn header(path: &Path) -> Result<Metadata, WeightsError> {
    let unreadable = |source| WeightsError::Io {
        path: path.to_owned(),
        source,
    };
    let wrong = |message: String| WeightsError::Format {
        path: PathBuf::from(path),
        message,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let size = file.metadata().map_err(unreadable)?.len();
    let mut prefix = [0; 8];
    if size < prefix.len() as u64 {
        return Err(wrong(format!("its {size} bytes are too few for a header")));
    }
    file.read_exact(&mut prefix).map_err(unreadable)?;
    let length = u64::from_le_bytes(prefix);
    let rest = size - prefix.len() as u64;
    if length > rest.min(LONGEST_HEADER) {
        return Err(wrong(format!(
            "its header is to have {length} bytes, and {rest} follow; {LONGEST_HEADER} are the most"
        )));
    }
    let mut text = vec![0; length as usize];
    file.read_exact(&mut text).map_err(unreadable)?;
    let metadata: Metadata = serde_json::from_slice(&text).map_err(|error| wrong(format!("its header: {error}")))?;
    // That the tensors lie one behind the other, each as long as its shape says, the header itself was read for.
    let (end, held) = (metadata.data_len() as u64, rest - length);
    if end != held {
        return Err(wrong(format!("its tensors take {end} bytes, and it holds {held}")));
    }
    Ok(metadata)
}
