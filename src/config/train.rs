//! `[train]` and `[filter]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CriticSection, LoraSection, RolloutCorrectionSection};

/// A learning rate below this changes nothing: a step of `AdamW` moves a weight by about the rate, and the f32 numbers
/// around 0.00002 are already twice as far apart.
pub const SMALLEST_RATE: f64 = 1e-12;

/// The update. `algorithm` is a preset; each of the keys it sets overrides it where written.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrainSection {
    /// Preset of advantage, loss, aggregation and clips.
    pub algorithm: AlgorithmName,
    /// Advantage estimator.
    pub advantage: Option<AdvantageName>,
    /// Loss of a token.
    pub loss: Option<LossName>,
    /// How the losses of tokens become one number.
    pub loss_agg_mode: Option<LossAggregation>,
    /// Lower clip of the ratio.
    #[schemars(range(min = 0.0))]
    pub clip_low: Option<f32>,
    /// Upper clip of the ratio.
    #[schemars(range(min = 0.0))]
    pub clip_high: Option<f32>,
    /// Whether the advantage is divided by the group's standard deviation.
    pub norm_by_std: Option<bool>,
    /// Learning rate.
    #[schemars(range(min = 0.0))]
    pub lr: f64,
    /// Course of the learning rate.
    pub scheduler: SchedulerName,
    /// Steps until `lr` is reached.
    pub warmup: u32,
    /// Steps of the run.
    #[schemars(range(min = 1))]
    pub steps: u32,
    /// Groups of a mini-batch (one optimizer step); absent: all of the step's. For `sft`: episodes.
    #[schemars(range(min = 1))]
    pub mini_batch: Option<u32>,
    /// Tokens of a micro-batch, prompts included; one row must fit.
    #[schemars(range(min = 1))]
    pub max_tokens_per_micro_batch: u32,
    /// Global gradient norm at most.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub grad_clip: f32,
    /// `AdamW` weight decay.
    #[schemars(range(min = 0.0))]
    pub weight_decay: f64,
    /// Discount of what a token earns later, for the advantages `reinforce_plus_plus` and `gae`; absent: 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub gamma: Option<f32>,
    /// Coefficient of the KL to the reference policy; 0 is off.
    #[schemars(range(min = 0.0))]
    pub kl_coef: f32,
    /// Estimator of that KL.
    pub kl_estimator: KlEstimator,
    /// Whether the KL is taken off each token's reward instead of being added to its loss.
    pub kl_in_reward: bool,
    /// Coefficient of the entropy bonus.
    pub entropy_coeff: f32,
    /// Whether the engine's log-probs stand for those of the weights at the start of the update.
    pub bypass_old_logprob: bool,
    /// Whether the update sends each token through the experts that it was sampled through. Mixtures of experts alone.
    pub routing_replay: RoutingReplay,
    /// A run that must not learn, to see whether a measurement can be trusted; absent: none.
    pub control: Option<ControlName>,
    /// Whether each layer is run again on the way back of an update, so that its input alone is kept: less memory, more time.
    /// On the processor alone; large micro-batches do so in any case.
    pub recompute: bool,
    /// Low-rank adapters that are trained in place of the weights, which stay as they are; absent: none, and written, be it empty,
    /// they are on. Engines get the merged weights; a checkpoint holds these, and the adapters in `adapter/` as PEFT has them.
    /// Adapters want a higher `lr` than weights.
    pub lora: Option<LoraSection>,
    /// The value function of advantage `gae`.
    pub critic: CriticSection,
    /// What makes up for an engine whose probabilities are not the trainer's.
    pub rollout_correction: RolloutCorrectionSection,
}

impl Default for TrainSection {
    fn default() -> Self {
        Self {
            algorithm: AlgorithmName::Gspo,
            advantage: None,
            loss: None,
            loss_agg_mode: None,
            clip_low: None,
            clip_high: None,
            norm_by_std: None,
            lr: 1e-6,
            scheduler: SchedulerName::Constant,
            warmup: 0,
            steps: 100,
            mini_batch: None,
            max_tokens_per_micro_batch: 131_072,
            grad_clip: 1.0,
            weight_decay: 0.0,
            gamma: None,
            kl_coef: 0.0,
            kl_estimator: KlEstimator::K3,
            kl_in_reward: false,
            entropy_coeff: 0.0,
            bypass_old_logprob: false,
            routing_replay: RoutingReplay::Off,
            control: None,
            recompute: false,
            lora: None,
            critic: CriticSection::default(),
            rollout_correction: RolloutCorrectionSection::default(),
        }
    }
}

