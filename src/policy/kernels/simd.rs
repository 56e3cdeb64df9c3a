//! The vector unit that was found at run time, and the few operations that the product kernel needs of it.
//!
//! x86-64 with AVX2 and FMA has a path of its own; every other machine takes the portable one, which the compiler
//! vectorises for the target's baseline (NEON on aarch64).
#![expect(
    clippy::inline_always,
    reason = "these bodies must be compiled inside the caller's target features"
)]
#![expect(
    unsafe_code,
    reason = "vector loads and stores through pointers whose bounds the callers have checked"
)]

/// Instruction set to use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// The best level of this machine (detection is cached by the standard library).
#[inline]
pub(crate) fn level() -> Level {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
        return Level::Avx2;
    }
    Level::Portable
}

/// A register of f32 lanes.
pub(crate) trait Simd: Copy {
    const WIDTH: usize;
    unsafe fn zero() -> Self;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    /// `a * b + c`
    unsafe fn multiply_add(a: Self, b: Self, c: Self) -> Self;
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::{
        __m256, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_set1_ps, _mm256_setzero_ps, _mm256_storeu_ps,
    };

    impl super::Simd for __m256 {
        const WIDTH: usize = 8;
        #[inline(always)]
        unsafe fn zero() -> Self {
            // SAFETY: only reached under `target_feature(avx2, fma)`, like all of this block.
            unsafe { _mm256_setzero_ps() }
        }
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: see `zero`.
            unsafe { _mm256_set1_ps(value) }
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: see `zero`; the caller vouches for the pointer.
            unsafe { _mm256_loadu_ps(from) }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: see `zero`; the caller vouches for the pointer.
            unsafe { _mm256_storeu_ps(to, self) }
        }
        #[inline(always)]
        unsafe fn multiply_add(a: Self, b: Self, c: Self) -> Self {
            // SAFETY: see `zero`.
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
    }
}

/// Eight lanes for the compiler to vectorise.
#[derive(Clone, Copy)]
pub(crate) struct Portable([f32; 8]);

impl Simd for Portable {
    const WIDTH: usize = 8;
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 8])
    }
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Self([value; 8])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller vouches for eight floats at the pointer.
        Self(unsafe { std::ptr::read_unaligned(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller vouches for room for eight floats at the pointer.
        unsafe { std::ptr::write_unaligned(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(a: Self, b: Self, c: Self) -> Self {
        Self(std::array::from_fn(|i| {
            // Without a fused instruction in the baseline, `mul_add` would be a library call.
            if cfg!(target_arch = "aarch64") {
                a.0[i].mul_add(b.0[i], c.0[i])
            } else {
                a.0[i] * b.0[i] + c.0[i]
            }
        }))
    }
}

/// Compiles each function twice, for the baseline and for AVX2, and picks at run time.
macro_rules! vectorised {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma")]
            fn avx2($($arg: $ty),*) $(-> $ret)? { body($($arg),*) }
            match $crate::kernels::simd::level() {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the features were detected at run time.
                $crate::kernels::simd::Level::Avx2 => unsafe { avx2($($arg),*) },
                $crate::kernels::simd::Level::Portable => body($($arg),*),
            }
        }
    )*};
}
pub(crate) use vectorised;
