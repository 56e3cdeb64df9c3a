//! Single-precision matrix product over packed panels, the one kernel under decoding and training.
//!
//! Every output element is reduced over `k` in ascending order by one accumulator, whatever the shape of the
//! call: a row's result does not depend on which rows are computed beside it, so a batch gives bit for bit what
//! each of its rows gives alone. This file knows nothing of models; it must not allocate.
#![expect(
    clippy::inline_always,
    reason = "these bodies must be compiled inside the caller's target features"
)]
#![expect(
    unsafe_code,
    reason = "register tiles over raw pointers; every entry point checks its bounds first"
)]

use super::simd::{Level, Portable, Simd, level};

/// Width of a panel: columns of the right-hand side that lie side by side.
pub(crate) const LANES: usize = 16;
/// Rows of a full register tile.
pub(crate) const TILE_ROWS: usize = 6;
/// Panels visited while a tile of the left-hand side is warm.
const PANEL_GROUP: usize = 4;
/// Floats of the left-hand side kept warm in the second-level cache.
const LEFT_BLOCK: usize = 32 * 1024;
/// Multiply-adds below which another thread costs more than it brings.
const PARALLEL_WORK: usize = 4 << 20;

/// Left-hand side `[m, k]`: element (r, c) of the tile that starts at row t lies at
/// `t * tile_stride + (r - t) * row_stride + c * k_stride`; `row_stride <= tile_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) tile_stride: usize,
    pub(crate) row_stride: usize,
    pub(crate) k_stride: usize,
}

impl<'a> Left<'a> {
    /// Row-major rows, `stride` floats apart.
    pub(crate) fn rows(data: &'a [f32], stride: usize) -> Self {
        Self {
            data,
            tile_stride: stride,
            row_stride: stride,
            k_stride: 1,
        }
    }

    /// The transpose of a row-major matrix: row r of the product's left side is column r of `data`.
    pub(crate) fn columns(data: &'a [f32], stride: usize) -> Self {
        Self {
            data,
            tile_stride: 1,
            row_stride: 1,
            k_stride: stride,
        }
    }
}

/// Right-hand side `[k, n]`: columns 16p..16p+16 of row c lie at `p * panel_stride + c * k_stride`, always 16 readable
/// floats.
#[derive(Clone, Copy)]
pub(crate) struct Right<'a> {
    pub(crate) data: &'a [f32],
    pub(crate) panel_stride: usize,
    pub(crate) k_stride: usize,
}

impl<'a> Right<'a> {
    /// Row-major `[k, n]` with `stride` floats from row to row, a multiple of 16 not below `n`.
    pub(crate) fn rows(data: &'a [f32], stride: usize) -> Self {
        Self {
            data,
            panel_stride: LANES,
            k_stride: stride,
        }
    }
}

/// What happens to the old content of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Store {
    Replace,
    Add,
}

#[derive(Clone, Copy)]
struct Call {
    m: usize,
    n: usize,
    k: usize,
    left: *const f32,
    left_strides: (usize, usize, usize),
    right: *const f32,
    right_strides: (usize, usize),
    out: *mut f32,
    out_stride: usize,
    add: bool,
}

// SAFETY: the pointers are only used through disjoint column ranges while the borrow that made them lives.
unsafe impl Send for Call {}
// SAFETY: as above.
unsafe impl Sync for Call {}

/// `out[m, n] (+)= left[m, k] · right[k, n]`, rows of `out` being `out_stride` floats apart, on this thread.
///
/// # Panics
/// When a slice is shorter than its strides say.
pub(crate) fn multiply(
    (m, n, k): (usize, usize, usize),
    left: Left<'_>,
    right: Right<'_>,
    out: &mut [f32],
    out_stride: usize,
    store: Store,
) {
    if let Some(call) = checked((m, n, k), left, right, out, out_stride, store) {
        // SAFETY: `checked` has verified every index the call can form.
        unsafe { run(&call, 0, n.div_ceil(LANES)) };
    }
}

