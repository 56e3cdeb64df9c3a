//! What an update refuses, by name, with the weights left alone.

use super::tests::{section, updater};
use crate::config::{AlgorithmName, TrainSection};
use crate::train::fixture::{all_weights, batch, policy};
use crate::trajectory::Episode;

#[test]
fn what_is_not_finite_is_named_and_leaves_the_weights_alone() {
    let mut trainer = policy(1);
    let before = all_weights(&trainer);
    let mut fails = |change: fn(&mut Episode), written: &TrainSection| {
        let mut episodes = batch();
        change(&mut episodes[4]);
        let text = updater(written)
            .step(&mut trainer, 3, &episodes)
            .unwrap_err()
            .to_string();
        assert_eq!(before, all_weights(&trainer));
        text
    };
    let grpo = section(AlgorithmName::Grpo);
    let reward = fails(|episode| episode.reward = Some(f32::NAN), &grpo);
    assert!(
        reward.contains("step 3: the reward is not finite (first in episode e4)"),
        "{reward}"
    );
    let recorded = fails(
        |episode| episode.segments[0].response_logprobs = Some(vec![-1.0, f32::NEG_INFINITY, -1.0]),
        &grpo,
    );
    assert!(
        recorded.contains("a recorded log-prob is not finite (first in episode e4)"),
        "{recorded}"
    );
    let token = fails(|episode| episode.segments[0].response_ids[0] = 99, &grpo);
    assert!(
        token.contains("episode e4 does not fit the policy: token 99"),
        "{token}"
    );
}

#[test]
fn weights_that_are_not_finite_are_found_in_the_log_probs_and_in_the_loss() {
    let weights = policy(1).weights();
    let tensors = weights.iter().map(|(name, tensor)| {
        let mut tensor = tensor.clone();
        if name == "model.norm.weight" {
            tensor.data = vec![f32::NAN; tensor.data.len()].into();
        }
        (name.to_owned(), tensor)
    });
    let broken = lego_policy::Weights::from_tensors(weights.config().clone(), tensors.collect()).unwrap();
    let mut trainer = policy(1);
    trainer.load_weights(broken).unwrap();
    let computed = updater(&section(AlgorithmName::Grpo))
        .step(&mut trainer, 1, &batch())
        .unwrap_err();
    assert!(
        computed.to_string().contains("an old log-prob is not finite"),
        "{computed}"
    );
    let bypass = TrainSection {
        bypass_old_logprob: true,
        ..section(AlgorithmName::Grpo)
    };
    let loss = updater(&bypass).step(&mut trainer, 1, &batch()).unwrap_err();
    assert!(loss.to_string().contains("the loss is not finite"), "{loss}");
}

#[test]
fn episodes_that_cannot_be_compared_with_are_refused() {
    let mut silent = batch();
    for segment in silent.iter_mut().flat_map(|episode| &mut episode.segments) {
        segment.response_logprobs = None;
    }
    let error = updater(&section(AlgorithmName::Grpo))
        .step(&mut policy(1), 1, &silent)
        .unwrap_err();
    assert!(
        error.to_string().contains("none of the 6 episodes has log-probs"),
        "{error}"
    );
    let mut cut = batch();
    cut[2].sampling.top_p = 0.9;
    let bypass = TrainSection {
        bypass_old_logprob: true,
        ..section(AlgorithmName::Grpo)
    };
    let error = updater(&bypass).step(&mut policy(1), 1, &cut).unwrap_err();
    assert!(error.to_string().contains("e2 was sampled with top_p 0.9"), "{error}");
    assert!(
        updater(&section(AlgorithmName::Grpo))
            .step(&mut policy(1), 1, &cut)
            .is_ok()
    );
}

#[test]
fn an_episode_given_twice_is_refused() {
    let mut episodes = batch();
    episodes.push(episodes[0].clone());
    let error = updater(&section(AlgorithmName::Sft))
        .step(&mut policy(1), 7, &episodes)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "step 7: episode e0 was given twice; a sampled token trains at most once"
    );
}
