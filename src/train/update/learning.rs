//! The whole way on a task that a tiny policy can learn: sample, reward, update; and the controls that must not.

use lego_policy::{DecodeModel, Logits, Sampler, Sampling, Slot, Trainer};

use super::*;
use crate::config::{AdvantageName, AlgorithmName, ControlName, CriticSection, TrainSection};
use crate::train::fixture::{critic, episode, policy, sampled, settings};

const GROUPS: u32 = 4;
const GROUP_SIZE: u32 = 16;
const STEPS: u64 = 20;

/// One answer of one token to each prompt, `GROUP_SIZE` times; token `8 + prompt` to `8 + prompt + 7` is right, so
/// that a policy that knows nothing is right in about a quarter of the cases.
fn sample(trainer: &Trainer, step: u64) -> Vec<Episode> {
    answers(trainer, step, Sampling::default(), GROUP_SIZE, "sampled")
}

fn answers(trainer: &Trainer, step: u64, sampling: Sampling, size: u32, name: &str) -> Vec<Episode> {
    let model = DecodeModel::new(&trainer.weights());
    let mut sampler = Sampler::new(sampling, step).unwrap();
    let mut episodes = Vec::new();
    for prompt in 1..=GROUPS {
        let mut cache = model.new_cache();
        let tokens = [0, prompt];
        let logits = model
            .forward(
                &mut [Slot {
                    cache: &mut cache,
                    tokens: &tokens,
                }],
                Logits::Last,
            )
            .unwrap();
        for place in 0..size {
            let answer = sampler.sample(logits[0].last());
            let right = (8 + prompt..16 + prompt).contains(&answer.token);
            let mut episode = episode(
                &format!("{step}-{prompt}-{name}{place:02}"),
                &format!("{step}-{prompt}"),
                Some(f32::from(u8::from(right))),
            );
            episode.segments = vec![sampled(&tokens, &[answer.token])];
            episode.segments[0].response_logprobs = Some(vec![answer.logprob]);
            episodes.push(episode);
        }
    }
    episodes
}

/// One more episode of each group, at temperature 0, that the others are compared with.
fn with_greedy(trainer: &Trainer, step: u64, mut episodes: Vec<Episode>) -> Vec<Episode> {
    let greedy = Sampling {
        temperature: 0.0,
        ..Sampling::default()
    };
    let mut more = answers(trainer, step, greedy, 1, "greedy");
    for episode in &mut more {
        episode.sampling.temperature = 0.0;
    }
    episodes.extend(more);
    episodes
}

/// Mean reward in the first and after the last step.
fn run(updater: &Updater) -> (f64, f64) {
    let recipe = &updater.settings().recipe;
    let mut trainer = policy(5);
    let mut critic = recipe.critic.map(|_| critic(5));
    let mut first = None;
    for step in 1..=STEPS {
        let mut episodes = sample(&trainer, step);
        if recipe.advantage == Some(AdvantageName::Remax) {
            episodes = with_greedy(&trainer, step, episodes);
        }
        let report = updater
            .step_with_critic(&mut trainer, critic.as_mut(), step, &episodes)
            .unwrap();
        first.get_or_insert(report.metrics["critic/score/mean"]);
        if step == 1 {
            assert!(
                (report.metrics["actor/ratio/max"] - 1.0).abs() < 1e-3,
                "engine and trainer agree"
            );
        }
    }
    let last = sample(&trainer, STEPS + 1);
    let rewards: f64 = last.iter().filter_map(|episode| episode.reward).map(f64::from).sum();
    (first.unwrap(), rewards / last.len() as f64)
}

fn section(algorithm: AlgorithmName) -> TrainSection {
    TrainSection {
        algorithm,
        lr: 1e-2,
        bypass_old_logprob: true,
        critic: CriticSection {
            lr: (algorithm == AlgorithmName::Ppo).then_some(1e-2),
            ..CriticSection::default()
        },
        ..TrainSection::default()
    }
}

#[test]
fn each_algorithm_learns_the_task() {
    for algorithm in [
        AlgorithmName::Grpo,
        AlgorithmName::Gspo,
        AlgorithmName::DrGrpo,
        AlgorithmName::Rloo,
        AlgorithmName::ReinforcePlusPlus,
        AlgorithmName::ReinforcePlusPlusBaseline,
        AlgorithmName::Opo,
        AlgorithmName::Remax,
        AlgorithmName::Cispo,
        AlgorithmName::Ppo,
    ] {
        let (first, last) = run(&Updater::new(settings(&section(algorithm)), None).unwrap());
        assert!(first < 0.5 && last > 0.9, "{algorithm:?}: {first} → {last}");
    }
}

fn control(control: ControlName) -> TrainSection {
    TrainSection {
        control: Some(control),
        ..section(AlgorithmName::Grpo)
    }
}

#[test]
fn with_the_sign_flipped_it_unlearns() {
    let (first, last) = run(&Updater::new(settings(&control(ControlName::NegatedAdvantage)), None).unwrap());
    assert!(last < first && last < 0.1, "{first} → {last}");
}

#[test]
fn with_rewards_shuffled_over_the_batch_it_does_not_learn() {
    let (first, last) = run(&Updater::new(settings(&control(ControlName::ShuffledRewards)), None).unwrap());
    assert!(last < first + 0.25, "{first} → {last}");
}