/// Presets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AlgorithmName {
    /// Sequence-level ratio, sequence mean of token means.
    #[default]
    Gspo,
    /// Group-normalised advantage, clipped loss, token mean.
    Grpo,
    /// GRPO without division by the standard deviation and by lengths.
    DrGrpo,
    /// Leave-one-out baseline.
    Rloo,
    /// The reward itself, normalised over the batch.
    ReinforcePlusPlus,
    /// Reward against the group's mean, normalised over the batch.
    ReinforcePlusPlusBaseline,
    /// Reward against the group's mean weighted by length.
    Opo,
    /// Reward against that of a greedy answer to the same task.
    Remax,
    /// Group-normalised advantage, clipped importance weight.
    Cispo,
    /// Advantage by a value function that is trained beside the policy.
    Ppo,
    /// Log-likelihood of the sampled tokens; no reward needed.
    Sft,
}

/// Advantage estimators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdvantageName {
    /// Reward against the group's mean.
    Grpo,
    /// Reward against the mean of the others.
    Rloo,
    /// Discounted return of each token, normalised over the trained tokens of the step.
    ReinforcePlusPlus,
    /// Reward against the group's mean, normalised over the trained tokens of the step.
    ReinforcePlusPlusBaseline,
    /// Reward against the mean of the group weighted by the episodes' trained tokens.
    Opo,
    /// Reward against that of one more, greedy episode of the group.
    Remax,
    /// Generalised advantage estimation over a value function.
    Gae,
}

/// Controls: ways to spoil the advantages so that no skill can be gained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ControlName {
    /// Every advantage with the opposite sign.
    NegatedAdvantage,
    /// The rewards of a mini-batch dealt anew over its episodes.
    ShuffledRewards,
}

/// Losses of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossName {
    /// Clipped ratio with dual clip.
    Clipped,
    /// Clipped sequence ratio.
    Gspo,
    /// Clipped importance weight.
    Cispo,
    /// Plain policy gradient.
    Reinforce,
    /// Negative log-likelihood.
    Sft,
}

/// How the losses of tokens become one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LossAggregation {
    /// Mean over the tokens of the mini-batch.
    TokenMean,
    /// Mean over episodes of sums over tokens.
    SeqMeanTokenSum,
    /// Mean over episodes of means over tokens.
    SeqMeanTokenMean,
    /// Sum over tokens divided by episodes × longest response allowed.
    SeqMeanTokenSumNorm,
}

/// Estimators of the KL divergence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KlEstimator {
    /// logp − ref.
    K1,
    /// ½(logp − ref)².
    K2,
    /// e^(ref−logp) − (ref−logp) − 1.
    #[default]
    K3,
}

/// Which experts the update prescribes to its tokens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RoutingReplay {
    /// None: each forward pass chooses anew.
    #[default]
    Off,
    /// Those of the trainer's own first pass, which gave the log-probs at the start of the update.
    R2,
    /// Those that the engine recorded while it sampled.
    R3,
}

/// Courses of the learning rate.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchedulerName {
    /// The same all along.
    #[default]
    Constant,
    /// Linear to 0 after the last step.
    Linear,
    /// Half a cosine to 0 after the last step.
    Cosine,
}

/// What is left out of the update.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FilterSection {
    /// Outcomes whose episodes leave the loss and the group's baseline.
    #[schemars(with = "Vec<crate::trajectory::Outcome>")]
    pub drop_outcomes: Vec<String>,
    /// What becomes of an episode that exhausted its window.
    pub overlong: OverlongPolicy,
}

impl Default for FilterSection {
    fn default() -> Self {
        Self {
            drop_outcomes: ["env_setup_failed", "infra_error", "verifier_error", "cancelled"]
                .map(str::to_owned)
                .to_vec(),
            overlong: OverlongPolicy::Keep,
        }
    }
}

/// What becomes of an episode that exhausted its window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlongPolicy {
    /// It trains with its reward.
    #[default]
    Keep,
    /// It leaves the loss and the baseline.
    Drop,
    /// It stays in the baseline and leaves the loss.
    Mask,
}
