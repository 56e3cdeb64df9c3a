//! Trials to durable episodes: what a step samples is on disk before anyone hears of it.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::PipelineError;
use crate::rollout::{RolloutEvent, TrialContext, TrialPlan, run_all};
use crate::shard::ShardWriter;
use crate::trajectory::Episode;

/// Runs the trials of one step and hands back their episodes once all of them are durable.
///
/// After `stop` no further trial begins; those that run end by themselves, and fewer episodes come back.
pub(super) async fn generate(
    context: &Arc<TrialContext>,
    plans: Vec<TrialPlan>,
    concurrency: usize,
    writer: &mut ShardWriter,
    stop: &CancellationToken,
) -> Result<Vec<Episode>, PipelineError> {
    let mut episodes = Vec::with_capacity(plans.len());
    let written = |paths: Vec<std::path::PathBuf>| {
        for path in paths {
            (context.observer)(RolloutEvent::ShardWritten(path));
        }
    };
    let result = run_all(context, plans, concurrency, stop, |episode| {
        written(writer.push(&episode)?);
        written(writer.flush_due()?);
        episodes.push(episode);
        Ok::<(), PipelineError>(())
    })
    .await;
    // Also after a failure: finished episodes are not lost.
    written(writer.flush()?);
    result.map(|()| episodes)
}
