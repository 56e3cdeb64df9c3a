//! Low-rank adapters (Hu et al. 2021): a matrix W is trained as W + (alpha/rank) · B · A, of which A and B alone learn.
//!
//! Forward passes run over the merged matrix, so that decoding, publishing and saving know nothing of adapters; gradients are
//! those of A and B. Files are those of PEFT, in [`disk`].

mod disk;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use rayon::prelude::*;

use crate::config::ModelConfig;
use crate::layout::{Parameter, parameters};
use crate::trainer::TrainerError;
use crate::weights::{HostTensor, Weights};

/// A linear map of a layer that can have an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LoraTarget {
    Query,
    Key,
    Value,
    Output,
    Gate,
    Up,
    Down,
}

impl LoraTarget {
    pub const ALL: [Self; 7] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Gate,
        Self::Up,
        Self::Down,
    ];

    /// Those that have a matrix in such a model: without an ordinary MLP in it, those of attention.
    pub fn all_of(config: &ModelConfig) -> Vec<Self> {
        let has_mlp = (0..config.num_hidden_layers).any(|layer| config.experts_of(layer).is_none());
        let all = Self::ALL.into_iter();
        all.filter(|target| has_mlp || !matches!(target, Self::Gate | Self::Up | Self::Down))
            .collect()
    }

    /// The module's name, as PEFT's `target_modules` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Query => "q_proj",
            Self::Key => "k_proj",
            Self::Value => "v_proj",
            Self::Output => "o_proj",
            Self::Gate => "gate_proj",
            Self::Up => "up_proj",
            Self::Down => "down_proj",
        }
    }
}

/// Which matrices have adapters, and of which size.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraSpec {
    /// Rows of A and columns of B.
    pub rank: usize,
    /// What the product is multiplied by, times the rank.
    pub alpha: f64,
    /// None twice. Routed experts and routers have no adapters.
    pub targets: Vec<LoraTarget>,
}

impl LoraSpec {
    /// Floats of the adapters of such a model.
    pub fn parameter_count(&self, config: &ModelConfig) -> usize {
        let shapes = parameters(config)
            .into_iter()
            .filter_map(|p| match (self.target_of(&p), &p.shape[..]) {
                (Some(_), [out, from]) => Some(self.rank * (out + from)),
                _ => None,
            });
        shapes.sum()
    }

    /// What of the targets a parameter is, if it is any; stacked experts are none.
    fn target_of(&self, p: &Parameter) -> Option<LoraTarget> {
        let module = p.name.strip_suffix(".weight")?.rsplit('.').next();
        let target = self.targets.iter().find(|target| Some(target.name()) == module);
        target.copied().filter(|_| p.shape.len() == 2)
    }

    /// The factor of B · A.
    pub(crate) fn scale(&self) -> f32 {
        (self.alpha / self.rank as f64) as f32
    }
}

/// The adapter of one matrix.
#[derive(Clone, Debug)]
pub(crate) struct Adapter {
    /// Position of its matrix in the decoder's order.
    pub(crate) slot: usize,
    /// Shape of the matrix: `[out, from]`.
    pub(crate) out: usize,
    pub(crate) from: usize,
    /// A, `[rank, from]`, then B, `[out, rank]`.
    pub(crate) values: Arc<[f32]>,
}

impl Adapter {
    /// A and B.
    pub(crate) fn factors(&self, rank: usize) -> (&[f32], &[f32]) {
        self.values.split_at(rank * self.from)
    }
}

/// Frozen weights and their adapters.
#[derive(Clone, Debug)]
pub(crate) struct Lora {
    pub(crate) spec: LoraSpec,
    /// What the base is called in the adapters' file.
    name: String,
    base: Weights,
    adapters: Vec<Adapter>,
}

impl Lora {
    /// Fresh adapters over `base`, which change nothing: A uniform within ±1/√from (as PEFT draws it), B zero.
    ///
    /// # Errors
    /// [`TrainerError::Lora`] where the numbers are none, or a target has no matrix in this model.
    pub(crate) fn new(base: Weights, name: &str, spec: LoraSpec, seed: u64) -> Result<Self, TrainerError> {
        let wrong = |problem: String| TrainerError::Lora { problem };
        if spec.rank == 0 {
            return Err(wrong("the rank should be at least 1, found 0".to_owned()));
        }
        if !(spec.alpha > 0.0 && spec.alpha.is_finite()) {
            return Err(wrong(format!("alpha should be a number above 0, found {}", spec.alpha)));
        }
        if spec.targets.is_empty() {
            return Err(wrong("there should be at least one target".to_owned()));
        }
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut adapters = Vec::new();
        let mut found = Vec::new();
        for (slot, parameter) in base.parameters().iter().enumerate() {
            let (Some(target), [out, from]) = (spec.target_of(parameter), &parameter.shape[..]) else {
                continue;
            };
            let (out, from) = (*out, *from);
            found.push(target);
            let bound = 1.0 / (from as f32).sqrt();
            let a = (0..spec.rank * from).map(|_| rng.random_range(-bound..bound));
            let values = a.chain(std::iter::repeat_n(0.0, out * spec.rank)).collect();
            adapters.push(Adapter {
                slot,
                out,
                from,
                values,
            });
        }
        if let Some(target) = spec.targets.iter().find(|target| !found.contains(target)) {
            return Err(wrong(format!(
                "the target {} has no matrix of its own in this model (routed experts have no adapters)",
                target.name()
            )));
        }
        Ok(Self {
            spec,
            name: name.to_owned(),
            base,
            adapters,
        })
    }

