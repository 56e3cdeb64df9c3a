//! The update of a configuration, and what the ledger hears of it.

use std::collections::HashMap;

use super::run::OpenRun;
use super::{PipelineError, PipelineEvent, PipelineObserver};
use crate::config::{EngineSection, RunConfig};
use crate::train::{Filter, Metrics, Recipe, StepReport, UpdateSettings, Updater, Window};
use crate::trajectory::EpisodeId;

/// An updater for a configuration.
pub(super) fn updater(config: &RunConfig, group_size: Option<usize>) -> Result<Updater, PipelineError> {
    let recipe = Recipe::from_section(&config.train, config.rollout.groups_per_step)
        .map_err(|error| PipelineError::Config(error.to_string()))?;
    let filter = Filter::from_sections(&config.filter, config.sandbox.hack_policy.unwrap_or_default())
        .map_err(|error| PipelineError::Config(error.to_string()))?;
    let reference = match recipe.kl {
        Some(_) => Some(lego_policy::Trainer::new(
            lego_policy::Weights::load(&config.policy.model)?,
            super::trainer::device(config.policy.device),
            lego_policy::AdamW::default(),
        )?),
        None => None,
    };
    let window = Window {
        prompt: config.data.max_prompt_tokens as usize,
        response: config.data.max_response_tokens as usize,
    };
    Ok(Updater::new(
        UpdateSettings {
            recipe,
            filter,
            window,
            group_size,
            seed: config.run.seed,
        },
        reference,
    )?)
}

/// Says that a step did not update anything, and why.
pub(super) fn tell_of_skip(step: u32, report: &StepReport, observer: &PipelineObserver) {
    if let Some(skip) = &report.skipped {
        observer(PipelineEvent::Warning(format!(
            "step {step} took no optimizer step: {skip}"
        )));
    }
}

/// Correlation of the engine's and the trainer's probabilities, and largest difference of one, beyond which they are not
/// those of the same weights.
const FAITHFUL: (f64, f64) = (0.99, 0.1);

/// What to say where the engine did not sample by the weights that it was given.
pub(super) fn tell_of_mismatch(step: u32, metrics: &Metrics, engine: &EngineSection) -> Option<String> {
    let correlation = *metrics.get("training/rollout_actor_probs_pearson_corr")?;
    let difference = *metrics.get("training/rollout_probs_diff_max")?;
    if correlation >= FAITHFUL.0 || difference <= FAITHFUL.1 {
        return None;
    }
    let whose = match engine.endpoints.as_slice() {
        [] => "the engine".to_owned(),
        endpoints => endpoints.join(", "),
    };
    Some(format!(
        "step {step}: the probabilities that {whose} sampled by are not those of the trainer's weights (correlation \
         {correlation:.3}, one {difference:.2} off): another precision, template or sampling setting, or weights that it has \
         not taken over whole (vLLM on a processor keeps the head of a model whose embeddings are tied)"
    ))
}

/// Writes into the ledger what became of the step's episodes.
pub(super) fn settle(
    run: &mut OpenRun,
    step: u32,
    report: &StepReport,
    replaced: &[EpisodeId],
) -> Result<(), PipelineError> {
    let step = u64::from(step);
    run.ledger.consume(step, &report.consumed)?;
    let mut reasons: HashMap<String, Vec<EpisodeId>> = HashMap::new();
    for (episode, reason) in &report.dropped {
        reasons
            .entry(reason.text().into_owned())
            .or_default()
            .push(episode.clone());
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort();
    for (reason, episodes) in reasons {
        run.ledger.drop_episodes(step, &episodes, &reason)?;
    }
    if !replaced.is_empty() {
        run.ledger.drop_episodes(step, replaced, "no_signal_replaced")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_of_other_weights_is_told_of_by_its_name() {
        let engine = EngineSection {
            endpoints: vec!["http://one:8000".to_owned()],
            ..EngineSection::default()
        };
        let told = |correlation: f64, difference: f64| {
            let values = [
                ("training/rollout_actor_probs_pearson_corr", correlation),
                ("training/rollout_probs_diff_max", difference),
            ];
            let metrics = values
                .map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect();
            tell_of_mismatch(7, &metrics, &engine)
        };
        assert_eq!(told(0.9999, 0.2), None);
        // Nothing but rounding, where all probabilities are nearly 1.
        assert_eq!(told(0.2, 1e-6), None);
        let text = told(0.95, 0.3).unwrap();
        assert!(text.contains("step 7") && text.contains("http://one:8000"), "{text}");
        assert_eq!(tell_of_mismatch(7, &Metrics::new(), &engine), None);
    }
}
