//! What a policy came to.

use schemars::JsonSchema;
use serde::Serialize;

use super::run::Outcome;

/// What a policy came to under a load.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Report {
    /// Its name.
    pub policy: String,
    /// Sessions at a time.
    pub sessions: usize,
    /// Tokens sampled a second.
    pub output_tokens_per_s: f64,
    /// Share of prompt tokens that were found in a cache.
    pub hit_rate: f64,
    /// Tokens computed a second time, for each that was sampled.
    pub recomputed_per_output: f64,
    /// Longest hold of a turn, in seconds.
    pub max_hold_s: f64,
    /// Seconds from the first turn to the end of the last session; null where there is always a next one.
    pub makespan_s: Option<f64>,
    /// Seconds from the wish to send a turn to its last token.
    pub turn_latency_s: Latency,
    /// Times that an idle session lost its place.
    pub pauses: u64,
}

/// Quantiles, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// Nine of ten are shorter.
    pub p90: f64,
    /// 99 of 100 are shorter.
    pub p99: f64,
}

impl Report {
    pub(super) fn of(policy: String, sessions: usize, outcome: &Outcome) -> Self {
        let work = outcome.work;
        let per = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let quantile = |share: f64| match outcome.latencies.as_slice() {
            [] => 0.0,
            latencies => crate::metrics::quantile(latencies, share),
        };
        Self {
            policy,
            sessions,
            output_tokens_per_s: work.sampled as f64 / outcome.seconds.max(1e-9),
            hit_rate: per(work.cached, work.prompts),
            recomputed_per_output: per(work.again, work.sampled),
            max_hold_s: outcome.stats.longest_hold,
            makespan_s: outcome.makespan,
            turn_latency_s: Latency {
                p50: quantile(0.5),
                p90: quantile(0.9),
                p99: quantile(0.99),
            },
            pauses: outcome.stats.paused,
        }
    }
}
