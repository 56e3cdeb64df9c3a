//! Rollout correction, a KL in the reward, a critic and prescribed experts, through whole steps.
#![expect(clippy::float_cmp, reason = "the compared values are exact")]

use lego_policy::{ModelConfig, Moe, Trainer};

use super::tests::{section, updater};
use super::*;
use crate::config::{AlgorithmName, LossName, RejectionRule, RolloutIs, RoutingReplay, TrainSection};
use crate::train::fixture::{all_weights, batch, critic, policy, record, settings, shape, trainer};
use crate::trajectory::{Experts, RoutedRows};

/// A batch whose recorded log-probs are another policy's.
fn stale() -> Vec<Episode> {
    let mut episodes = batch();
    record(&policy(2), &mut episodes);
    episodes
}

fn step(section: &TrainSection, episodes: &[Episode]) -> (StepReport, Vec<u32>) {
    let mut trainer = policy(1);
    let report = updater(section).step(&mut trainer, 1, episodes).unwrap();
    (report, all_weights(&trainer))
}

#[test]
fn weights_of_1_change_nothing_and_others_do() {
    let plain = section(AlgorithmName::Grpo);
    let weighed = |bounds: &str| {
        let mut section = plain.clone();
        section.rollout_correction.rollout_is = RolloutIs::Token;
        section.rollout_correction.rollout_is_threshold = bounds.parse().ok();
        section
    };
    let mut faithful = batch();
    record(&policy(1), &mut faithful);
    let (report, weights) = step(&weighed("2"), &faithful);
    let (expected, expected_weights) = step(&plain, &faithful);
    assert!((report.metrics["rollout_corr/rollout_is_mean"] - 1.0).abs() < 1e-4);
    assert!((report.metrics["actor/pg_loss"] - expected.metrics["actor/pg_loss"]).abs() < 1e-5);
    let far = weights
        .iter()
        .zip(&expected_weights)
        .filter(|(a, b)| (f32::from_bits(**a) - f32::from_bits(**b)).abs() > 1e-4);
    assert_eq!(far.count(), 0);
    // A loss that is weighted with 0 everywhere leaves no gradient.
    let (report, _) = step(&weighed("100_200"), &stale());
    assert_eq!(report.metrics["rollout_corr/rollout_is_oob_ratio"], 1.0);
    assert_eq!(report.metrics["actor/grad_norm"], 0.0);
    assert!(
        report.metrics.values().all(|value| value.is_finite()),
        "{:?}",
        report.metrics
    );
}

#[test]
fn rejected_tokens_leave_loss_and_denominators() {
    let mut rejecting = section(AlgorithmName::Grpo);
    rejecting.rollout_correction.rollout_rs = vec![RejectionRule::TokenK1];
    rejecting.rollout_correction.rollout_rs_threshold = vec!["1.05".parse().unwrap()];
    let (report, _) = step(&rejecting, &stale());
    let metrics = &report.metrics;
    let share = metrics["rollout_corr/rollout_rs_masked_fraction"];
    assert!(share > 0.0 && share < 1.0, "{share}");
    // 19 tokens train, counted by hand in the fixture.
    assert!((metrics["training/trained_tokens"] - 19.0 * (1.0 - share)).abs() < 1e-9);
    // Rows of the same weights are all kept.
    let mut faithful = batch();
    record(&policy(1), &mut faithful);
    let (report, weights) = step(&rejecting, &faithful);
    assert_eq!(report.metrics["rollout_corr/rollout_rs_masked_fraction"], 0.0);
    assert_eq!(weights, step(&section(AlgorithmName::Grpo), &faithful).1);
    // Where nothing is left the step is skipped, not an error.
    rejecting.rollout_correction.rollout_rs = vec![RejectionRule::SeqMaxK2];
    rejecting.rollout_correction.rollout_rs_threshold = vec!["1e-30".parse().unwrap()];
    let (report, weights) = step(&rejecting, &stale());
    assert_eq!((report.skipped, report.updates), (Some(Skip::NoSignal), 0));
    assert_eq!(weights, all_weights(&policy(1)));
}

#[test]
fn a_kl_in_the_reward_lowers_it_by_what_the_policy_has_moved() {
    let mut penalised = section(AlgorithmName::ReinforcePlusPlus);
    (penalised.kl_in_reward, penalised.kl_coef) = (true, 0.5);
    penalised.loss = Some(LossName::Reinforce);
    let run = |reference: u64| {
        let updater = Updater::new(settings(&penalised), Some(policy(reference))).unwrap();
        updater.step(&mut policy(1), 1, &stale()).unwrap().metrics
    };
    let same = run(1);
    assert!(same["actor/reward_kl_penalty"].abs() < 1e-9);
    assert_eq!(same["critic/rewards/mean"], same["critic/score/mean"]);
    let moved = run(3);
    assert!(moved["actor/reward_kl_penalty"] > 0.0);
    assert!(moved["critic/rewards/mean"] < moved["critic/score/mean"]);
    assert!(!moved.contains_key("actor/kl_loss"), "{moved:?}");
    assert!(moved["critic/advantages/mean"].abs() < 1e-6, "whitened");
}

