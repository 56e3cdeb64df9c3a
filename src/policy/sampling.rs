//! Draws a token from logits: temperature, top-k, top-p, min-p, a seeded generator, and the log-probs of what was drawn.
//!
//! The order of the cuts is vLLM's (`processed_logprobs`): temperature, then min-p, then top-k, then top-p.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;

#[cfg(test)]
mod tests;

/// How to draw.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 takes the most probable token.
    pub temperature: f32,
    /// Keeps the fewest tokens whose probabilities reach this sum; 1 keeps all.
    pub top_p: f32,
    /// Keeps this many of the most probable tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps tokens of at least this share of the greatest probability; 0 keeps all.
    pub min_p: f32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_p: 1.0,
            top_k: 0,
            min_p: 0.0,
        }
    }
}

/// A sampling parameter out of its range.
#[derive(Debug, thiserror::Error, PartialEq)]
#[error("`{name}` should be {expected}, found {found}")]
pub struct SamplingError {
    pub name: &'static str,
    pub expected: &'static str,
    pub found: f32,
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    pub token: u32,
    /// Log-prob under the distribution it was drawn from: after temperature, over the tokens kept (all of them when
    /// nothing is cut). At temperature 0, that of the unscaled distribution.
    pub logprob: f32,
    /// Log-prob at temperature 1 over the whole vocabulary.
    pub raw_logprob: f32,
}

/// Draws tokens for one request, reproducibly from its seed.
#[derive(Clone, Debug)]
pub struct Sampler {
    sampling: Sampling,
    rng: ChaCha12Rng,
    /// Candidates (scaled logit, token) of the draw at hand.
    candidates: Vec<(f32, u32)>,
}

impl Sampler {
    /// # Errors
    /// [`SamplingError`] names the parameter.
    pub fn new(sampling: Sampling, seed: u64) -> Result<Self, SamplingError> {
        let Sampling {
            temperature,
            top_p,
            min_p,
            ..
        } = sampling;
        let wrong = |name, expected, found| Err(SamplingError { name, expected, found });
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return wrong("temperature", "a number of at least 0", temperature);
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return wrong("top_p", "above 0 and at most 1", top_p);
        }
        if !(0.0..=1.0).contains(&min_p) {
            return wrong("min_p", "between 0 and 1", min_p);
        }
        Ok(Self {
            sampling,
            rng: ChaCha12Rng::seed_from_u64(seed),
            candidates: Vec::new(),
        })
    }

    /// Draws from `logits`, one per token of the vocabulary. Logits that are not numbers are never drawn; without a
    /// single usable one, token 0 comes back with log-probs that are not numbers.
    pub fn sample(&mut self, logits: &[f32]) -> Sampled {
        let raw = log_sum_exp(logits.iter().map(|l| f64::from(*l)));
        let raw_logprob = |token: u32| logits.get(token as usize).map_or(f64::NAN, |l| f64::from(*l) - raw) as f32;
        let Sampling {
            temperature,
            top_p,
            top_k,
            min_p,
        } = self.sampling;
        if temperature == 0.0 {
            // The first of equals, so that the choice does not depend on anything else.
            let best = (0u32..)
                .zip(logits)
                .fold((0, f32::NEG_INFINITY), |best, (token, logit)| {
                    if *logit > best.1 { (token, *logit) } else { best }
                });
            return Sampled {
                token: best.0,
                logprob: raw_logprob(best.0),
                raw_logprob: raw_logprob(best.0),
            };
        }
        self.candidates.clear();
        let usable = (0u32..).zip(logits).filter(|(_, logit)| **logit > f32::NEG_INFINITY);
        self.candidates
            .extend(usable.map(|(token, logit)| (logit / temperature, token)));
        self.cut(min_p, top_k, top_p);
        let sum = log_sum_exp(self.candidates.iter().map(|(logit, _)| f64::from(*logit)));
        let mut left = self.rng.random::<f64>();
        let mut drawn = None;
        for (logit, token) in &self.candidates {
            let logprob = f64::from(*logit) - sum;
            left -= logprob.exp();
            drawn = Some((*token, logprob as f32));
            if left < 0.0 {
                break;
            }
        }
        let (token, logprob) = drawn.unwrap_or((0, f32::NAN));
        Sampled {
            token,
            logprob,
            raw_logprob: raw_logprob(token),
        }
    }

    fn cut(&mut self, min_p: f32, top_k: usize, top_p: f32) {
        let candidates = &mut self.candidates;
        if min_p > 0.0 {
            let max = candidates
                .iter()
                .fold(f32::NEG_INFINITY, |max, (logit, _)| max.max(*logit));
            candidates.retain(|(logit, _)| *logit >= max + min_p.ln());
        }
        let cuts_k = top_k > 0 && top_k < candidates.len();
        if !cuts_k && top_p >= 1.0 {
            return;
        }
        // Most probable first, equals by token.
        let order = |a: &(f32, u32), b: &(f32, u32)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1));
        if cuts_k {
            candidates.select_nth_unstable_by(top_k - 1, order);
            candidates.truncate(top_k);
        }
        candidates.sort_unstable_by(order);
        if top_p < 1.0 {
            let sum = log_sum_exp(candidates.iter().map(|(logit, _)| f64::from(*logit)));
            let mut mass = 0.0;
            let before = |(logit, _): &(f32, u32)| {
                let reached = mass >= f64::from(top_p);
                mass += (f64::from(*logit) - sum).exp();
                reached
            };
            if let Some(end) = candidates.iter().position(before) {
                candidates.truncate(end);
            }
        }
    }
}

/// `log Σ e^x`, infinities and NaN of single logits left out.
fn log_sum_exp(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let max = values.clone().fold(f64::NEG_INFINITY, f64::max);
    max + values
        .filter(|v| !v.is_nan())
        .map(|v| (v - max).exp())
        .sum::<f64>()
        .ln()
}
