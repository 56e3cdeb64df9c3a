//! Matrices laid out for the product kernel: right-hand sides in panels of 16 columns, transposed left-hand sides in
//! tiles of 6 rows. Copies only; the buffers are reused.

use super::gemm::{LANES, Left, Right, TILE_ROWS};

/// A right-hand side `[k, n]` as `ceil(n / 16)` panels of `[k][16]`, the last one padded with zeros.
#[derive(Default, Clone)]
pub(crate) struct Packed {
    data: Vec<f32>,
    k: usize,
    n: usize,
}

impl Packed {
    /// Packs the transpose of a row-major `[n, k]` matrix: a Hugging Face weight `[out, in]` for `y = x · Wᵀ`.
    pub(crate) fn transposed(weight: &[f32], n: usize, k: usize) -> Self {
        let mut packed = Self::default();
        packed.fill_transposed(weight, n, k, k);
        packed
    }

    /// Packs a row-major `[k, n]` matrix: a weight `[out, in]` for `dx = dy · W`.
    pub(crate) fn plain(matrix: &[f32], k: usize, n: usize) -> Self {
        let mut packed = Self::default();
        packed.fill_plain(matrix, k, n, n);
        packed
    }

    /// As [`Packed::transposed`], into this buffer; rows of `weight` are `stride` floats apart.
    pub(crate) fn fill_transposed(&mut self, weight: &[f32], n: usize, k: usize, stride: usize) {
        self.shape(k, n);
        for (p, panel) in self.data.chunks_exact_mut(k.max(1) * LANES).enumerate() {
            for lane in 0..LANES.min(n - p * LANES) {
                let row = &weight[(p * LANES + lane) * stride..][..k];
                for (slot, value) in panel[lane..].iter_mut().step_by(LANES).zip(row) {
                    *slot = *value;
                }
            }
        }
    }

    /// As [`Packed::plain`], into this buffer; rows of `matrix` are `stride` floats apart.
    pub(crate) fn fill_plain(&mut self, matrix: &[f32], k: usize, n: usize, stride: usize) {
        self.shape(k, n);
        for (p, panel) in self.data.chunks_exact_mut(k.max(1) * LANES).enumerate() {
            let width = LANES.min(n - p * LANES);
            for (c, lanes) in panel.chunks_exact_mut(LANES).enumerate() {
                lanes[..width].copy_from_slice(&matrix[c * stride + p * LANES..][..width]);
            }
        }
    }

    fn shape(&mut self, k: usize, n: usize) {
        (self.k, self.n) = (k, n);
        let len = n.div_ceil(LANES) * k * LANES;
        // Only a padded last panel needs zeros; every other float is about to be written.
        if self.data.len() == len && n.is_multiple_of(LANES) {
            return;
        }
        self.data.clear();
        self.data.resize(len, 0.0);
    }

    pub(crate) fn right(&self) -> Right<'_> {
        Right {
            data: &self.data,
            panel_stride: self.k * LANES,
            k_stride: LANES,
        }
    }

    /// Rows of the right-hand side: the length of the reduction.
    pub(crate) fn k(&self) -> usize {
        self.k
    }

    /// Columns of the right-hand side.
    pub(crate) fn n(&self) -> usize {
        self.n
    }
}

/// The transpose of a row-major `[k, m]` block as tiles of `[k][6]`, so that the kernel reads it in one stream.
#[derive(Default)]
pub(crate) struct PackedLeft {
    data: Vec<f32>,
    k: usize,
}

impl PackedLeft {
    pub(crate) fn fill_columns(&mut self, matrix: &[f32], k: usize, m: usize) {
        self.k = k;
        self.data.resize(m.next_multiple_of(TILE_ROWS) * k, 0.0);
        for (t, tile) in self.data.chunks_exact_mut(k.max(1) * TILE_ROWS).enumerate() {
            let width = TILE_ROWS.min(m - t * TILE_ROWS);
            for (c, rows) in tile.chunks_exact_mut(TILE_ROWS).enumerate() {
                rows[..width].copy_from_slice(&matrix[c * m + t * TILE_ROWS..][..width]);
            }
        }
    }

    pub(crate) fn left(&self) -> Left<'_> {
        Left {
            data: &self.data,
            tile_stride: self.k,
            row_stride: 1,
            k_stride: TILE_ROWS,
        }
    }
}
