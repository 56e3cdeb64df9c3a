//! Every metric: its name, unit, direction and one line of help; and the statistics over samples.
//!
//! One table names them all, so that files, terminal, TensorBoard and dashboard agree. This module
//! computes no metric of training itself.

mod names;
mod statistics;
mod step;

pub use names::{Direction, METRICS, Metric, describe};
pub use statistics::{Trend, mean, pearson, quantile, sample_std, standard_error, trend};
pub use step::{MetricsLineError, StepMetrics};

/// The JSON Schemas of this module's lines, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("metrics", schemars::schema_for!(StepMetrics))]
}
