//! What `algorithm` means: the preset, with each key that was written laid over it (trainer.md §10).

use lego_policy::{KlEstimator as PolicyKl, KlTerm, Objective, PolicyLoss};

use super::{Schedule, ScheduleError};
use crate::config::{AdvantageName, AlgorithmName, KlEstimator, LossAggregation, LossName, TrainSection};

/// Bound of the loss of a token with negative advantage, as a multiple of it (dual clip).
const DUAL_CLIP: f32 = 3.0;

/// `[train]`, with nothing left open. `advantage` is absent where the algorithm is supervised.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// Estimator; `None`: likelihood of every episode, rewards unread.
    pub advantage: Option<AdvantageName>,
    /// Whether the advantage is divided by the group's standard deviation.
    pub norm_by_std: bool,
    /// Loss of a token.
    pub loss: LossName,
    /// How losses of tokens become one number.
    pub aggregation: LossAggregation,
    /// Lower clip of the ratio.
    pub clip_low: f32,
    /// Upper clip of the ratio.
    pub clip_high: f32,
    /// Groups (supervised: episodes) of one optimizer step; `None`: all of the step's.
    pub mini_batch: Option<usize>,
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
    /// A loss that does not belong to the algorithm.
    #[error("train.loss = {loss:?} does not go with train.algorithm = {algorithm:?}: {why}")]
    Mismatch {
        /// The loss.
        loss: LossName,
        /// The preset.
        algorithm: AlgorithmName,
        /// Why.
        why: &'static str,
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

/// Advantage, division by the standard deviation, loss and aggregation of a preset.
fn preset(algorithm: AlgorithmName) -> (Option<AdvantageName>, bool, LossName, LossAggregation) {
    match algorithm {
        AlgorithmName::Gspo => (
            Some(AdvantageName::Grpo),
            true,
            LossName::Gspo,
            LossAggregation::SeqMeanTokenMean,
        ),
        AlgorithmName::Grpo => (
            Some(AdvantageName::Grpo),
            true,
            LossName::Clipped,
            LossAggregation::TokenMean,
        ),
        AlgorithmName::DrGrpo => (
            Some(AdvantageName::Grpo),
            false,
            LossName::Clipped,
            LossAggregation::SeqMeanTokenSumNorm,
        ),
        AlgorithmName::Rloo => (
            Some(AdvantageName::Rloo),
            false,
            LossName::Clipped,
            LossAggregation::TokenMean,
        ),
        AlgorithmName::Sft => (None, false, LossName::Sft, LossAggregation::TokenMean),
    }
}

/// Lower and upper clip of a loss; `None` where it reads none.
fn default_clips(loss: LossName) -> Option<(f32, f32)> {
    match loss {
        LossName::Clipped | LossName::Cispo => Some((0.2, 0.28)),
        LossName::Gspo => Some((3e-4, 4e-4)),
        LossName::Reinforce | LossName::Sft => None,
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
    /// The preset of `section.algorithm` with the written keys over it.
    ///
    /// # Errors
    /// [`RecipeError`] where keys contradict one another, are out of range, or would be without effect.
    pub fn from_section(section: &TrainSection) -> Result<Self, RecipeError> {
        let (advantage, norm_by_std, preset_loss, preset_aggregation) = preset(section.algorithm);
        let loss = section.loss.unwrap_or(preset_loss);
        let supervised = advantage.is_none();
        if supervised != (loss == LossName::Sft) {
            let why = if supervised {
                "demonstrations have no advantage"
            } else {
                "a likelihood of every episode reads no reward; use algorithm = \"sft\""
            };
            return Err(RecipeError::Mismatch {
                loss,
                algorithm: section.algorithm,
                why,
            });
        }
        if supervised && section.advantage.is_some() {
            return Err(RecipeError::NoEffect {
                key: "advantage",
                with: "algorithm = \"sft\"",
            });
        }
        let advantage = section.advantage.or(advantage);
        if section.norm_by_std.is_some() && advantage != Some(AdvantageName::Grpo) {
            return Err(RecipeError::NoEffect {
                key: "norm_by_std",
                with: "an advantage other than \"grpo\"",
            });
        }
        // The ratio of GSPO is of a sequence: only the mean over sequences of token means has its meaning.
        let aggregation = if loss == LossName::Gspo {
            if section
                .loss_agg_mode
                .is_some_and(|mode| mode != LossAggregation::SeqMeanTokenMean)
            {
                return Err(RecipeError::NoEffect {
                    key: "loss_agg_mode",
                    with: "loss = \"gspo\", which is always seq-mean-token-mean",
                });
            }
            LossAggregation::SeqMeanTokenMean
        } else {
            section.loss_agg_mode.unwrap_or(preset_aggregation)
        };
        let (clip_low, clip_high) = if let Some((low, high)) = default_clips(loss) {
            (section.clip_low.unwrap_or(low), section.clip_high.unwrap_or(high))
        } else {
            for (key, written) in [("clip_low", section.clip_low), ("clip_high", section.clip_high)] {
                if written.is_some() {
                    return Err(RecipeError::NoEffect {
                        key,
                        with: "a loss without a ratio",
                    });
                }
            }
            (0.0, 0.0)
        };
        let f = f64::from;
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
        let micro_batch_tokens = section.max_tokens_per_micro_batch as usize;
        in_range(
            "max_tokens_per_micro_batch",
            micro_batch_tokens as f64,
            micro_batch_tokens > 0,
            "1 or more",
        )?;
        in_range("mini_batch", 0.0, section.mini_batch != Some(0), "1 or more")?;
        Ok(Self {
            advantage,
            norm_by_std: section.norm_by_std.unwrap_or(norm_by_std),
            loss,
            aggregation,
            clip_low,
            clip_high,
            mini_batch: section.mini_batch.map(|groups| groups as usize),
            micro_batch_tokens,
            grad_clip: f64::from(section.grad_clip),
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
        default_clips(self.loss).is_some()
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

    fn section(algorithm: AlgorithmName) -> TrainSection {
        TrainSection {
            algorithm,
            ..TrainSection::default()
        }
    }

    #[test]
    fn presets_set_what_the_documentation_says() {
        let gspo = Recipe::from_section(&section(AlgorithmName::Gspo)).unwrap();
        assert_eq!(
            (gspo.loss, gspo.aggregation),
            (LossName::Gspo, LossAggregation::SeqMeanTokenMean)
        );
        assert_eq!((gspo.clip_low, gspo.clip_high, gspo.norm_by_std), (3e-4, 4e-4, true));
        let grpo = Recipe::from_section(&section(AlgorithmName::Grpo)).unwrap();
        assert_eq!(
            (grpo.loss, grpo.aggregation),
            (LossName::Clipped, LossAggregation::TokenMean)
        );
        assert_eq!((grpo.clip_low, grpo.clip_high), (0.2, 0.28));
        let plain = Recipe::from_section(&section(AlgorithmName::DrGrpo)).unwrap();
        assert_eq!(
            (plain.norm_by_std, plain.aggregation),
            (false, LossAggregation::SeqMeanTokenSumNorm)
        );
        let sft = Recipe::from_section(&section(AlgorithmName::Sft)).unwrap();
        assert!(sft.is_supervised() && !sft.has_ratio());
    }

    #[test]
    fn a_written_key_overrides_its_preset_and_clips_follow_the_loss() {
        let mut written = section(AlgorithmName::Gspo);
        written.loss = Some(LossName::Clipped);
        written.clip_high = Some(0.3);
        let recipe = Recipe::from_section(&written).unwrap();
        assert_eq!((recipe.clip_low, recipe.clip_high), (0.2, 0.3));
        assert_eq!(recipe.aggregation, LossAggregation::SeqMeanTokenMean);
    }

    #[test]
    fn a_key_without_effect_is_refused() {
        let refused = |change: fn(&mut TrainSection), algorithm| {
            let mut written = section(algorithm);
            change(&mut written);
            Recipe::from_section(&written).unwrap_err().to_string()
        };
        let text = refused(
            |s| s.loss_agg_mode = Some(LossAggregation::TokenMean),
            AlgorithmName::Gspo,
        );
        assert!(text.contains("train.loss_agg_mode has no effect"), "{text}");
        assert!(refused(|s| s.clip_low = Some(0.1), AlgorithmName::Sft).contains("train.clip_low has no effect"));
        assert!(refused(|s| s.norm_by_std = Some(true), AlgorithmName::Rloo).contains("train.norm_by_std"));
        assert!(refused(|s| s.loss = Some(LossName::Sft), AlgorithmName::Grpo).contains("use algorithm = \"sft\""));
        assert!(refused(|s| s.loss = Some(LossName::Gspo), AlgorithmName::Sft).contains("no advantage"));
        assert!(refused(|s| s.grad_clip = 0.0, AlgorithmName::Grpo).contains("train.grad_clip is 0"));
    }
}
