//! Numeric kernels on plain slices: matrix product, element-wise pieces, attention.
//!
//! One set serves decoding and training on the CPU, so that a token's log-prob is the same in both. Nothing here
//! knows of tensors, files or models.

pub(crate) mod attention;
pub(crate) mod attention_backward;
pub(crate) mod gemm;
pub(crate) mod pack;
pub(crate) mod simd;
pub(crate) mod vector;
