//! Causal grouped-query attention of one sequence over its stored keys and values.
//!
//! Keys lie in panels of 16 positions, so that a query meets 16 keys at once and each score is reduced in one order;
//! values lie position after position. The store only grows or is cut at its end; it does not know its layer's weights.

use super::gemm::{LANES, Left, Right, Store, multiply};
use super::vector::softmax;

/// Query rows that share one pass over the keys (a multiple of the kernel's tile).
pub(crate) const QUERY_BLOCK: usize = 24;

/// Sizes of an attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Heads {
    pub(crate) query: usize,
    pub(crate) key: usize,
    pub(crate) dim: usize,
}

impl Heads {
    /// Floats of a head, padded to whole panels.
    pub(crate) fn padded(self) -> usize {
        self.dim.next_multiple_of(LANES)
    }

    pub(crate) fn query_width(self) -> usize {
        self.query * self.dim
    }

    pub(crate) fn key_width(self) -> usize {
        self.key * self.dim
    }

    /// The key head that query head `head` reads.
    pub(crate) fn key_of(self, head: usize) -> usize {
        head / (self.query / self.key)
    }

    pub(crate) fn scale(self) -> f32 {
        1.0 / (self.dim as f32).sqrt()
    }
}

/// Keys and values of one layer of one sequence.
#[derive(Clone, Debug)]
pub(crate) struct KeyValues {
    heads: Heads,
    /// `[position / 16][key head][dim][16]`
    keys: Vec<f32>,
    /// `[position][key head][dim padded to 16]`
    values: Vec<f32>,
    len: usize,
}

impl KeyValues {
    pub(crate) fn new(heads: Heads) -> Self {
        Self {
            heads,
            keys: Vec::new(),
            values: Vec::new(),
            len: 0,
        }
    }

    pub(crate) fn heads(&self) -> Heads {
        self.heads
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Bytes allocated.
    pub(crate) fn bytes(&self) -> usize {
        (self.keys.capacity() + self.values.capacity()) * size_of::<f32>()
    }

    fn panel(&self) -> usize {
        self.heads.key_width() * LANES
    }

    /// Appends rows `[positions, key heads · dim]`.
    pub(crate) fn append(&mut self, keys: &[f32], values: &[f32]) {
        let (dim, padded, width) = (self.heads.dim, self.heads.padded(), self.heads.key_width());
        let (panel, stored) = (self.panel(), self.heads.key * padded);
        let rows = keys.len() / width;
        let end = self.len + rows;
        if self.keys.len() < end.div_ceil(LANES) * panel {
            self.keys.resize(end.div_ceil(LANES) * panel, 0.0);
        }
        if self.values.len() < end * stored {
            self.values.resize(end * stored, 0.0);
        }
        for (i, (key, value)) in keys.chunks_exact(width).zip(values.chunks_exact(width)).enumerate() {
            let at = self.len + i;
            let slots = self.keys[at / LANES * panel + at % LANES..].iter_mut().step_by(LANES);
            for (slot, k) in slots.zip(key) {
                *slot = *k;
            }
            for (head, value) in value.chunks_exact(dim).enumerate() {
                self.values[at * stored + head * padded..][..dim].copy_from_slice(value);
            }
        }
        self.len = end;
    }

    /// Keys of one head, transposed: `[dim, positions]`.
    pub(crate) fn keys_of(&self, head: usize) -> Right<'_> {
        Right {
            data: &self.keys[head * self.heads.dim * LANES..],
            panel_stride: self.panel(),
            k_stride: LANES,
        }
    }

    /// Values of one head: `[positions, dim]`.
    pub(crate) fn values_of(&self, head: usize) -> Right<'_> {
        let padded = self.heads.padded();
        Right::rows(&self.values[head * padded..], self.heads.key * padded)
    }
}

/// Attention of the last `queries.len() / (heads · dim)` positions of `store` over it; `queries` and `out` are
/// `[positions, query heads · dim]`. `log_sums` keeps each softmax's `log Σ exp` as `[query head][position]`.
pub(crate) fn attend(queries: &[f32], store: &KeyValues, out: &mut [f32], log_sums: &mut [f32], scores: &mut Vec<f32>) {
    let heads = store.heads;
    let width = heads.query_width();
    let rows = queries.len() / width;
    let start = store.len - rows;
    for head in 0..heads.query {
        let (keys, values) = (store.keys_of(heads.key_of(head)), store.values_of(heads.key_of(head)));
        for first in (0..rows).step_by(QUERY_BLOCK) {
            let block = QUERY_BLOCK.min(rows - first);
            let seen = start + first + block;
            let stride = seen.next_multiple_of(LANES);
            scores.resize(scores.len().max(block * stride), 0.0);
            let at = first * width + head * heads.dim;
            let queries = Left::rows(&queries[at..], width);
            multiply(
                (block, stride, heads.dim),
                queries,
                keys,
                scores,
                stride,
                Store::Replace,
            );
            for (i, row) in scores.chunks_exact_mut(stride).take(block).enumerate() {
                log_sums[head * rows + first + i] = softmax(row, start + first + i + 1, heads.scale());
            }
            let weights = Left::rows(scores, stride);
            multiply(
                (block, heads.dim, seen),
                weights,
                values,
                &mut out[at..],
                width,
                Store::Replace,
            );
        }
    }
}
