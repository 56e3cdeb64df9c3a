//! Derivative of causal grouped-query attention over one whole sequence.
//!
//! The probabilities are computed again from the kept `log Σ exp` of each row, block by block, so that memory stays
//! linear in the sequence (the recomputation of `FlashAttention`, Dao et al. 2022, on a CPU's tiles).

use super::attention::{Heads, QUERY_BLOCK};
use super::gemm::{LANES, Left, Right, Store, multiply};
use super::pack::Packed;
use super::vector::{dot, softmax_again, softmax_backward};

/// Buffers that live from one sequence to the next.
#[derive(Default)]
pub(crate) struct AttentionScratch {
    keys_transposed: Packed,
    values_transposed: Packed,
    keys: Vec<f32>,
    queries: Vec<f32>,
    upstream: Vec<f32>,
    dkeys: Vec<f32>,
    dvalues: Vec<f32>,
    probabilities: Vec<f32>,
    dscores: Vec<f32>,
}

/// What the forward pass kept of one sequence; rows are positions, `log_sums` is `[query head][position]`.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a> {
    pub(crate) queries: &'a [f32],
    pub(crate) keys: &'a [f32],
    pub(crate) values: &'a [f32],
    pub(crate) out: &'a [f32],
    pub(crate) log_sums: &'a [f32],
}

/// Gradients to fill, `[positions, heads · dim]` each; overwritten.
pub(crate) struct Gradients<'a> {
    pub(crate) queries: &'a mut [f32],
    pub(crate) keys: &'a mut [f32],
    pub(crate) values: &'a mut [f32],
}

/// Back from `dout` (gradient of the attention's output) to queries, keys and values.
pub(crate) fn attend_backward(
    heads: Heads,
    kept: Kept<'_>,
    dout: &[f32],
    grads: &mut Gradients<'_>,
    scratch: &mut AttentionScratch,
) {
    let (dim, padded, width, key_width) = (heads.dim, heads.padded(), heads.query_width(), heads.key_width());
    let rows = kept.queries.len() / width;
    let group = heads.query / heads.key;
    for key_head in 0..heads.key {
        let at = key_head * dim;
        scratch
            .keys_transposed
            .fill_transposed(&kept.keys[at..], rows, dim, key_width);
        scratch
            .values_transposed
            .fill_transposed(&kept.values[at..], rows, dim, key_width);
        copy_head(kept.keys, key_width, at, dim, padded, &mut scratch.keys);
        for sums in [&mut scratch.dkeys, &mut scratch.dvalues] {
            sums.clear();
            sums.resize(rows * padded, 0.0);
        }
        for head in key_head * group..(key_head + 1) * group {
            query_head(heads, head, kept, dout, grads.queries, scratch);
        }
        for (sums, target) in [
            (&scratch.dkeys, &mut *grads.keys),
            (&scratch.dvalues, &mut *grads.values),
        ] {
            for (from, to) in sums.chunks_exact(padded).zip(target.chunks_exact_mut(key_width)) {
                to[at..at + dim].copy_from_slice(&from[..dim]);
            }
        }
    }
}

fn query_head(
    heads: Heads,
    head: usize,
    kept: Kept<'_>,
    dout: &[f32],
    dqueries: &mut [f32],
    scratch: &mut AttentionScratch,
) {
    let (dim, padded, width) = (heads.dim, heads.padded(), heads.query_width());
    let rows = kept.queries.len() / width;
    let at = head * dim;
    copy_head(kept.queries, width, at, dim, padded, &mut scratch.queries);
    copy_head(dout, width, at, dim, padded, &mut scratch.upstream);
    for first in (0..rows).step_by(QUERY_BLOCK) {
        let block = QUERY_BLOCK.min(rows - first);
        let seen = first + block;
        let stride = seen.next_multiple_of(LANES);
        let s = &mut *scratch;
        for buffer in [&mut s.probabilities, &mut s.dscores] {
            buffer.resize(buffer.len().max(block * stride), 0.0);
        }
        let queries = &s.queries[first * padded..];
        let upstream = &s.upstream[first * padded..];
        let shape = (block, seen, dim);
        let keys = s.keys_transposed.right();
        multiply(
            shape,
            Left::rows(queries, padded),
            keys,
            &mut s.probabilities,
            stride,
            Store::Replace,
        );
        let values = s.values_transposed.right();
        multiply(
            shape,
            Left::rows(upstream, padded),
            values,
            &mut s.dscores,
            stride,
            Store::Replace,
        );
        let pairs = s
            .probabilities
            .chunks_exact_mut(stride)
            .zip(s.dscores.chunks_exact_mut(stride));
        for (i, (p, dp)) in pairs.take(block).enumerate() {
            let row = first + i;
            softmax_again(p, row + 1, heads.scale(), kept.log_sums[head * rows + row]);
            let mean = dot(&upstream[i * padded..][..dim], &kept.out[row * width + at..][..dim]);
            // The tail behind `seen` was not written by the products: it must not carry another block's numbers.
            dp[row + 1..].fill(0.0);
            softmax_backward(p, dp, mean, heads.scale());
        }
        let keys = Right::rows(&s.keys, padded);
        let to = &mut dqueries[first * width + at..];
        multiply(
            (block, dim, seen),
            Left::rows(&s.dscores, stride),
            keys,
            to,
            width,
            Store::Replace,
        );
        let shape = (seen, padded, block);
        let (dscores, p) = (
            Left::columns(&s.dscores, stride),
            Left::columns(&s.probabilities, stride),
        );
        multiply(
            shape,
            dscores,
            Right::rows(queries, padded),
            &mut s.dkeys,
            padded,
            Store::Add,
        );
        multiply(
            shape,
            p,
            Right::rows(upstream, padded),
            &mut s.dvalues,
            padded,
            Store::Add,
        );
    }
}

/// Columns `at..at + dim` of every row, each padded with zeros to `padded`.
fn copy_head(rows: &[f32], width: usize, at: usize, dim: usize, padded: usize, out: &mut Vec<f32>) {
    out.clear();
    out.resize(rows.len() / width * padded, 0.0);
    for (from, to) in rows.chunks_exact(width).zip(out.chunks_exact_mut(padded)) {
        to[..dim].copy_from_slice(&from[at..at + dim]);
    }
}
