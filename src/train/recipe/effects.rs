//! Written keys that nothing would read: each is refused, with what makes it so.

use super::{RecipeError, reads_ratio};
use crate::config::{AdvantageName, LossName, ResolvedTrain, RolloutIs, RoutingReplay, TrainSection};

/// Refuses the first written key that the resolved loss or estimator does not read.
pub(super) fn refuse(section: &TrainSection, resolved: &ResolvedTrain) -> Result<(), RecipeError> {
    let supervised = resolved.loss == LossName::Sft;
    let sft = "algorithm = \"sft\"";
    let estimator = |name: AdvantageName| resolved.advantage == name && !supervised;
    let discounts = estimator(AdvantageName::ReinforcePlusPlus) || estimator(AdvantageName::Gae);
    let ratio = reads_ratio(resolved.loss);
    let no_ratio = "a loss without a ratio";
    let correction = &section.rollout_correction;
    let (weighs, rejects) = (
        correction.rollout_is != RolloutIs::None,
        !correction.rollout_rs.is_empty(),
    );
    let threshold = correction.rollout_is_threshold.is_some();
    let without_weights = "rollout_is = \"none\"";
    let written = [
        ("advantage", section.advantage.is_some() && supervised, sft),
        ("control", section.control.is_some() && supervised, sft),
        (
            "norm_by_std",
            section.norm_by_std.is_some() && !estimator(AdvantageName::Grpo),
            "an advantage other than \"grpo\"",
        ),
        ("clip_low", section.clip_low.is_some() && !ratio, no_ratio),
        ("clip_high", section.clip_high.is_some() && !ratio, no_ratio),
        (
            "gamma",
            section.gamma.is_some() && !discounts,
            "an advantage other than \"reinforce_plus_plus\" and \"gae\"",
        ),
        (
            section.critic.written().unwrap_or_default(),
            section.critic.written().is_some() && !estimator(AdvantageName::Gae),
            "an advantage other than \"gae\"",
        ),
        ("kl_in_reward", section.kl_in_reward && supervised, sft),
        (
            "kl_in_reward",
            section.kl_in_reward && section.kl_coef <= 0.0,
            "kl_coef = 0",
        ),
        ("rollout_correction", (weighs || rejects) && supervised, sft),
        (
            "rollout_correction",
            (weighs || rejects) && section.bypass_old_logprob,
            "bypass_old_logprob = true, which takes the engine's log-probs for the trainer's",
        ),
        (
            "routing_replay",
            section.routing_replay != RoutingReplay::Off && supervised,
            sft,
        ),
        (
            "routing_replay",
            section.routing_replay == RoutingReplay::R2 && section.bypass_old_logprob,
            "bypass_old_logprob = true, without which there is no first pass; `r3` takes the engine's routes",
        ),
        (
            "rollout_correction.rollout_is_threshold",
            threshold && !weighs,
            without_weights,
        ),
        (
            "rollout_correction.rollout_is_batch_normalize",
            correction.rollout_is_batch_normalize && !weighs,
            without_weights,
        ),
        (
            "rollout_correction.rollout_rs_threshold",
            !correction.rollout_rs_threshold.is_empty() && !rejects,
            "no rule in rollout_rs",
        ),
    ];
    match written.into_iter().find(|(_, useless, _)| *useless) {
        Some((key, _, with)) => Err(RecipeError::NoEffect { key, with }),
        None => Ok(()),
    }
}
