#![expect(clippy::float_cmp, reason = "the compared values are exact")]

use super::*;
use crate::config::{AdvantageName, AlgorithmName, ControlName, LossAggregation, LossName, TrainSection};
use crate::train::fixture::{all_weights, batch, episode, log_prob, policy, record, settings};
use crate::train::optimize::{accumulate, micro_batches, weigh};
use crate::trajectory::Outcome;

pub(super) fn section(algorithm: AlgorithmName) -> TrainSection {
    TrainSection {
        algorithm,
        lr: 1e-3,
        ..TrainSection::default()
    }
}

pub(super) fn updater(section: &TrainSection) -> Updater {
    Updater::new(settings(section), None).unwrap()
}

/// Change of each episode's summed log-prob over some steps.
fn changes(updater: &Updater, episodes: &[Episode], steps: u64) -> Vec<f32> {
    let mut trainer = policy(1);
    let before: Vec<f32> = episodes.iter().map(|episode| log_prob(&trainer, episode)).collect();
    for step in 1..=steps {
        updater.step(&mut trainer, step, episodes).unwrap();
    }
    episodes
        .iter()
        .zip(before)
        .map(|(episode, before)| log_prob(&trainer, episode) - before)
        .collect()
}

#[test]
fn what_was_rewarded_becomes_likelier_and_the_rest_less_likely() {
    // Alone in its group's prompt, each answer has tokens of its own, so that they do not pull on one another.
    let episodes = batch();
    for algorithm in [
        AlgorithmName::Grpo,
        AlgorithmName::DrGrpo,
        AlgorithmName::Rloo,
        AlgorithmName::Gspo,
    ] {
        let updater = updater(&section(algorithm));
        for (episode, change) in episodes.iter().zip(changes(&updater, &episodes, 1)) {
            let rewarded = episode.reward == Some(1.0);
            assert!(
                (change > 0.0) == rewarded,
                "{algorithm:?} {}: {change}",
                episode.episode_id
            );
        }
    }
}

#[test]
fn with_the_sign_flipped_it_is_the_other_way_round() {
    let episodes = batch();
    let section = TrainSection {
        control: Some(ControlName::NegatedAdvantage),
        ..section(AlgorithmName::Grpo)
    };
    let flipped = Updater::new(settings(&section), None).unwrap();
    for (episode, change) in episodes.iter().zip(changes(&flipped, &episodes, 1)) {
        assert!(
            (change < 0.0) == (episode.reward == Some(1.0)),
            "{}: {change}",
            episode.episode_id
        );
    }
}

#[test]
fn the_gradient_does_not_depend_on_the_cut_into_micro_batches() {
    let modes = [
        LossAggregation::TokenMean,
        LossAggregation::SeqMeanTokenSum,
        LossAggregation::SeqMeanTokenMean,
        LossAggregation::SeqMeanTokenSumNorm,
    ];
    let mut episodes = batch();
    record(&policy(2), &mut episodes);
    for mode in modes {
        let written = TrainSection {
            loss_agg_mode: Some(mode),
            bypass_old_logprob: true,
            entropy_coeff: 0.01,
            ..section(AlgorithmName::Grpo)
        };
        let gradient = |budget: u32| -> (usize, Vec<f32>) {
            let updater = updater(&TrainSection {
                max_tokens_per_micro_batch: budget,
                ..written.clone()
            });
            let recipe = &updater.settings.recipe;
            let filtered = updater.settings.filter.apply(&episodes, false);
            let mut units = gather(&episodes, &filtered, updater.estimator.algorithm(), None);
            credit::by_length(&updater.estimator, &mut units);
            let mut work = updater.rows(1, &units).unwrap();
            credit::lay_out(&units, &mut work);
            let mut trainer = policy(1);
            log_probs::prepare(&trainer, None, recipe, 1, &mut work, &mut Metrics::new()).unwrap();
            let chosen = weigh(&updater.settings, &[0, 1], &units, &mut work);
            accumulate(&mut trainer, recipe, 1, &work, &chosen).unwrap();
            let cuts = micro_batches(&work, &chosen, budget as usize).len();
            (
                cuts,
                trainer
                    .take_gradients()
                    .into_iter()
                    .flat_map(|(_, values)| values)
                    .collect(),
            )
        };
        let (one, whole) = gradient(10_000);
        let (seven, pieces) = gradient(1);
        assert_eq!((one, seven), (1, 7));
        let norm = whole.iter().map(|g| g * g).sum::<f32>().sqrt();
        let difference = whole
            .iter()
            .zip(&pieces)
            .map(|(a, b)| (a - b).powi(2))
            .sum::<f32>()
            .sqrt();
        assert!(
            norm > 0.0 && difference <= 1e-5 * norm,
            "{mode:?}: {difference} of {norm}"
        );
    }
}