/// As [`multiply`], spread over the thread pool by columns where there is enough work; same bits.
pub(crate) fn multiply_parallel(
    (m, n, k): (usize, usize, usize),
    left: Left<'_>,
    right: Right<'_>,
    out: &mut [f32],
    out_stride: usize,
    store: Store,
) {
    let panels = n.div_ceil(LANES);
    let threads = rayon::current_num_threads()
        .min(m * n * k / PARALLEL_WORK + 1)
        .min(panels.div_ceil(PANEL_GROUP));
    let Some(call) = checked((m, n, k), left, right, out, out_stride, store) else {
        return;
    };
    if threads <= 1 {
        // SAFETY: checked.
        return unsafe { run(&call, 0, panels) };
    }
    let share = panels.div_ceil(threads).next_multiple_of(PANEL_GROUP);
    rayon::scope(|scope| {
        let call = &call;
        for first in (0..panels).step_by(share) {
            // SAFETY: checked; each task writes its own columns.
            scope.spawn(move |_| unsafe { run(call, first, (first + share).min(panels)) });
        }
    });
}

fn checked(
    (m, n, k): (usize, usize, usize),
    left: Left<'_>,
    right: Right<'_>,
    out: &mut [f32],
    out_stride: usize,
    store: Store,
) -> Option<Call> {
    if m == 0 || n == 0 || (k == 0 && store == Store::Add) {
        return None;
    }
    assert!(out.len() >= (m - 1) * out_stride + n, "product output too short");
    if k > 0 {
        let tile = (m - 1) / TILE_ROWS * TILE_ROWS;
        let last = tile * left.tile_stride + (m - 1 - tile) * left.row_stride + (k - 1) * left.k_stride;
        assert!(
            left.row_stride <= left.tile_stride && last < left.data.len(),
            "left operand too short"
        );
        let last = (n.div_ceil(LANES) - 1) * right.panel_stride + (k - 1) * right.k_stride + LANES;
        assert!(last <= right.data.len(), "right operand too short");
    }
    Some(Call {
        m,
        n,
        k,
        left: left.data.as_ptr(),
        left_strides: (left.tile_stride, left.row_stride, left.k_stride),
        right: right.data.as_ptr(),
        right_strides: (right.panel_stride, right.k_stride),
        out: out.as_mut_ptr(),
        out_stride,
        add: store == Store::Add,
    })
}