    pub(crate) fn adapters(&self) -> &[Adapter] {
        &self.adapters
    }

    /// The adapters' values, to be trained.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Arc<[f32]>> {
        self.adapters.iter_mut().map(|adapter| &mut adapter.values)
    }

    /// Name and shape of each adapter's values: those of its matrix, A and B in one.
    pub(crate) fn parameters(&self) -> Vec<(String, Vec<usize>)> {
        let of = |adapter: &Adapter| (self.module(adapter) + ".lora", vec![adapter.values.len()]);
        self.adapters.iter().map(of).collect()
    }

    /// `model.layers.0.self_attn.q_proj`
    fn module(&self, adapter: &Adapter) -> String {
        let name = &self.base.parameters()[adapter.slot].name;
        name.strip_suffix(".weight").unwrap_or(name).to_owned()
    }

    /// The weights with the adapters in them. What an adapter does not change shares its memory with the base.
    pub(crate) fn merged(&self) -> Weights {
        let mut merged = self.base.clone();
        let (rank, scale) = (self.spec.rank, self.spec.scale());
        let mut slots: Vec<_> = merged.slots_mut().map(Some).collect();
        let mut changed = Vec::new();
        for adapter in &self.adapters {
            if adapter.factors(rank).1.iter().any(|value| *value != 0.0)
                && let Some(matrix) = slots[adapter.slot].take()
            {
                changed.push((adapter, matrix));
            }
        }
        changed.into_par_iter().for_each(|(adapter, matrix)| {
            let (a, b) = adapter.factors(rank);
            let mut sum = matrix.to_vec();
            for (row, b) in sum.chunks_exact_mut(adapter.from).zip(b.chunks_exact(rank)) {
                for (a, b) in a.chunks_exact(adapter.from).zip(b) {
                    let factor = scale * b;
                    row.iter_mut().zip(a).for_each(|(sum, a)| *sum += factor * a);
                }
            }
            *matrix = sum.into();
        });
        merged
    }

    /// The gradient of an adapter from that of its merged matrix: dA = scale·Bᵀ·dW, dB = scale·dW·Aᵀ.
    pub(crate) fn of_matrix(&self, adapter: &Adapter, dw: &[f32]) -> Vec<f32> {
        let (rank, scale) = (self.spec.rank, self.spec.scale());
        let (a, b) = adapter.factors(rank);
        let mut gradient = vec![0.0; adapter.values.len()];
        let (da, db) = gradient.split_at_mut(a.len());
        let rows = dw
            .chunks_exact(adapter.from)
            .zip(b.chunks_exact(rank))
            .zip(db.chunks_exact_mut(rank));
        for ((dw, b), db) in rows {
            for r in 0..rank {
                let part = r * adapter.from..(r + 1) * adapter.from;
                let (factor, mut sum) = (scale * b[r], 0.0);
                for ((da, a), dw) in da[part.clone()].iter_mut().zip(&a[part]).zip(dw) {
                    *da += factor * dw;
                    sum += dw * a;
                }
                db[r] = scale * sum;
            }
        }
        gradient
    }

    /// Puts other values into the adapters, by the modules' names: A and B of each.
    fn replace(
        &mut self,
        mut take: impl FnMut(&str, &'static str, [usize; 2]) -> Result<HostTensor, String>,
    ) -> Result<(), String> {
        let mut values = Vec::new();
        for adapter in &self.adapters {
            let module = self.module(adapter);
            let a = take(&module, "lora_A", [self.spec.rank, adapter.from])?;
            let b = take(&module, "lora_B", [adapter.out, self.spec.rank])?;
            values.push(a.data.iter().chain(b.data.iter()).copied().collect());
        }
        self.values_mut().zip(values).for_each(|(old, new)| *old = new);
        Ok(())
    }
}
