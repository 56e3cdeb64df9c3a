//! Element-wise pieces of the decoder and their derivatives, on plain rows: RMS norm, rotary embedding, SwiGLU,
//! softmax. Sums run over sixteen lanes in a fixed order, so a row's result never depends on its neighbours.
#![expect(
    clippy::inline_always,
    reason = "these bodies must be compiled inside the caller's target features"
)]
#![expect(
    unsafe_code,
    reason = "calls functions compiled for a vector unit that was detected at run time"
)]

use super::simd::vectorised;

const LANES: usize = 16;

#[inline(always)]
fn fold(lanes: [f32; LANES], rest: f32) -> f32 {
    let mut width = LANES / 2;
    let mut lanes = lanes;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0] + rest
}

#[inline(always)]
fn dot_body(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (ca, ra) = a.as_chunks::<LANES>();
    let (cb, rb) = b.as_chunks::<LANES>();
    for (x, y) in ca.iter().zip(cb) {
        for i in 0..LANES {
            lanes[i] += x[i] * y[i];
        }
    }
    fold(lanes, ra.iter().zip(rb).map(|(x, y)| x * y).sum())
}

#[inline(always)]
fn max_body(row: &[f32]) -> f32 {
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = row.as_chunks::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            lanes[i] = if chunk[i] > lanes[i] { chunk[i] } else { lanes[i] };
        }
    }
    lanes
        .iter()
        .chain(rest)
        .fold(f32::NEG_INFINITY, |max, x| if *x > max { *x } else { max })
}

/// e^x to about one unit in the last place of f32 (Cephes' reduction and polynomial); below −87 it flushes to e^−87.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const MAGIC: f32 = 12_582_912.0; // 1.5 · 2²³: adding and taking it away rounds to a whole number
    let x = x.clamp(-87.0, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + MAGIC;
    let n = shifted - MAGIC;
    let r = (x - n * 0.693_359_4) - n * -2.121_944_4e-4;
    let p = 1.987_569_1e-4;
    let p = p * r + 1.398_199_9e-3;
    let p = p * r + 8.333_452e-3;
    let p = p * r + 4.166_579_6e-2;
    let p = p * r + 1.666_666_5e-1;
    let p = p * r + 0.5;
    let p = p * r * r + r + 1.0;
    // The low bits of `shifted` hold n; moved into the exponent's place they make 2^n.
    p * f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23))
}

/// What a softmax row sums to: `log Σ exp` and the entropy of the distribution.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SoftmaxRow {
    pub(crate) log_sum: f32,
    pub(crate) entropy: f32,
}