#[test]
fn equal_inputs_give_equal_bits_in_whatever_order_they_arrive() {
    let written = TrainSection {
        mini_batch: Some(1),
        ..section(AlgorithmName::Grpo)
    };
    let run = |episodes: &[Episode]| {
        let mut trainer = policy(1);
        let updater = updater(&written);
        let reports: Vec<_> = (1..=3)
            .map(|step| updater.step(&mut trainer, step, episodes).unwrap())
            .collect();
        assert_eq!(reports[0].updates, 2);
        all_weights(&trainer)
    };
    let episodes = batch();
    let mut reversed = episodes.clone();
    reversed.reverse();
    let weights = run(&episodes);
    assert_eq!(weights, run(&episodes));
    assert_eq!(weights, run(&reversed));
    assert_ne!(weights, all_weights(&policy(1)));
}

#[test]
fn demonstrations_become_likelier_and_need_neither_reward_nor_log_probs() {
    let mut episodes = batch();
    for episode in &mut episodes {
        episode.reward = None;
        episode.outcome = Outcome::InfraError;
        episode
            .segments
            .iter_mut()
            .for_each(|segment| segment.response_logprobs = None);
    }
    let updater = updater(&TrainSection {
        lr: 1e-2,
        ..section(AlgorithmName::Sft)
    });
    let mut trainer = policy(1);
    let losses: Vec<f64> = (1..=20)
        .map(|step| updater.step(&mut trainer, step, &episodes).unwrap().metrics["actor/loss"])
        .collect();
    // ln 32 = 3.47 at the start.
    assert!(
        (losses[0] - 3.47).abs() < 0.2 && losses[19] < 0.5 * losses[0],
        "{losses:?}"
    );
}

#[test]
fn a_step_without_signal_is_skipped_and_counted() {
    let episodes: Vec<_> = batch()
        .into_iter()
        .map(|episode| Episode {
            reward: Some(1.0),
            ..episode
        })
        .collect();
    let mut trainer = policy(1);
    let before = all_weights(&trainer);
    let report = updater(&section(AlgorithmName::Grpo))
        .step(&mut trainer, 1, &episodes)
        .unwrap();
    assert_eq!(
        (report.skipped, report.updates, report.consumed.len()),
        (Some(Skip::NoSignal), 0, 6)
    );
    assert_eq!(report.metrics["rollout/no_signal_groups"], 2.0);
    assert_eq!(report.metrics["training/skipped_steps"], 1.0);
    assert!(
        report.metrics.values().all(|value| value.is_finite()),
        "{:?}",
        report.metrics
    );
    assert_eq!(before, all_weights(&trainer));
    let none = updater(&section(AlgorithmName::Grpo))
        .step(&mut trainer, 1, &[])
        .unwrap();
    assert_eq!(none.skipped, Some(Skip::NoEpisodes));
    assert!(none.metrics.values().all(|value| value.is_finite()));
}

#[test]
fn a_group_without_signal_stays_in_the_denominator() {
    let norm = |episodes: &[Episode]| {
        let written = TrainSection {
            loss_agg_mode: Some(LossAggregation::SeqMeanTokenMean),
            ..section(AlgorithmName::Grpo)
        };
        updater(&written).step(&mut policy(1), 1, episodes).unwrap().metrics["actor/grad_norm"]
    };
    let mut episodes = batch();
    let alone = norm(&episodes[..3]);
    episodes[3..].iter_mut().for_each(|episode| episode.reward = Some(0.0));
    assert!((norm(&episodes) - alone / 2.0).abs() < 1e-5 * alone);
}

