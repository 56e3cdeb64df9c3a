//! What a pass has gradients of: every weight, or the adapters of some matrices and nothing else.

use super::backward::{OuterScratch, outer};
use crate::kernels::gemm::{Left, Store, multiply};
use crate::kernels::pack::Packed;
use crate::lora::{Adapter, Lora};
use crate::weights::Weights;

/// An adapter's factors, packed: `x · Aᵀ` and `dy · B`.
struct PackedAdapter {
    a: Packed,
    b: Packed,
    rank: usize,
    scale: f32,
}

/// By slot, where the gradient of a weight goes.
pub(crate) struct Learning {
    /// `None`: all weights learn.
    adapters: Option<Vec<Option<PackedAdapter>>>,
    /// Floats that a slot has to learn.
    trained: Vec<usize>,
    /// Floats that the passes write for a slot: gains and biases are written in any case.
    written: Vec<usize>,
}

impl Learning {
    pub(crate) fn new(weights: &Weights, lora: Option<&Lora>) -> Self {
        let sizes: Vec<usize> = weights.iter().map(|(_, tensor)| tensor.data.len()).collect();
        let Some(lora) = lora else {
            let (trained, written) = (sizes.clone(), sizes);
            return Self {
                adapters: None,
                trained,
                written,
            };
        };
        let vectors = weights.iter().map(|(_, tensor)| tensor.shape.len() == 1);
        let mut written: Vec<_> = sizes
            .iter()
            .zip(vectors)
            .map(|(size, is)| if is { *size } else { 0 })
            .collect();
        let mut trained = vec![0; sizes.len()];
        let mut packed: Vec<_> = sizes.iter().map(|_| None).collect();
        for adapter in lora.adapters() {
            trained[adapter.slot] = adapter.values.len();
            written[adapter.slot] = adapter.values.len();
            packed[adapter.slot] = Some(PackedAdapter::new(adapter, lora));
        }
        Self {
            adapters: Some(packed),
            trained,
            written,
        }
    }

    /// Floats that each slot has to learn; 0: it is frozen.
    pub(crate) fn trained(&self) -> &[usize] {
        &self.trained
    }

    /// Zeros for what a pass writes of a slot.
    pub(crate) fn zeros(&self, slot: usize) -> Vec<f32> {
        vec![0.0; self.written[slot]]
    }

    /// Whether all weights learn.
    pub(crate) fn is_whole(&self) -> bool {
        self.adapters.is_none()
    }

    /// Adds the gradient of the matrix `[out, width]` at a slot to what it has to learn: `dyᵀ · x`, or its adapter's.
    pub(crate) fn outer(
        &self,
        slot: usize,
        (dy, x): (&[f32], &[f32]),
        (out, width): (usize, usize),
        gradient: &mut [f32],
        s: &mut OuterScratch,
    ) {
        match &self.adapters {
            None => outer(dy, x, out, width, gradient, s),
            Some(adapters) => {
                if let Some(adapter) = &adapters[slot] {
                    adapter.backward((dy, x), (out, width), gradient, s);
                }
            }
        }
    }
}

impl PackedAdapter {
    fn new(adapter: &Adapter, lora: &Lora) -> Self {
        let rank = lora.spec.rank;
        let (a, b) = adapter.factors(rank);
        Self {
            a: Packed::transposed(a, rank, adapter.from),
            b: Packed::plain(b, adapter.out, rank),
            rank,
            scale: lora.spec.scale(),
        }
    }

    /// With s the scale: `dA += (s·dy·B)ᵀ · x` and `dB += dyᵀ · (s·x·Aᵀ)`; the matrix' own gradient is never made.
    fn backward(
        &self,
        (dy, x): (&[f32], &[f32]),
        (out, width): (usize, usize),
        gradient: &mut [f32],
        s: &mut OuterScratch,
    ) {
        let (da, db) = gradient.split_at_mut(self.rank * width);
        let mut narrow = std::mem::take(&mut s.narrow);
        self.reduce(x, width, &self.a, &mut narrow);
        outer(dy, &narrow, out, self.rank, db, s);
        self.reduce(dy, out, &self.b, &mut narrow);
        outer(&narrow, x, self.rank, width, da, s);
        s.narrow = narrow;
    }

    /// `scale · rows · factor`, `[rows, rank]`
    fn reduce(&self, rows: &[f32], width: usize, factor: &Packed, out: &mut Vec<f32>) {
        let count = rows.len() / width;
        out.resize(count * self.rank, 0.0);
        let shape = (count, self.rank, width);
        multiply(
            shape,
            Left::rows(rows, width),
            factor.right(),
            out,
            self.rank,
            Store::Replace,
        );
        for value in out.iter_mut() {
            *value *= self.scale;
        }
    }
}
