//! Metrics that no single module below can see: of a whole rollout, of an update, of a validation.

use std::collections::HashSet;

use crate::metrics::{StepMetrics, mean};
use crate::rollout::{EvalReport, RolloutSummary};
use crate::train::StepReport;
use crate::trajectory::Episode;

use super::evaluation::Evaluation;

/// What sampling the step's episodes came to. `seconds` is the wall time of the whole phase.
pub(super) fn rollout(metrics: &mut StepMetrics, episodes: &[Episode], seconds: f64, concurrency: u32) {
    let summary = RolloutSummary::of(episodes);
    let each = |of: fn(&Episode) -> f32| {
        episodes
            .iter()
            .map(|episode| f64::from(of(episode)))
            .collect::<Vec<_>>()
    };
    let average = |of: fn(&Episode) -> f32| {
        if episodes.is_empty() { 0.0 } else { mean(&each(of)) }
    };
    metrics.set("timing_s/gen", seconds);
    // Trials overlap: their verifier seconds are spread over the trials that run at a time.
    metrics.set(
        "timing_s/reward",
        each(|episode| episode.timings.verify_s).iter().sum::<f64>() / f64::from(concurrency.max(1)),
    );
    metrics.set(
        "rollout/env_setup_s/mean",
        average(|episode| episode.timings.env_setup_s),
    );
    metrics.set("rollout/model_s/mean", average(|episode| episode.timings.model_s));
    metrics.set("rollout/tool_s/mean", average(|episode| episode.timings.tool_s));
    metrics.set("rollout/verify_s/mean", average(|episode| episode.timings.verify_s));
    metrics.set("rollout/retries", summary.retries as f64);
    metrics.set("rollout/sampled_tokens", summary.tokens as f64);
    if seconds > 0.0 {
        metrics.set("rollout/tokens_per_s", summary.tokens as f64 / seconds);
    }
    metrics.set(
        "rollout/delivered_fraction/min",
        episodes
            .iter()
            .map(|episode| f64::from(episode.audit.delivered_fraction))
            .fold(1.0, f64::min),
    );
    metrics.set(
        "rollout/parse_errors",
        episodes.iter().map(|e| f64::from(e.audit.num_parse_errors)).sum(),
    );
    for row in &summary.outcomes {
        metrics.set(format!("rollout/outcome/{}", row.outcome), row.trials as f64);
    }
    let groups: HashSet<_> = episodes.iter().map(|episode| &episode.group_id).collect();
    let sum = |of: fn(&Episode) -> u32| episodes.iter().map(|episode| f64::from(of(episode))).sum::<f64>();
    metrics.set("rollout/episodes", episodes.len() as f64);
    metrics.set("rollout/groups", groups.len() as f64);
    let flagged = episodes.iter().filter(|episode| !episode.hack_flags.is_empty());
    metrics.set("rollout/hack_flags", flagged.count() as f64);
    metrics.set(
        "capture/delivered_fraction",
        average(|episode| episode.audit.delivered_fraction),
    );
    metrics.set("capture/rewrites", sum(|episode| episode.audit.n_rewrites));
    metrics.set("capture/discarded", sum(|episode| episode.audit.n_discarded));
    metrics.set(
        "capture/segments",
        episodes.iter().map(|episode| episode.segments.len() as f64).sum(),
    );
}

/// What the update says of itself.
pub(super) fn update(metrics: &mut StepMetrics, report: &StepReport) {
    for (name, value) in &report.metrics {
        metrics.set(name.clone(), *value);
    }
}

/// Scores of a validation.
pub(super) fn evaluation(metrics: &mut StepMetrics, evaluation: &Evaluation) {
    each(&evaluation.sampled, |name, score| {
        metrics.set(format!("val/{name}/pass@1"), score.pass_at_1);
        metrics.set(format!("val/{name}/standard_error"), score.pass_at_1_se);
        metrics.set(format!("val/{name}/tasks"), score.tasks as f64);
        if score.k > 1 {
            metrics.set(format!("val/{name}/pass@{}", score.k), score.pass_at_k);
        }
        if score.tasks_without_reward > 0 {
            metrics.set(
                format!("val/{name}/tasks_without_reward"),
                score.tasks_without_reward as f64,
            );
        }
    });
    if let Some(greedy) = &evaluation.greedy {
        each(greedy, |name, score| {
            metrics.set(format!("val/{name}/greedy"), score.pass_at_1);
        });
    }
}

fn each(report: &EvalReport, mut set: impl FnMut(&str, &crate::rollout::SeriesScore)) {
    for score in &report.series {
        set(&score.series, score);
    }
}