vectorised! {
    /// Σ a·b
    fn dot(a: &[f32], b: &[f32]) -> f32 {
        dot_body(a, b)
    }

    /// `a += b`
    fn add(a: &mut [f32], b: &[f32]) {
        for (a, b) in a.iter_mut().zip(b) {
            *a += b;
        }
    }

    /// Adds `bias` to each row of `rows`.
    fn add_to_rows(rows: &mut [f32], bias: &[f32]) {
        for row in rows.chunks_exact_mut(bias.len()) {
            for (a, b) in row.iter_mut().zip(bias) {
                *a += b;
            }
        }
    }

    /// Adds each row of `rows` to `sum`, in order.
    fn add_rows_to(rows: &[f32], sum: &mut [f32]) {
        for row in rows.chunks_exact(sum.len()) {
            for (a, b) in sum.iter_mut().zip(row) {
                *a += b;
            }
        }
    }

    /// Rows of `x` divided by their root mean square, times `weight`; `scales` keeps 1/rms of each row.
    fn rms_norm(x: &[f32], weight: &[f32], eps: f32, scales: &mut [f32], out: &mut [f32]) {
        let d = weight.len();
        for ((x, out), scale) in x.chunks_exact(d).zip(out.chunks_exact_mut(d)).zip(scales) {
            *scale = 1.0 / (dot_body(x, x) / d as f32 + eps).sqrt();
            for i in 0..d {
                out[i] = x[i] * *scale * weight[i];
            }
        }
    }

    /// Derivative of [`rms_norm`]: adds to `dx` and to `dweight`.
    fn rms_norm_backward(dy: &[f32], x: &[f32], weight: &[f32], scales: &[f32], dx: &mut [f32], dweight: &mut [f32]) {
        let d = weight.len();
        let rows = dy.chunks_exact(d).zip(x.chunks_exact(d)).zip(scales).zip(dx.chunks_exact_mut(d));
        for (((dy, x), &scale), dx) in rows {
            let mut lanes = [0f32; LANES];
            let whole = d / LANES * LANES;
            for c in (0..whole).step_by(LANES) {
                let (g, w, v) = (&dy[c..c + LANES], &weight[c..c + LANES], &x[c..c + LANES]);
                for i in 0..LANES {
                    lanes[i] += g[i] * w[i] * v[i];
                }
            }
            let rest = (whole..d).map(|i| dy[i] * weight[i] * x[i]).sum();
            let mean = fold(lanes, rest) * scale * scale / d as f32;
            for i in 0..d {
                dweight[i] += dy[i] * x[i] * scale;
                dx[i] += scale * (dy[i] * weight[i] - x[i] * mean);
            }
        }
    }

    /// Rotates the halves of each head of one row: `(a, b) → (a·cos − b·sin, b·cos + a·sin)`.
    fn rotate(row: &mut [f32], cos: &[f32], sin: &[f32]) {
        let half = cos.len();
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y) = (a[i], b[i]);
                a[i] = x * cos[i] - y * sin[i];
                b[i] = y * cos[i] + x * sin[i];
            }
        }
    }

    /// The inverse (and transpose) of [`rotate`].
    fn rotate_back(row: &mut [f32], cos: &[f32], sin: &[f32]) {
        let half = cos.len();
        for head in row.chunks_exact_mut(2 * half) {
            let (a, b) = head.split_at_mut(half);
            for i in 0..half {
                let (x, y) = (a[i], b[i]);
                a[i] = x * cos[i] + y * sin[i];
                b[i] = y * cos[i] - x * sin[i];
            }
        }
    }

    /// `out = silu(gate) · up`
    fn swiglu(gate: &[f32], up: &[f32], out: &mut [f32]) {
        for ((g, u), o) in gate.iter().zip(up).zip(out) {
            *o = g / (1.0 + exp(-g)) * u;
        }
    }

    /// Derivative of [`swiglu`]: overwrites `gate` and `up` by their gradients.
    fn swiglu_backward(dout: &[f32], gate: &mut [f32], up: &mut [f32]) {
        for ((d, g), u) in dout.iter().zip(gate).zip(up) {
            let sigmoid = 1.0 / (1.0 + exp(-*g));
            let silu = *g * sigmoid;
            let slope = sigmoid + silu * (1.0 - sigmoid);
            *g = d * *u * slope;
            *u = d * silu;
        }
    }

    /// Softmax of `scores[..valid] · scale` in place, zeros behind; gives `log Σ exp`.
    fn softmax(scores: &mut [f32], valid: usize, scale: f32) -> f32 {
        let (row, tail) = scores.split_at_mut(valid);
        let (max, sum) = exponentials(row, scale);
        let inverse = 1.0 / sum;
        for s in row {
            *s *= inverse;
        }
        tail.fill(0.0);
        max + sum.ln()
    }

    /// The softmax once more, from its `log Σ exp`: `exp(s·scale − log_sum)`, zeros behind `valid`.
    fn softmax_again(scores: &mut [f32], valid: usize, scale: f32, log_sum: f32) {
        let (row, tail) = scores.split_at_mut(valid);
        for s in row {
            *s = exp(*s * scale - log_sum);
        }
        tail.fill(0.0);
    }

    /// `dp = p · (dp − mean) · scale`: back through the softmax.
    fn softmax_backward(p: &[f32], dp: &mut [f32], mean: f32, scale: f32) {
        for (p, d) in p.iter().zip(dp) {
            *d = p * (*d - mean) * scale;
        }
    }

    /// `log Σ exp` and entropy of `logits · scale`, leaving the probabilities in `logits`.
    fn distribution(logits: &mut [f32], scale: f32) -> SoftmaxRow {
        let mut lanes = [0f32; LANES];
        let max = max_body(logits) * scale;
        let mut weighted = [0f32; LANES];
        let (chunks, rest) = logits.as_chunks_mut::<LANES>();
        for chunk in chunks {
            for i in 0..LANES {
                let z = chunk[i] * scale - max;
                let e = exp(z);
                lanes[i] += e;
                weighted[i] += e * z;
                chunk[i] = e;
            }
        }
        let (mut sum, mut weight) = (0.0, 0.0);
        for l in rest.iter_mut() {
            let z = *l * scale - max;
            *l = exp(z);
            sum += *l;
            weight += *l * z;
        }
        let sum = fold(lanes, sum);
        let inverse = 1.0 / sum;
        for l in logits.iter_mut() {
            *l *= inverse;
        }
        let log = sum.ln();
        SoftmaxRow { log_sum: max + log, entropy: log - fold(weighted, weight) * inverse }
    }

    /// Gradient of `a·log p[target] + b·H` for the logits, over the probabilities `p` in place:
    /// `scale · (a·(onehot − p) − b·p·(log p + H))`; the caller adds the one-hot part.
    fn distribution_backward(p: &mut [f32], a: f32, b: f32, entropy: f32, scale: f32) {
        if b == 0.0 {
            for p in p {
                *p *= -a * scale;
            }
        } else {
            for p in p {
                // p·log p tends to 0 with p.
                let log = p.max(f32::MIN_POSITIVE).ln();
                *p *= -scale * (a + b * (log + entropy));
            }
        }
    }

    /// `p = p·decay − rate·m̂/(√v̂ + eps)` with the moments updated by the gradient `g·clip` (AdamW as PyTorch has it).
    fn adamw(p: &mut [f32], g: &[f32], m: &mut [f32], v: &mut [f32], constants: AdamWConstants) {
        let c = constants;
        for (((p, g), m), v) in p.iter_mut().zip(g).zip(m).zip(v) {
            let g = g * c.clip;
            *m += (g - *m) * c.one_minus_beta1;
            *v = *v * c.beta2 + g * g * c.one_minus_beta2;
            let denominator = v.sqrt() / c.root_correction2 + c.eps;
            *p = *p * c.decay - c.rate * (*m / denominator);
        }
    }
}

/// The numbers of one AdamW step that are the same for every parameter.
#[derive(Clone, Copy)]
pub(crate) struct AdamWConstants {
    pub(crate) clip: f32,
    pub(crate) one_minus_beta1: f32,
    pub(crate) beta2: f32,
    pub(crate) one_minus_beta2: f32,
    pub(crate) eps: f32,
    /// `√(1 − beta2^t)`
    pub(crate) root_correction2: f32,
    /// `1 − lr · weight_decay`
    pub(crate) decay: f32,
    /// `lr / (1 − beta1^t)`
    pub(crate) rate: f32,
}

#[inline(always)]
fn exponentials(row: &mut [f32], scale: f32) -> (f32, f32) {
    let max = max_body(row) * scale;
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = row.as_chunks_mut::<LANES>();
    for chunk in chunks {
        for i in 0..LANES {
            chunk[i] = exp(chunk[i] * scale - max);
            lanes[i] += chunk[i];
        }
    }
    let mut sum = 0.0;
    for s in rest {
        *s = exp(*s * scale - max);
        sum += *s;
    }
    (max, fold(lanes, sum))
}