#[test]
fn a_critic_learns_beside_the_policy_and_alone_while_it_warms_up() {
    let mut ppo = section(AlgorithmName::Ppo);
    (ppo.critic.lr, ppo.critic.warmup) = (Some(1e-2), Some(2));
    ppo.critic.cliprange_value = Some(10.0);
    let updater = updater(&ppo);
    let (mut trainer, mut critic) = (policy(1), critic(1));
    let before = all_weights(&trainer);
    let mut losses = Vec::new();
    for step in 1..=20 {
        let report = updater
            .step_with_critic(&mut trainer, Some(&mut critic), step, &batch())
            .unwrap();
        let metrics = report.metrics;
        assert!(metrics.values().all(|value| value.is_finite()), "{metrics:?}");
        losses.push((metrics["critic/vf_loss"], metrics["critic/vf_explained_var"]));
        assert_eq!(report.updates, u32::from(step > 2));
        assert_eq!(all_weights(&trainer) == before, step <= 2);
        if step == 1 {
            assert_eq!(
                (metrics["critic/values/max"], metrics["critic/returns/max"]),
                (0.0, 1.0)
            );
        }
    }
    let (first, last) = (losses[0], losses[19]);
    assert!(last.0 < 0.5 * first.0 && last.1 > 0.4 && first.1 <= 0.0, "{losses:?}");
    let alone = updater.step(&mut trainer, 21, &batch()).unwrap_err();
    assert!(alone.to_string().contains("no critic was given"), "{alone}");
}

/// A small policy with routed experts.
fn mixture() -> Trainer {
    let mixture = ModelConfig {
        intermediate_size: 24,
        family: lego_policy::Family::Mixtral,
        moe: Some(Moe {
            experts: 4,
            per_token: 2,
            intermediate_size: 24,
            norm_topk_prob: true,
            dense_layers: Vec::new(),
        }),
        ..shape()
    };
    trainer(mixture, 4)
}

#[test]
fn recorded_experts_are_replayed_counted_and_refused_where_there_are_none() {
    let trainer = mixture();
    let mut episodes = batch();
    record(&trainer, &mut episodes);
    // Every position but the first two of a row is said to have gone through experts 3 and 0.
    for segment in episodes.iter_mut().flat_map(|episode| &mut episode.segments) {
        let positions = segment.total_tokens() - 2;
        segment.routing = vec![RoutedRows {
            start: 2,
            experts: Experts {
                layers: 2,
                top_k: 2,
                count: 4,
            },
            rows: [3, 0].repeat(2 * positions),
        }];
    }
    let run = |replay| {
        let section = TrainSection {
            routing_replay: replay,
            ..section(AlgorithmName::Grpo)
        };
        let mut trainer = mixture();
        let report = updater(&section).step(&mut trainer, 1, &episodes).unwrap();
        (report.metrics, all_weights(&trainer))
    };
    let (off, native) = run(RoutingReplay::Off);
    let (r2, own) = run(RoutingReplay::R2);
    let (r3, replayed) = run(RoutingReplay::R3);
    assert_eq!(native, own, "in one mini-batch the first pass is the only one");
    assert_ne!(native, replayed);
    assert!(!off.contains_key("rollout/moe/coverage") && !r2.contains_key("rollout/moe/coverage"));
    // The first trained token of each row was given by position 1 or 2: of the seven rows, those with two prompt tokens
    // have no record for it. 3 of 19 tokens: two of the rows with longer prompts begin later.
    assert!((r3["rollout/moe/coverage"] - 16.0 / 19.0).abs() < 1e-9, "{r3:?}");
    assert!(r3["rollout/moe/disjoint"] > 0.0 && r3["rollout/moe/disjoint"] < 1.0);
    let pearson = "training/rollout_actor_probs_pearson_corr";
    assert!(
        off[pearson] > 0.999_9 && r3[pearson] < off[pearson],
        "{} {}",
        off[pearson],
        r3[pearson]
    );
    for name in ["load_max", "load_deviation"] {
        assert!(off[&format!("rollout/moe/{name}")] >= 0.0);
    }
    let dense = TrainSection {
        routing_replay: RoutingReplay::R3,
        ..section(AlgorithmName::Grpo)
    };
    let refused = updater(&dense).step(&mut policy(1), 1, &episodes).unwrap_err();
    assert!(refused.to_string().contains("dense model"), "{refused}");
}

#[test]
fn remax_without_a_greedy_episode_is_refused() {
    let refused = updater(&section(AlgorithmName::Remax))
        .step(&mut policy(1), 4, &batch())
        .unwrap_err();
    assert!(refused.to_string().contains("step 4: advantage \"remax\""), "{refused}");
    let mut episodes = batch();
    episodes[1].sampling.temperature = 0.0;
    let report = updater(&section(AlgorithmName::Remax))
        .step(&mut policy(1), 4, &episodes)
        .unwrap();
    // The first group is compared with it, the second has none.
    assert_eq!((report.consumed.len(), report.metrics["training/episodes"]), (6, 5.0));
    assert_eq!(report.metrics["rollout/no_signal_groups"], 1.0);
}
