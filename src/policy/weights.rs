//! Host copies of a policy's tensors under their Hugging Face names.
//!
//! Every tensor that the configuration asks for is there and none besides, with the right shape: a `Weights` cannot
//! exist otherwise. Clones share memory. Reading and writing folders is in [`load`] and [`save`], a look at a folder without
//! reading its weights in [`check`].

mod check;
mod load;
mod save;
mod stack;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

use crate::config::{ConfigError, ModelConfig};
use crate::layout::{Parameter, Role, parameters};

pub(crate) use load::load_tensors;
pub(crate) use save::{write_synced, write_tensors};

/// One tensor, row-major f32.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    pub shape: Vec<usize>,
    pub data: Arc<[f32]>,
}

/// A policy's configuration and all of its tensors.
#[derive(Clone, Debug)]
pub struct Weights {
    config: Arc<ModelConfig>,
    names: Arc<Vec<Parameter>>,
    tensors: Vec<HostTensor>,
}

/// Why weights cannot be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.parent().unwrap_or(path).display())]
    Config { path: PathBuf, source: ConfigError },
    #[error("the model's configuration is wrong: {0}")]
    Shape(#[from] ConfigError),
    #[error("{}: not a readable safetensors file: {message}", path.display())]
    Format { path: PathBuf, message: String },
    #[error("{}: tensor `{name}` has type {found}; F32, BF16 and F16 are read", path.display())]
    ElementType { path: PathBuf, name: String, found: String },
    #[error("{} holds neither model.safetensors nor model.safetensors.index.json", .0.display())]
    NoWeights(PathBuf),
    #[error(
        "tensors do not fit config.json: missing [{}], unexpected [{}]",
        some(missing),
        some(unexpected)
    )]
    Names {
        missing: Vec<String>,
        unexpected: Vec<String>,
    },
    #[error("tensor `{name}` has shape {found:?}, config.json asks for {expected:?}")]
    TensorShape {
        name: String,
        expected: Vec<usize>,
        found: Vec<usize>,
    },
    #[error("tensor `{name}` holds {value} at element {at}; every weight must be a finite number")]
    NotFinite { name: String, at: usize, value: f32 },
}

impl Weights {
    /// Takes tensors by name, refusing missing and unexpected names and wrong shapes.
    ///
    /// A tied model may come with a copy of its embedding as `lm_head.weight`; the copy is dropped.
    ///
    /// # Errors
    /// [`WeightsError::Names`], [`WeightsError::TensorShape`], or an inconsistent configuration.
    pub fn from_tensors(config: ModelConfig, mut tensors: BTreeMap<String, HostTensor>) -> Result<Self, WeightsError> {
        config.validate()?;
        stack::stack(&parameters(&config), &mut tensors);
        let shapes = tensors
            .iter()
            .map(|(name, tensor)| (name.as_str(), tensor.shape.as_slice()));
        let names = fit(&config, shapes.collect())?;
        let ordered: Vec<_> = names.iter().filter_map(|p| tensors.remove(&p.name)).collect();
        for (p, tensor) in names.iter().zip(&ordered) {
            if tensor.data.len() != p.shape.iter().product::<usize>() {
                let (name, expected, found) = (p.name.clone(), p.shape.clone(), vec![tensor.data.len()]);
                return Err(WeightsError::TensorShape { name, expected, found });
            }
        }
        Ok(Self {
            config: Arc::new(config),
            names: Arc::new(names),
            tensors: ordered,
        })
    }

    /// Refuses NaN and infinity, which no model that was stored whole holds.
    fn finite(self) -> Result<Self, WeightsError> {
        for (p, tensor) in self.names.iter().zip(&self.tensors) {
            if let Some(at) = tensor.data.iter().position(|value| !value.is_finite()) {
                let (name, value) = (p.name.clone(), tensor.data[at]);
                return Err(WeightsError::NotFinite { name, at, value });
            }
        }
        Ok(self)
    }

