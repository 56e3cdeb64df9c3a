//! `lego train --plan`: what an earlier run says of how long things take.

use std::path::Path;

use super::PipelineError;
use crate::buffer::plan::{Durations, Setting};
use crate::config::RunConfig;
use crate::run_dir::{RunDir, read_metrics};
use crate::shard::ShardReader;

/// Parts of a step that are the trainer's.
const UPDATE: [&str; 6] = [
    "timing_s/old_log_prob",
    "timing_s/ref",
    "timing_s/values",
    "timing_s/adv",
    "timing_s/update_critic",
    "timing_s/update_actor",
];

/// The run's own setting.
pub fn setting_of(config: &RunConfig) -> Setting {
    Setting {
        required: config.groups_per_update(),
        group_size: config.rollout.group_size,
        concurrency: config.sandbox.concurrency,
        trigger: config.r#async.trigger_sync_step,
        staleness: config.r#async.staleness,
    }
}

/// Durations of a run that has trained: its trials, and the mean of its updates and publications.
pub async fn measured(run: &Path) -> Result<Durations, PipelineError> {
    let dir = RunDir::open(run)?;
    let steps: Vec<_> = read_metrics(&dir.metrics())?
        .into_iter()
        .filter(|step| step.step > 0)
        .collect();
    if steps.is_empty() {
        return Err(PipelineError::Nothing(format!(
            "{} has no step whose durations could be taken",
            run.display()
        )));
    }
    let mean = |names: &[&str]| {
        let all = steps
            .iter()
            .map(|step| names.iter().filter_map(|name| step.get(name)).sum::<f64>());
        all.sum::<f64>() / steps.len() as f64
    };
    let rows = dir.rows()?;
    let reader = ShardReader::open_places(std::slice::from_ref(&rows)).await?;
    let trials: Vec<f64> = reader
        .with_columns(&["total_s", "segment_index"])?
        .rows()
        .await?
        .iter()
        .filter(|row| row.segment_index == 0 && row.total_s > 0.0)
        .map(|row| f64::from(row.total_s))
        .collect();
    if trials.is_empty() {
        return Err(PipelineError::Nothing(format!("{rows} holds no trial")));
    }
    Ok(Durations {
        trials,
        update: mean(&UPDATE),
        publish: mean(&["timing_s/sync_weights"]),
    })
}
