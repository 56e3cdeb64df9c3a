//! Arithmetic of the correction's metrics, in f64.

use crate::train::report::Metrics;

/// Under `rollout_corr/`.
pub(super) fn insert(metrics: &mut Metrics, name: &str, value: f64) {
    metrics.insert(format!("rollout_corr/{name}"), value);
}

/// The mean; 0 of nothing.
pub(super) fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    if count > 0.0 { sum / count } else { 0.0 }
}

/// Share of what is true; 0 of nothing.
pub(super) fn share(values: impl Iterator<Item = bool>) -> f64 {
    mean(values.map(|value| f64::from(u8::from(value))))
}

/// Standard deviation with n − 1; 0 of fewer than two values.
pub(super) fn sample_std(values: &[f64]) -> f64 {
    if values.len() < 2 {
        0.0
    } else {
        crate::metrics::sample_std(values)
    }
}