unsafe fn run(call: &Call, first: usize, end: usize) {
    match level() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the features were detected at run time; bounds are the caller's.
        Level::Avx2 => unsafe { run_avx2(call, first, end) },
        // SAFETY: bounds are the caller's.
        Level::Portable => unsafe { blocks::<Portable, 2>(call, first, end) },
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn run_avx2(call: &Call, first: usize, end: usize) {
    // SAFETY: bounds are the caller's.
    unsafe { blocks::<std::arch::x86_64::__m256, 2>(call, first, end) }
}

#[inline(always)]
unsafe fn blocks<S: Simd, const V: usize>(call: &Call, first: usize, end: usize) {
    let rows = (LEFT_BLOCK / call.k.max(1)).max(TILE_ROWS) / TILE_ROWS * TILE_ROWS;
    for block in (0..call.m).step_by(rows) {
        let block_end = (block + rows).min(call.m);
        for group in (first..end).step_by(PANEL_GROUP) {
            let group_end = (group + PANEL_GROUP).min(end);
            for row in (block..block_end).step_by(TILE_ROWS) {
                // SAFETY: bounds are the caller's.
                unsafe { strip::<S, V>(call, row, (block_end - row).min(TILE_ROWS), group, group_end) };
            }
        }
    }
}

/// One tile's rows against a group of panels: few rows take several panels at once, to hide the latency of the
/// multiply-add.
#[inline(always)]
unsafe fn strip<S: Simd, const V: usize>(call: &Call, row: usize, rows: usize, group: usize, end: usize) {
    // SAFETY: bounds are the caller's.
    unsafe {
        let mut panel = group;
        while panel < end {
            let left = end - panel;
            match (rows, left) {
                (1, 4..) => tile::<S, V, 1, 4>(call, row, panel),
                (1, 2..) => tile::<S, V, 1, 2>(call, row, panel),
                (1, _) => tile::<S, V, 1, 1>(call, row, panel),
                (2, 2..) => tile::<S, V, 2, 2>(call, row, panel),
                (2, _) => tile::<S, V, 2, 1>(call, row, panel),
                (3, 2..) => tile::<S, V, 3, 2>(call, row, panel),
                (3, _) => tile::<S, V, 3, 1>(call, row, panel),
                (4, _) => tile::<S, V, 4, 1>(call, row, panel),
                (5, _) => tile::<S, V, 5, 1>(call, row, panel),
                _ => tile::<S, V, 6, 1>(call, row, panel),
            }
            panel += match rows {
                1 if left >= 4 => 4,
                1..=3 if left >= 2 => 2,
                _ => 1,
            };
        }
    }
}

#[inline(always)]
unsafe fn tile<S: Simd, const V: usize, const M: usize, const P: usize>(call: &Call, row: usize, panel: usize) {
    let (tile_stride, row_stride, k_stride) = call.left_strides;
    let (panel_stride, right_stride) = call.right_strides;
    // SAFETY: `checked` has verified the largest index of each operand; partial panels go through a buffer.
    unsafe {
        let left = call.left.add(row * tile_stride);
        let right = call.right.add(panel * panel_stride);
        let out = call.out.add(row * call.out_stride + panel * LANES);
        let mut acc = [[[S::zero(); V]; P]; M];
        if call.add {
            for (i, rows) in acc.iter_mut().enumerate() {
                for (p, panels) in rows.iter_mut().enumerate() {
                    let width = (call.n - (panel + p) * LANES).min(LANES);
                    let at = out.add(i * call.out_stride + p * LANES);
                    if width == LANES {
                        for (v, lanes) in panels.iter_mut().enumerate() {
                            *lanes = S::load(at.add(v * S::WIDTH));
                        }
                    } else {
                        let mut edge = [0f32; LANES];
                        std::ptr::copy_nonoverlapping(at, edge.as_mut_ptr(), width);
                        for (v, lanes) in panels.iter_mut().enumerate() {
                            *lanes = S::load(edge.as_ptr().add(v * S::WIDTH));
                        }
                    }
                }
            }
        }
        for c in 0..call.k {
            let mut columns = [[S::zero(); V]; P];
            for (p, lanes) in columns.iter_mut().enumerate() {
                for (v, lanes) in lanes.iter_mut().enumerate() {
                    *lanes = S::load(right.add(p * panel_stride + c * right_stride + v * S::WIDTH));
                }
            }
            for (i, rows) in acc.iter_mut().enumerate() {
                let value = S::splat(*left.add(i * row_stride + c * k_stride));
                for p in 0..P {
                    for v in 0..V {
                        rows[p][v] = S::multiply_add(value, columns[p][v], rows[p][v]);
                    }
                }
            }
        }
        for (i, rows) in acc.iter().enumerate() {
            for (p, panels) in rows.iter().enumerate() {
                let width = (call.n - (panel + p) * LANES).min(LANES);
                let at = out.add(i * call.out_stride + p * LANES);
                if width == LANES {
                    for (v, lanes) in panels.iter().enumerate() {
                        lanes.store(at.add(v * S::WIDTH));
                    }
                } else {
                    let mut edge = [0f32; LANES];
                    for (v, lanes) in panels.iter().enumerate() {
                        lanes.store(edge.as_mut_ptr().add(v * S::WIDTH));
                    }
                    std::ptr::copy_nonoverlapping(edge.as_ptr(), at, width);
                }
            }
        }
    }
}