    /// Fresh weights: matrices normal with deviation 0.02, norms 1, biases 0. The same seed gives the same weights.
    ///
    /// # Errors
    /// An inconsistent configuration.
    pub fn init(config: ModelConfig, seed: u64) -> Result<Self, WeightsError> {
        config.validate()?;
        let names = parameters(&config);
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let tensors = names
            .iter()
            .map(|p| {
                let len = p.shape.iter().product();
                let data = match p.role {
                    Role::Matrix => (0..len).map(|_| 0.02 * normal(&mut rng)).collect(),
                    Role::Gain => vec![1.0; len].into(),
                    Role::Bias => vec![0.0; len].into(),
                };
                HostTensor {
                    shape: p.shape.clone(),
                    data,
                }
            })
            .collect();
        Ok(Self {
            config: Arc::new(config),
            names: Arc::new(names),
            tensors,
        })
    }

    /// A critic over this policy's body, whose every value is 0.
    #[must_use]
    pub fn critic(&self) -> Self {
        let config = self.config.critic();
        let names = parameters(&config);
        let of = |p: &Parameter| {
            let zeros = || HostTensor {
                shape: p.shape.clone(),
                data: vec![0.0; p.shape.iter().product()].into(),
            };
            self.get(&p.name).cloned().unwrap_or_else(zeros)
        };
        Self {
            tensors: names.iter().map(of).collect(),
            names: Arc::new(names),
            config: Arc::new(config),
        }
    }

    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The tensor of that Hugging Face name.
    pub fn get(&self, name: &str) -> Option<&HostTensor> {
        let at = self.names.iter().position(|p| p.name == name)?;
        self.tensors.get(at)
    }

    /// All tensors in the decoder's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &HostTensor)> {
        self.names.iter().map(|p| p.name.as_str()).zip(&self.tensors)
    }

    /// The tensor at a position of [`crate::layout`]'s order.
    pub(crate) fn at(&self, slot: usize) -> &Arc<[f32]> {
        &self.tensors[slot].data
    }

    pub(crate) fn slots_mut(&mut self) -> impl Iterator<Item = &mut Arc<[f32]>> {
        self.tensors.iter_mut().map(|tensor| &mut tensor.data)
    }

    pub(crate) fn parameters(&self) -> &[Parameter] {
        &self.names
    }
}

/// The parameters of a configuration, if the tensors of these names and shapes are they and no others.
fn fit(config: &ModelConfig, mut shapes: BTreeMap<&str, &[usize]>) -> Result<Vec<Parameter>, WeightsError> {
    config.validate()?;
    let names = parameters(config);
    if config.tie_word_embeddings {
        shapes.remove("lm_head.weight");
    }
    let found: Vec<_> = names.iter().map(|p| shapes.remove(p.name.as_str())).collect();
    let mut missing = Vec::new();
    for (p, _) in names.iter().zip(&found).filter(|(_, shape)| shape.is_none()) {
        if p.parts.is_empty() {
            missing.push(p.name.clone());
        }
        // Experts that were not put together: one is missing, or has another shape.
        for part in &p.parts {
            match shapes.remove(part.as_str()) {
                None => missing.push(part.clone()),
                Some(found) if found != &p.shape[1..] => {
                    let (name, expected, found) = (part.clone(), p.shape[1..].to_vec(), found.to_vec());
                    return Err(WeightsError::TensorShape { name, expected, found });
                }
                Some(_) => {}
            }
        }
    }
    let unexpected: Vec<_> = shapes.into_keys().map(str::to_owned).collect();
    if !missing.is_empty() || !unexpected.is_empty() {
        return Err(WeightsError::Names { missing, unexpected });
    }
    for (p, shape) in names.iter().zip(found.into_iter().flatten()) {
        if p.shape != shape {
            let (name, expected, found) = (p.name.clone(), p.shape.clone(), shape.to_vec());
            return Err(WeightsError::TensorShape { name, expected, found });
        }
    }
    Ok(names)
}

/// The first of some names, and how many more there are.
fn some(names: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut text = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        text.push_str(&format!(" and {} more", names.len() - SHOWN));
    }
    text
}

/// A standard normal draw (Box–Muller), in f64 so that the logarithm's argument is never 0.
fn normal(rng: &mut ChaCha12Rng) -> f32 {
    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
    (radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()) as f32
}