#[test]
fn every_episode_is_consumed_or_dropped_with_its_reason() {
    let mut episodes = batch();
    episodes[1].outcome = Outcome::VerifierError;
    episodes[2].reward = None;
    let report = updater(&section(AlgorithmName::Grpo))
        .step(&mut policy(1), 1, &episodes)
        .unwrap();
    let reasons: Vec<_> = report
        .dropped
        .iter()
        .map(|(id, reason)| (id.0.as_str(), reason.name()))
        .collect();
    assert_eq!(reasons, [("e1", "verifier_error"), ("e2", "no_reward")]);
    assert_eq!(report.consumed.len() + report.dropped.len(), episodes.len());
    assert_eq!(report.metrics["trajectory_filter/reason/verifier_error"], 1.0);
    // The first group has shrunk to one.
    assert_eq!(report.metrics["rollout/no_signal_groups"], 1.0);
}

#[test]
fn recorded_log_probs_of_the_same_weights_are_faithful() {
    let mut trainer = policy(1);
    let mut episodes = batch();
    record(&trainer, &mut episodes);
    let report = updater(&section(AlgorithmName::Grpo))
        .step(&mut trainer, 1, &episodes)
        .unwrap();
    let metrics = &report.metrics;
    assert!(metrics["training/rollout_actor_probs_pearson_corr"] > 0.999_9);
    assert!(metrics["rollout_corr/kl"].abs() < 1e-5 && metrics["rollout_corr/k3_kl"] < 1e-6);
    assert!((metrics["rollout_corr/is_max"] - 1.0).abs() < 1e-4);
    // One mini-batch: the weights are those of the old log-probs.
    assert!((metrics["actor/ratio/mean"] - 1.0).abs() < 1e-4 && metrics["actor/pg_clipfrac"] == 0.0);
    for name in [
        "actor/entropy",
        "actor/grad_norm",
        "actor/lr",
        "timing_s/update_actor",
        "perf/throughput",
    ] {
        assert!(metrics[name] > 0.0, "{name}");
    }
}

#[test]
fn log_probs_are_taken_at_the_sampling_temperature() {
    let mut trainer = policy(1);
    let mut episodes = batch();
    for episode in &mut episodes {
        episode.sampling.temperature = 0.6;
        for segment in &mut episode.segments {
            let tokens = [segment.prompt_ids.as_slice(), &segment.response_ids].concat();
            let sequence = lego_policy::Sequence {
                tokens: &tokens,
                loss_start: segment.prompt_ids.len(),
                experts: &[],
            };
            segment.response_logprobs = Some(trainer.log_probs(&[sequence], 0.6, 1024).unwrap().remove(0).logprobs);
        }
    }
    let bypass = TrainSection {
        bypass_old_logprob: true,
        ..section(AlgorithmName::Grpo)
    };
    let report = updater(&bypass).step(&mut trainer, 1, &episodes).unwrap();
    assert!(
        (report.metrics["actor/ratio/max"] - 1.0).abs() < 1e-4,
        "{:?}",
        report.metrics
    );
}

#[test]
fn a_kl_term_needs_a_reference_and_is_zero_against_itself() {
    let written = TrainSection {
        kl_coef: 0.1,
        mini_batch: Some(1),
        ..section(AlgorithmName::Grpo)
    };
    let missing = Updater::new(settings(&written), None).err().unwrap();
    assert!(missing.to_string().contains("train.kl_coef is 0.1"), "{missing}");
    let updater = Updater::new(settings(&written), Some(policy(1))).unwrap();
    let mut trainer = policy(1);
    let first = updater.step(&mut trainer, 1, &batch()[..3]).unwrap();
    assert!(first.metrics["actor/kl_loss"].abs() < 1e-9, "{:?}", first.metrics);
    let second = updater.step(&mut trainer, 2, &batch()[..3]).unwrap();
    assert!(second.metrics["actor/kl_loss"] > 0.0);
}

#[test]
fn a_group_of_one_by_configuration_learns_from_its_reward() {
    let mut written = section(AlgorithmName::Grpo);
    (written.advantage, written.loss) = (Some(AdvantageName::Rloo), Some(LossName::Reinforce));
    let episodes = [episode("a", "g", Some(1.0))];
    let report = updater(&written).step(&mut policy(1), 1, &episodes).unwrap();
    assert_eq!((report.updates, report.metrics["critic/advantages/mean"]), (1, 1.0));
}
