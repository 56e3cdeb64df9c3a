//! `[train]` as an update reads it: the expanded preset, checked, in the policy package's terms.

use lego_policy::{KlEstimator as PolicyKl, KlTerm, Objective, PolicyLoss};

use super::correction::Correction;
use super::{Schedule, ScheduleError};
use crate::config::{
    AdvantageName, ControlName, KlEstimator, LossAggregation, LossName, ResolveError, RoutingReplay, TrainSection,
};

mod effects;
#[cfg(test)]
mod tests;

/// Bound of the loss of a token with negative advantage, as a multiple of it (dual clip).
const DUAL_CLIP: f32 = 3.0;

/// `[train]`, with nothing left open. `advantage` is absent where the algorithm is supervised.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Estimator; `None`: likelihood of every episode, rewards unread.
    pub advantage: Option<AdvantageName>,
    /// Whether the advantage is divided by the group's standard deviation.
    pub norm_by_std: bool,
    /// What spoils the advantages on purpose.
    pub control: Option<ControlName>,
    /// Loss of a token.
    pub loss: LossName,
    /// How losses of tokens become one number.
    pub aggregation: LossAggregation,
    /// Lower clip of the ratio.
    pub clip_low: f32,
    /// Upper clip of the ratio.
    pub clip_high: f32,
    /// Groups (supervised: episodes) of one optimizer step.
    pub mini_batch: usize,
    /// Tokens of a micro-batch.
    pub micro_batch_tokens: usize,
    /// Largest global gradient norm.
    pub grad_clip: f64,
    /// Coefficient and estimator of the KL to the reference; `None` is off.
    pub kl: Option<(KlEstimator, f32)>,
    /// Whether that KL is taken off the rewards rather than added to the loss.
    pub kl_in_reward: bool,
    /// Discount of what a token earns later.
    pub gamma: f64,
    /// The value function of advantage `gae`.
    pub critic: Option<CriticRecipe>,
    /// Which experts the update prescribes to its tokens.
    pub routing_replay: RoutingReplay,
    /// What makes up for an engine whose probabilities are not the trainer's.
    pub correction: Option<Correction>,
    /// Coefficient of the entropy bonus; 0 is off.
    pub entropy_coeff: f32,
    /// Whether the recorded log-probs stand for those at the start of the update.
    pub bypass_old_logprob: bool,
    /// Learning rate over the steps.
    pub schedule: Schedule,
}

/// `[train.critic]`, with nothing left open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CriticRecipe {
    /// Learning rate.
    pub lr: f64,
    /// How far a value may move in an update.
    pub cliprange_value: f32,
    /// λ of GAE.
    pub lambda: f64,
    /// First steps in which the critic alone learns.
    pub warmup: u64,
}

/// Keys of `[train]` that contradict one another, or that would have no effect.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum RecipeError {
    /// A key that the chosen loss or estimator does not read.
    #[error("train.{key} has no effect with {with}; leave it out")]
    NoEffect {
        /// The key.
        key: &'static str,
        /// What makes it so.
        with: &'static str,
    },
    /// Keys that contradict one another.
    #[error("{key}: {source}", key = source.key())]
    Resolve {
        /// What contradicts what.
        #[from]
        source: ResolveError,
    },
    /// A number outside its range.
    #[error("train.{key} is {value}; expected {expected}")]
    Range {
        /// The key.
        key: &'static str,
        /// What was written.
        value: f64,
        /// What it may be.
        expected: &'static str,
    },
    /// A text or list that is not what its key takes.
    #[error("train.{key}: {problem}")]
    Value {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The course of the learning rate.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

impl RecipeError {
    /// The key of `[train]` that would have no effect, or whose text is wrong; ranges and contradictions have checks of
    /// their own.
    pub fn key(&self) -> Option<&'static str> {
        match self {
            Self::NoEffect { key, .. } | Self::Value { key, .. } => Some(key),
            Self::Resolve { .. } | Self::Range { .. } | Self::Schedule(_) => None,
        }
    }
}

fn reads_ratio(loss: LossName) -> bool {
    matches!(loss, LossName::Clipped | LossName::Gspo | LossName::Cispo)
}

fn in_range(key: &'static str, value: f64, ok: bool, expected: &'static str) -> Result<(), RecipeError> {
    if ok {
        Ok(())
    } else {
        Err(RecipeError::Range { key, value, expected })
    }
}

