//! The update of a configuration, and what the ledger hears of it.

use std::collections::HashMap;

use super::run::OpenRun;
use super::{PipelineError, PipelineEvent, PipelineObserver};
use crate::config::RunConfig;
use crate::train::{Filter, Recipe, StepReport, UpdateSettings, Updater, Window};
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
            super::run::device(config.policy.device),
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
