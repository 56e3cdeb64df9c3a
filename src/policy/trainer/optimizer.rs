//! AdamW with PyTorch's semantics on plain slices, and its state on disk.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use rayon::prelude::*;

use super::TrainerError;
use crate::config::StoredType;
use crate::kernels::vector::{AdamWConstants, adamw, dot};
use crate::weights::{HostTensor, load_tensors, write_tensors};

/// Hyper-parameters of AdamW (Loshchilov & Hutter 2019); the defaults are PyTorch's, without weight decay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamW {
    pub beta1: f64,
    pub beta2: f64,
    pub eps: f64,
    /// Decoupled; applies to every tensor.
    pub weight_decay: f64,
}

impl Default for AdamW {
    fn default() -> Self {
        Self {
            beta1: 0.9,
            beta2: 0.999,
            eps: 1e-8,
            weight_decay: 0.0,
        }
    }
}

/// First and second moments by slot, and the number of steps.
pub(super) struct Moments {
    first: Vec<Vec<f32>>,
    second: Vec<Vec<f32>>,
    steps: u64,
}

/// Global L2 norm, summed in the tensors' order.
pub(super) fn global_norm(gradients: &[Vec<f32>]) -> f64 {
    let squares: Vec<f64> = gradients
        .par_iter()
        .map(|g| g.chunks(4096).map(|c| f64::from(dot(c, c))).sum())
        .collect();
    squares.iter().sum::<f64>().sqrt()
}

impl Moments {
    /// None yet, of tensors of these names and shapes.
    pub(super) fn new(trained: &[(String, Vec<usize>)]) -> Self {
        let zeros = || {
            trained
                .iter()
                .map(|(_, shape)| vec![0.0; shape.iter().product()])
                .collect()
        };
        Self {
            first: zeros(),
            second: zeros(),
            steps: 0,
        }
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    #[cfg(test)]
    pub(super) fn first_of(&self, slot: usize) -> &[f32] {
        &self.first[slot]
    }

    /// Moves the trained tensors, which are in the order of their names.
    pub(super) fn step<'a>(
        &mut self,
        o: &AdamW,
        lr: f64,
        clip: f64,
        trained: impl Iterator<Item = &'a mut Arc<[f32]>>,
        gradients: &[Vec<f32>],
    ) {
        self.steps += 1;
        let t = self.steps as f64;
        let constants = AdamWConstants {
            clip: clip as f32,
            one_minus_beta1: (1.0 - o.beta1) as f32,
            beta2: o.beta2 as f32,
            one_minus_beta2: (1.0 - o.beta2) as f32,
            eps: o.eps as f32,
            root_correction2: (1.0 - o.beta2.powf(t)).sqrt() as f32,
            decay: (1.0 - lr * o.weight_decay) as f32,
            rate: (lr / (1.0 - o.beta1.powf(t))) as f32,
        };
        let tensors: Vec<_> = trained
            .zip(gradients)
            .zip(&mut self.first)
            .zip(&mut self.second)
            .collect();
        tensors.into_par_iter().for_each(|(((p, g), m), v)| {
            // Copies the tensor only where a snapshot still holds it.
            adamw(Arc::make_mut(p), g, m, v, constants);
        });
    }

    pub(super) fn save(&self, file: &Path, trained: &[(String, Vec<usize>)]) -> Result<(), TrainerError> {
        let all = [("exp_avg", &self.first), ("exp_avg_sq", &self.second)];
        let named = all.into_iter().flat_map(|(prefix, moments)| {
            let tensors = trained.iter().zip(moments);
            tensors.map(move |((name, shape), m)| (format!("{prefix}.{name}"), shape.as_slice(), m.as_slice()))
        });
        let views: Vec<_> = named.collect();
        let step = self.steps.to_string();
        Ok(write_tensors(
            file,
            &views,
            StoredType::F32,
            &[("format", "pt"), ("step", &step)],
        )?)
    }

    pub(super) fn load(file: &Path, trained: &[(String, Vec<usize>)]) -> Result<Self, TrainerError> {
        let wrong = |problem: String| TrainerError::OptimizerState {
            path: file.to_owned(),
            problem,
        };
        let mut tensors = BTreeMap::new();
        let metadata = load_tensors(file, &mut tensors)?;
        let step = metadata
            .get("step")
            .ok_or_else(|| wrong("no `step` in its metadata".to_owned()))?;
        let steps = step
            .parse()
            .map_err(|_| wrong(format!("`step` is `{step}`, not a whole number")))?;
        let mut take = |prefix: &str| {
            let wanted = trained.iter().map(|(name, shape)| {
                let key = format!("{prefix}.{name}");
                let found: HostTensor = tensors
                    .remove(&key)
                    .ok_or_else(|| wrong(format!("`{key}` is missing")))?;
                if found.shape == *shape {
                    return Ok(found.data.to_vec());
                }
                Err(wrong(format!(
                    "`{key}` has shape {:?}, what is trained has {shape:?}",
                    found.shape
                )))
            });
            wanted.collect::<Result<Vec<_>, _>>()
        };
        let (first, second) = (take("exp_avg")?, take("exp_avg_sq")?);
        match tensors.keys().next() {
            Some(key) => Err(wrong(format!("`{key}` is unexpected"))),
            None => Ok(Self { first, second, steps }),
        }
    }
}