impl Recipe {
    /// The preset of `section.algorithm` with the written keys over it; `groups_per_step` is the mini-batch of
    /// reinforcement learning where none is written.
    ///
    /// # Errors
    /// [`RecipeError`] where keys contradict one another, are out of range, or would be without effect.
    pub fn from_section(section: &TrainSection, groups_per_step: u32) -> Result<Self, RecipeError> {
        let resolved = section.resolve(groups_per_step)?;
        effects::refuse(section, &resolved)?;
        let f = f64::from;
        let (clip_low, clip_high) = (resolved.clip_low, resolved.clip_high);
        in_range(
            "clip_low",
            f(clip_low),
            (0.0..1.0).contains(&clip_low),
            "0 ≤ clip_low < 1",
        )?;
        in_range(
            "clip_high",
            f(clip_high),
            clip_high >= 0.0 && clip_high.is_finite(),
            "0 or more",
        )?;
        in_range(
            "grad_clip",
            f(section.grad_clip),
            section.grad_clip > 0.0,
            "more than 0 (inf is off)",
        )?;
        in_range(
            "kl_coef",
            f(section.kl_coef),
            section.kl_coef >= 0.0 && section.kl_coef.is_finite(),
            "0 or more",
        )?;
        in_range(
            "entropy_coeff",
            f(section.entropy_coeff),
            section.entropy_coeff.is_finite(),
            "a finite number",
        )?;
        let budget = section.max_tokens_per_micro_batch;
        in_range("max_tokens_per_micro_batch", f64::from(budget), budget > 0, "1 or more")?;
        in_range(
            "mini_batch",
            f64::from(resolved.mini_batch),
            resolved.mini_batch > 0,
            "1 or more",
        )?;
        let gamma = section.gamma.unwrap_or(1.0);
        in_range("gamma", f(gamma), (0.0..=1.0).contains(&gamma), "0 ≤ gamma ≤ 1")?;
        let is_supervised = resolved.loss == LossName::Sft;
        let has_critic = resolved.advantage == AdvantageName::Gae && !is_supervised;
        let correction = Correction::from_section(&section.rollout_correction)
            .map_err(|(key, problem)| RecipeError::Value { key, problem })?;
        Ok(Self {
            advantage: (!is_supervised).then_some(resolved.advantage),
            norm_by_std: resolved.norm_by_std,
            control: section.control,
            loss: resolved.loss,
            aggregation: resolved.loss_agg_mode,
            clip_low,
            clip_high,
            mini_batch: resolved.mini_batch as usize,
            micro_batch_tokens: budget as usize,
            grad_clip: f(section.grad_clip),
            kl: (section.kl_coef > 0.0).then_some((section.kl_estimator, section.kl_coef)),
            kl_in_reward: section.kl_in_reward,
            gamma: f(gamma),
            critic: has_critic.then(|| CriticRecipe::from_section(section)).transpose()?,
            correction,
            routing_replay: section.routing_replay,
            entropy_coeff: section.entropy_coeff,
            bypass_old_logprob: section.bypass_old_logprob,
            schedule: Schedule::from_section(section)?,
        })
    }

    /// Whether rewards are unread and every episode counts alike.
    pub fn is_supervised(&self) -> bool {
        self.advantage.is_none()
    }

    /// Whether the loss compares the weights with those that sampled.
    pub fn has_ratio(&self) -> bool {
        reads_ratio(self.loss)
    }

    /// Whether an episode of advantage 0 leaves no gradient, and nothing else in the update, so that it need not be
    /// computed.
    pub fn zero_advantage_is_zero_gradient(&self) -> bool {
        let all = self.correction.as_ref().is_some_and(Correction::reads_all_rows);
        (self.kl.is_none() || self.kl_in_reward) && self.entropy_coeff == 0.0 && self.critic.is_none() && !all
    }

    /// Whether log-probs at the start of the update are computed, rather than taken from the engine.
    pub fn computes_old_log_probs(&self) -> bool {
        let routes = self.routing_replay == RoutingReplay::R2;
        let read = self.has_ratio() || self.kl_in_reward || self.correction.is_some() || routes;
        read && !self.bypass_old_logprob && !self.is_supervised()
    }

    /// Whether advantages can be had only once log-probs are there: rewards, values or the tokens that stay in the loss
    /// depend on them.
    pub fn advantage_follows_log_probs(&self) -> bool {
        let whitened = matches!(
            self.advantage,
            Some(AdvantageName::ReinforcePlusPlus | AdvantageName::ReinforcePlusPlusBaseline)
        );
        let rejects = self
            .correction
            .as_ref()
            .is_some_and(|correction| !correction.rules.is_empty());
        self.kl_in_reward || self.critic.is_some() || (whitened && rejects)
    }

    /// The loss in the policy package's terms, for rows sampled at `temperature`.
    pub fn objective(&self, temperature: f32) -> Objective {
        let (low, high) = (self.clip_low, self.clip_high);
        let loss = match self.loss {
            LossName::Clipped => PolicyLoss::Clipped {
                low,
                high,
                dual: Some(DUAL_CLIP),
            },
            LossName::Gspo => PolicyLoss::Gspo { low, high },
            LossName::Cispo => PolicyLoss::Cispo { low, high },
            LossName::Reinforce => PolicyLoss::Reinforce,
            LossName::Sft => PolicyLoss::Sft,
        };
        let kl = self.kl_term().filter(|_| !self.kl_in_reward);
        Objective {
            loss,
            kl,
            entropy_coeff: self.entropy_coeff,
            temperature,
        }
    }

    /// The KL to the reference in the policy package's terms, wherever it is taken off.
    pub fn kl_term(&self) -> Option<KlTerm> {
        self.kl.map(|(estimator, coefficient)| KlTerm {
            estimator: match estimator {
                KlEstimator::K1 => PolicyKl::K1,
                KlEstimator::K2 => PolicyKl::K2,
                KlEstimator::K3 => PolicyKl::K3,
            },
            coefficient,
        })
    }
}

impl CriticRecipe {
    fn from_section(section: &TrainSection) -> Result<Self, RecipeError> {
        let critic = &section.critic;
        let found = Self {
            lr: critic.lr.unwrap_or(1e-5),
            cliprange_value: critic.cliprange_value.unwrap_or(0.5),
            lambda: f64::from(critic.lambda.unwrap_or(1.0)),
            warmup: u64::from(critic.warmup.unwrap_or(0)),
        };
        let above = "more than 0";
        in_range("critic.lr", found.lr, found.lr > 0.0 && found.lr.is_finite(), above)?;
        let clip = f64::from(found.cliprange_value);
        in_range("critic.cliprange_value", clip, clip > 0.0, above)?;
        let lambda = found.lambda;
        in_range("critic.lambda", lambda, (0.0..=1.0).contains(&lambda), "0 ≤ lambda ≤ 1")?;
        in_range(
            "critic.warmup",
            found.warmup as f64,
            found.warmup < u64::from(section.steps),
            "fewer than train.steps",
        )?;
        Ok(found)
    }
}
