//! Presets as objectives, and what is refused.

use super::*;
use crate::config::{AlgorithmName, RejectionRule, RolloutIs};

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
    assert!(refused(AlgorithmName::Sft, |s| s.control = Some(ControlName::NegatedAdvantage)).contains("train.control"));
    assert!(refused(AlgorithmName::Grpo, |s| s.grad_clip = 0.0).contains("train.grad_clip is 0"));
    assert!(refused(AlgorithmName::Grpo, |s| s.mini_batch = Some(0)).contains("train.mini_batch is 0"));
}

#[test]
fn critic_discount_penalty_and_correction_are_read_where_they_are_read() {
    let refused = |algorithm, change| recipe(algorithm, change).unwrap_err().to_string();
    assert!(refused(AlgorithmName::Grpo, |s| s.gamma = Some(0.9)).contains("train.gamma has no effect"));
    assert!(refused(AlgorithmName::Opo, |s| s.critic.lr = Some(1e-3)).contains("train.critic.lr has no effect"));
    assert!(refused(AlgorithmName::Gspo, |s| s.kl_in_reward = true).contains("kl_coef = 0"));
    assert!(refused(AlgorithmName::Ppo, |s| s.critic.warmup = Some(100)).contains("train.critic.warmup is 100"));
    let bypass = |s: &mut TrainSection| {
        s.bypass_old_logprob = true;
        s.rollout_correction.rollout_is = RolloutIs::Token;
    };
    assert!(refused(AlgorithmName::Grpo, bypass).contains("train.rollout_correction has no effect with bypass"));
    let threshold = |s: &mut TrainSection| s.rollout_correction.rollout_is_threshold = "2".parse().ok();
    assert!(refused(AlgorithmName::Grpo, threshold).contains("rollout_is_threshold has no effect"));
    let rule = |s: &mut TrainSection| s.rollout_correction.rollout_rs = vec![RejectionRule::TokenK1];
    assert!(refused(AlgorithmName::Grpo, rule).starts_with("train.rollout_correction.rollout_rs_threshold: "));

    let ppo = recipe(AlgorithmName::Ppo, |s| s.gamma = Some(0.5)).unwrap();
    let critic = ppo.critic.unwrap();
    assert_eq!((critic.lr, critic.cliprange_value, critic.lambda), (1e-5, 0.5, 1.0));
    assert!(ppo.advantage_follows_log_probs() && !ppo.zero_advantage_is_zero_gradient());
    assert!((ppo.gamma - 0.5).abs() < 1e-9);
    let penalised = |s: &mut TrainSection| (s.kl_in_reward, s.kl_coef) = (true, 0.1);
    let penalised = recipe(AlgorithmName::Grpo, penalised).unwrap();
    assert_eq!(penalised.objective(1.0).kl, None);
    assert!(penalised.kl_term().is_some() && penalised.advantage_follows_log_probs());
    let weighed = |s: &mut TrainSection| {
        s.loss = Some(LossName::Reinforce);
        s.rollout_correction.rollout_is = RolloutIs::Sequence;
    };
    let weighed = recipe(AlgorithmName::Rloo, weighed).unwrap();
    assert!(weighed.computes_old_log_probs() && weighed.zero_advantage_is_zero_gradient());
}
