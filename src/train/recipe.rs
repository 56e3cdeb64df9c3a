//! `[train]` as an update reads it: the expanded preset, checked, in the policy package's terms.

use lego_policy::{KlEstimator as PolicyKl, KlTerm, Objective, PolicyLoss};

use super::{Schedule, ScheduleError};
use crate::config::{
    AdvantageName, ControlName, KlEstimator, LossAggregation, LossName, ResolveError, ResolvedTrain, TrainSection,
};

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
    /// Coefficient of the entropy bonus; 0 is off.
    pub entropy_coeff: f32,
    /// Whether the recorded log-probs stand for those at the start of the update.
    pub bypass_old_logprob: bool,
    /// Learning rate over the steps.
    pub schedule: Schedule,
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
    /// The course of the learning rate.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

fn reads_ratio(loss: LossName) -> bool {
    matches!(loss, LossName::Clipped | LossName::Gspo | LossName::Cispo)
}

/// Written keys that the resolved loss or estimator does not read.
fn refuse_without_effect(section: &TrainSection, resolved: &ResolvedTrain) -> Result<(), RecipeError> {
    let supervised = resolved.loss == LossName::Sft;
    let grpo = resolved.advantage == AdvantageName::Grpo && !supervised;
    let ratio = reads_ratio(resolved.loss);
    let no_ratio = "a loss without a ratio";
    let written = [
        (
            "advantage",
            section.advantage.is_some() && supervised,
            "algorithm = \"sft\"",
        ),
        (
            "control",
            section.control.is_some() && supervised,
            "algorithm = \"sft\"",
        ),
        (
            "norm_by_std",
            section.norm_by_std.is_some() && !grpo,
            "an advantage other than \"grpo\"",
        ),
        ("clip_low", section.clip_low.is_some() && !ratio, no_ratio),
        ("clip_high", section.clip_high.is_some() && !ratio, no_ratio),
    ];
    match written.into_iter().find(|(_, useless, _)| *useless) {
        Some((key, _, with)) => Err(RecipeError::NoEffect { key, with }),
        None => Ok(()),
    }
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
        refuse_without_effect(section, &resolved)?;
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
        Ok(Self {
            advantage: (resolved.loss != LossName::Sft).then_some(resolved.advantage),
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

    /// Whether an episode of advantage 0 leaves no gradient, so that it need not be computed.
    pub fn zero_advantage_is_zero_gradient(&self) -> bool {
        self.kl.is_none() && self.entropy_coeff == 0.0
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
        let kl = self.kl.map(|(estimator, coefficient)| KlTerm {
            estimator: match estimator {
                KlEstimator::K1 => PolicyKl::K1,
                KlEstimator::K2 => PolicyKl::K2,
                KlEstimator::K3 => PolicyKl::K3,
            },
            coefficient,
        });
        Objective {
            loss,
            kl,
            entropy_coeff: self.entropy_coeff,
            temperature,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AlgorithmName;

    fn recipe(algorithm: AlgorithmName, change: fn(&mut TrainSection)) -> Result<Recipe, RecipeError> {
        let mut section = TrainSection {
            algorithm,
            ..TrainSection::default()
        };
        change(&mut section);
        Recipe::from_section(&section, 64)
    }

    #[test]
    fn a_preset_becomes_an_objective() {
        let grpo = recipe(AlgorithmName::Grpo, |s| s.kl_coef = 0.001).unwrap();
        let objective = grpo.objective(0.7);
        assert_eq!(
            objective.loss,
            PolicyLoss::Clipped {
                low: 0.2,
                high: 0.28,
                dual: Some(3.0)
            }
        );
        assert_eq!(
            objective.kl,
            Some(KlTerm {
                estimator: PolicyKl::K3,
                coefficient: 0.001
            })
        );
        assert!(!grpo.zero_advantage_is_zero_gradient() && grpo.has_ratio());
        let gspo = recipe(AlgorithmName::Gspo, |_| ()).unwrap();
        assert_eq!(gspo.objective(1.0).loss, PolicyLoss::Gspo { low: 3e-4, high: 4e-4 });
        assert!(gspo.zero_advantage_is_zero_gradient());
        let sft = recipe(AlgorithmName::Sft, |_| ()).unwrap();
        assert!(sft.is_supervised() && !sft.has_ratio());
        assert_eq!((sft.mini_batch, gspo.mini_batch), (32, 64));
    }

    #[test]
    fn a_key_without_effect_is_refused() {
        let refused = |algorithm, change| recipe(algorithm, change).unwrap_err().to_string();
        let text = refused(AlgorithmName::Gspo, |s| {
            s.loss_agg_mode = Some(LossAggregation::TokenMean);
        });
        assert!(text.starts_with("train.loss_agg_mode: "), "{text}");
        assert!(refused(AlgorithmName::Sft, |s| s.clip_low = Some(0.1)).contains("train.clip_low has no effect"));
        assert!(refused(AlgorithmName::Rloo, |s| s.norm_by_std = Some(true)).contains("train.norm_by_std"));
        assert!(refused(AlgorithmName::Sft, |s| s.advantage = Some(AdvantageName::Rloo)).contains("train.advantage"));
        assert!(
            refused(AlgorithmName::Sft, |s| s.control = Some(ControlName::NegatedAdvantage)).contains("train.control")
        );
        assert!(refused(AlgorithmName::Grpo, |s| s.grad_clip = 0.0).contains("train.grad_clip is 0"));
        assert!(refused(AlgorithmName::Grpo, |s| s.mini_batch = Some(0)).contains("train.mini_batch is 0"));
    }
}
