//! `[rollout]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HumanDuration;
use crate::trajectory::SamplingParams;

/// Sampling.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RolloutSection {
    /// Episodes of a task in one step: the group that GRPO compares.
    #[schemars(range(min = 1))]
    pub group_size: u32,
    /// Tasks of a step.
    #[schemars(range(min = 1))]
    pub groups_per_step: u32,
    /// Softmax temperature.
    #[schemars(range(min = 0.0))]
    pub temperature: f32,
    /// Nucleus; 1.0 is off.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub top_p: f32,
    /// Kept candidates; -1 is off.
    #[schemars(range(min = -1))]
    pub top_k: i32,
    /// Tokens of one answer at most.
    #[schemars(range(min = 1))]
    pub max_tokens: u32,
    /// Whether an episode that ran out of turns, tokens or time keeps the verifier's reward; else it gets 0.
    pub reward_unfinished: bool,
    /// Tries after an infrastructure failure.
    pub max_retries: u32,
    /// Whether a group in which all rewards are equal is replaced by another task.
    pub dynamic_sampling: bool,
    /// Groups sampled beyond `groups_per_step` at most, with `dynamic_sampling`.
    pub max_extra_groups: u32,
    /// What ends the last trials of a step that the others wait for; absent: nothing but their own limits.
    pub tail_kill: Option<TailKill>,
    /// Rows become durable at the latest after this time.
    pub flush: HumanDuration,
}

impl RolloutSection {
    /// How training samples.
    pub fn sampling(&self) -> SamplingParams {
        SamplingParams {
            temperature: self.temperature,
            top_p: self.top_p,
            top_k: self.top_k,
        }
    }
}

impl Default for RolloutSection {
    fn default() -> Self {
        Self {
            group_size: 8,
            groups_per_step: 64,
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            max_tokens: 4096,
            reward_unfinished: true,
            max_retries: 2,
            dynamic_sampling: false,
            max_extra_groups: 0,
            tail_kill: None,
            flush: HumanDuration::from_secs(30),
        }
    }
}

/// Ends stragglers: once every trial of a step has begun and so many have ended, the others have `grace` to end, and are
/// then cancelled. What is cancelled leaves the update, and is counted as `cancelled`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TailKill {
    /// Trials of a step below which none is a straggler.
    #[schemars(range(min = 2))]
    pub min_trials: u32,
    /// Share of them that has ended.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub share: f64,
    /// Time for the others from then on.
    pub grace: HumanDuration,
}

impl Default for TailKill {
    fn default() -> Self {
        Self {
            min_trials: 16,
            share: 0.9,
            grace: HumanDuration::from_secs(300),
        }
    }
}
