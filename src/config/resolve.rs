//! What a preset of `[train] algorithm` stands for, once the keys that override it are laid over it.

use serde::Serialize;

use super::{AdvantageName, AlgorithmName, LossAggregation, LossName, TrainSection};

/// The update with nothing left open: trainer defaults by preset, each overridden where written.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ResolvedTrain {
    /// Advantage estimator; for `sft` it is not used.
    pub advantage: AdvantageName,
    /// Loss of a token.
    pub loss: LossName,
    /// How the losses of tokens become one number.
    pub loss_agg_mode: LossAggregation,
    /// Lower clip of the ratio: it is held above `1 − clip_low`.
    pub clip_low: f32,
    /// Upper clip of the ratio: it is held below `1 + clip_high`.
    pub clip_high: f32,
    /// Whether the advantage is divided by the group's standard deviation.
    pub norm_by_std: bool,
    /// Groups of one optimizer step; for `sft` episodes.
    pub mini_batch: u32,
}

/// Keys of `[train]` that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ResolveError {
    /// GSPO is defined for one aggregation.
    #[error("loss `gspo` is defined for `seq-mean-token-mean` alone")]
    GspoAggregation,
    /// Half of a supervised update.
    #[error("algorithm `sft` and loss `sft` come together")]
    HalfSft,
}

impl ResolveError {
    /// The key to change.
    pub fn key(self) -> &'static str {
        match self {
            Self::GspoAggregation => "train.loss_agg_mode",
            Self::HalfSft => "train.loss",
        }
    }
}

/// Clips of PPO, the higher one raised (DAPO's clip-higher).
const PPO_CLIP: (f32, f32) = (0.2, 0.28);

/// Clips of GSPO, whose ratio is a geometric mean over the sequence.
const GSPO_CLIP: (f32, f32) = (3e-4, 4e-4);

/// Episodes of one optimizer step of `sft`, where `mini_batch` is not written.
const SFT_BATCH: u32 = 32;

