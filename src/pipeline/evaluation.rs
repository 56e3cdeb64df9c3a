//! Validation: every task of every set, sampled and greedy, scored and never trained on.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::generate::generate;
use super::{PipelineError, TaskEntry, plans};
use crate::config::RunConfig;
use crate::rollout::{EvalReport, TrialContext, TrialPlan, score};
use crate::shard::ShardWriter;
use crate::trajectory::Episode;

/// Scores of one validation.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, schemars::JsonSchema)]
pub struct Evaluation {
    /// With `eval.samples` samples a task at `eval.temperature`.
    pub sampled: EvalReport,
    /// With one greedy answer a task, where `eval.greedy` asks for it.
    pub greedy: Option<EvalReport>,
}

impl Evaluation {
    /// The scores by which checkpoints are compared: pass@1 of each set, with its name.
    pub fn by_set(&self) -> impl Iterator<Item = (&str, f64)> {
        let sets = self.sampled.series.iter().filter(|series| !series.series.contains('/'));
        sets.map(|set| (set.series.as_str(), set.pass_at_1))
    }
}

/// Validates the served policy. `None` where there is no task, or where it was asked to stop on the way.
pub(super) async fn evaluate(
    context: &Arc<TrialContext>,
    config: &RunConfig,
    tasks: &[TaskEntry],
    step: u32,
    writer: &mut ShardWriter,
    stop: &CancellationToken,
) -> Result<Option<Evaluation>, PipelineError> {
    let plans: Vec<TrialPlan> = tasks
        .iter()
        .flat_map(|entry| plans::validation(config, entry, step))
        .collect();
    let planned = plans.len();
    if planned == 0 {
        return Ok(None);
    }
    let episodes = generate(context, plans, config.sandbox.concurrency as usize, writer, stop).await?;
    if episodes.len() < planned {
        return Ok(None);
    }
    Ok(Some(scores(&episodes, config.eval.greedy)))
}

/// Scores the episodes of a validation; with `greedy`, those at temperature 0 by themselves.
pub(super) fn scores(episodes: &[Episode], greedy: bool) -> Evaluation {
    let (at_zero, sampled): (Vec<_>, Vec<_>) = episodes
        .iter()
        .partition(|episode| greedy && episode.sampling.temperature == 0.0);
    Evaluation {
        sampled: score(sampled, series_of),
        greedy: greedy.then(|| score(at_zero, series_of)),
    }
}

/// A set as a whole, and each source of its tasks.
fn series_of(episode: &Episode) -> Vec<String> {
    let set = episode.data_source.split('/').next().unwrap_or_default().to_owned();
    vec![set, episode.data_source.clone()]
}