impl TrainSection {
    /// Expands the preset. `groups_per_step` is the mini-batch where none is written.
    ///
    /// # Errors
    /// Overrides that contradict the preset or each other.
    pub fn resolve(&self, groups_per_step: u32) -> Result<ResolvedTrain, ResolveError> {
        use LossAggregation::{SeqMeanTokenMean, SeqMeanTokenSumNorm, TokenMean};
        let (advantage, loss, aggregation, norm_by_std) = match self.algorithm {
            AlgorithmName::Gspo => (AdvantageName::Grpo, LossName::Gspo, SeqMeanTokenMean, true),
            AlgorithmName::Grpo => (AdvantageName::Grpo, LossName::Clipped, TokenMean, true),
            AlgorithmName::DrGrpo => (AdvantageName::Grpo, LossName::Clipped, SeqMeanTokenSumNorm, false),
            AlgorithmName::Rloo => (AdvantageName::Rloo, LossName::Clipped, TokenMean, false),
            AlgorithmName::ReinforcePlusPlus => (AdvantageName::ReinforcePlusPlus, LossName::Clipped, TokenMean, false),
            AlgorithmName::ReinforcePlusPlusBaseline => {
                let advantage = AdvantageName::ReinforcePlusPlusBaseline;
                (advantage, LossName::Clipped, TokenMean, false)
            }
            AlgorithmName::Opo => (AdvantageName::Opo, LossName::Clipped, TokenMean, false),
            AlgorithmName::Remax => (AdvantageName::Remax, LossName::Clipped, TokenMean, false),
            AlgorithmName::Cispo => (AdvantageName::Grpo, LossName::Cispo, TokenMean, true),
            AlgorithmName::Ppo => (AdvantageName::Gae, LossName::Clipped, TokenMean, false),
            AlgorithmName::Sft => (AdvantageName::Grpo, LossName::Sft, TokenMean, false),
        };
        let loss = self.loss.unwrap_or(loss);
        // A loss that is written brings the aggregation that it is defined for.
        let aggregation = if loss == LossName::Gspo {
            SeqMeanTokenMean
        } else {
            aggregation
        };
        let loss_agg_mode = self.loss_agg_mode.unwrap_or(aggregation);
        if loss == LossName::Gspo && loss_agg_mode != SeqMeanTokenMean {
            return Err(ResolveError::GspoAggregation);
        }
        if (self.algorithm == AlgorithmName::Sft) != (loss == LossName::Sft) {
            return Err(ResolveError::HalfSft);
        }
        let (clip_low, clip_high) = if loss == LossName::Gspo { GSPO_CLIP } else { PPO_CLIP };
        let all = if loss == LossName::Sft {
            SFT_BATCH
        } else {
            groups_per_step
        };
        Ok(ResolvedTrain {
            advantage: self.advantage.unwrap_or(advantage),
            loss,
            loss_agg_mode,
            clip_low: self.clip_low.unwrap_or(clip_low),
            clip_high: self.clip_high.unwrap_or(clip_high),
            norm_by_std: self.norm_by_std.unwrap_or(norm_by_std),
            mini_batch: self.mini_batch.unwrap_or(all),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(change: impl FnOnce(&mut TrainSection)) -> Result<ResolvedTrain, ResolveError> {
        let mut section = TrainSection::default();
        change(&mut section);
        section.resolve(64)
    }

    #[test]
    fn presets_expand_as_documented() {
        let gspo = resolved(|_| {}).unwrap();
        assert_eq!(
            (gspo.loss, gspo.loss_agg_mode),
            (LossName::Gspo, LossAggregation::SeqMeanTokenMean)
        );
        assert_eq!((gspo.clip_low, gspo.clip_high, gspo.mini_batch), (3e-4, 4e-4, 64));
        let grpo = resolved(|train| train.algorithm = AlgorithmName::Grpo).unwrap();
        assert_eq!(
            (grpo.loss, grpo.loss_agg_mode),
            (LossName::Clipped, LossAggregation::TokenMean)
        );
        assert_eq!((grpo.clip_low, grpo.clip_high, grpo.norm_by_std), (0.2, 0.28, true));
        assert!(
            !resolved(|train| train.algorithm = AlgorithmName::DrGrpo)
                .unwrap()
                .norm_by_std
        );
    }

    #[test]
    fn each_preset_brings_its_advantage_and_its_loss() {
        for (algorithm, advantage, loss) in [
            (AlgorithmName::Rloo, AdvantageName::Rloo, LossName::Clipped),
            (
                AlgorithmName::ReinforcePlusPlus,
                AdvantageName::ReinforcePlusPlus,
                LossName::Clipped,
            ),
            (
                AlgorithmName::ReinforcePlusPlusBaseline,
                AdvantageName::ReinforcePlusPlusBaseline,
                LossName::Clipped,
            ),
            (AlgorithmName::Opo, AdvantageName::Opo, LossName::Clipped),
            (AlgorithmName::Remax, AdvantageName::Remax, LossName::Clipped),
            (AlgorithmName::Cispo, AdvantageName::Grpo, LossName::Cispo),
            (AlgorithmName::Ppo, AdvantageName::Gae, LossName::Clipped),
        ] {
            let found = resolved(|train| train.algorithm = algorithm).unwrap();
            assert_eq!((found.advantage, found.loss), (advantage, loss));
            assert_eq!(found.loss_agg_mode, LossAggregation::TokenMean);
        }
    }

    #[test]
    fn written_keys_win_over_the_preset() {
        let mixed = resolved(|train| {
            train.algorithm = AlgorithmName::Grpo;
            train.loss = Some(LossName::Gspo);
            train.clip_high = Some(0.5);
            train.mini_batch = Some(8);
        })
        .unwrap();
        assert_eq!(mixed.loss_agg_mode, LossAggregation::SeqMeanTokenMean);
        assert_eq!((mixed.clip_low, mixed.clip_high, mixed.mini_batch), (3e-4, 0.5, 8));
    }

    #[test]
    fn contradictions_are_refused() {
        let wrong = resolved(|train| train.loss_agg_mode = Some(LossAggregation::TokenMean));
        assert_eq!(wrong, Err(ResolveError::GspoAggregation));
        assert_eq!(
            resolved(|train| train.loss = Some(LossName::Sft)),
            Err(ResolveError::HalfSft)
        );
        assert_eq!(ResolveError::HalfSft.key(), "train.loss");
    }
}
