//! What is sampled: alone or together, and by the trainer's own measure.

use lego_policy::{AdamW, Device, Sequence, Trainer};

use super::*;
use crate::trajectory::FinishReason;

fn requests() -> Vec<GenerateRequest> {
    (0..7)
        .map(|i| request(&format!("s{i}"), &prompt(i, 3 + 29 * i as usize), 12 + 5 * i))
        .collect()
}

#[tokio::test]
async fn batched_is_alone_bit_for_bit() {
    let mut alone = Vec::new();
    for request in requests() {
        alone.push(ask(&start(&EmbeddedOptions::default()), request).await.sampled());
    }
    let engine = start(&EmbeddedOptions {
        pass_tokens: 17,
        ..EmbeddedOptions::default()
    });
    let together = futures_util::future::join_all(requests().into_iter().map(|request| ask(&engine, request))).await;
    let together: Vec<_> = together.iter().map(Answer::sampled).collect();
    assert_eq!(together, alone);
}

#[tokio::test]
async fn log_probs_are_the_trainers() {
    for temperature in [1.0, 0.6] {
        let mut wanted = request("s", &prompt(5, 40), 60);
        wanted.sampling.temperature = temperature;
        let answer = ask(&start(&EmbeddedOptions::default()), wanted).await;
        let tokens = [prompt(5, 40), answer.ids.clone()].concat();
        let trainer = Trainer::new(weights(1), Device::Cpu, AdamW::default()).unwrap();
        let sequence = Sequence {
            tokens: &tokens,
            loss_start: 40,
            experts: &[],
        };
        let theirs = trainer.log_probs(&[sequence], temperature, 4096).unwrap();
        assert_eq!(theirs[0].logprobs.len(), answer.logprobs.len());
        for (ours, theirs) in answer.logprobs.iter().zip(&theirs[0].logprobs) {
            assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
        }
    }
}

#[tokio::test]
async fn the_seed_decides() {
    let engine = start(&EmbeddedOptions::default());
    let with_seed = |id: &str, seed| {
        let mut request = request(id, &prompt(2, 9), 30);
        request.sampling.seed = seed;
        request
    };
    let first = ask(&engine, with_seed("a", 7)).await;
    assert_eq!(first.sampled(), ask(&engine, with_seed("b", 7)).await.sampled());
    assert_ne!(first.ids, ask(&engine, with_seed("c", 8)).await.ids);
}

#[tokio::test]
async fn greedy_ignores_the_seed() {
    let engine = start(&EmbeddedOptions::default());
    let mut answers = Vec::new();
    for seed in 0..3 {
        let mut request = request(&format!("g{seed}"), &prompt(3, 9), 30);
        request.sampling.seed = seed;
        request.sampling.temperature = 0.0;
        answers.push(ask(&engine, request).await.sampled());
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0], answers[2]);
}

#[tokio::test]
async fn a_stop_token_ends_and_is_part_of_the_answer() {
    let engine = start(&EmbeddedOptions::default());
    let free = ask(&engine, request("s", &prompt(4, 9), 40)).await;
    assert_eq!(free.finish.reason, FinishReason::Length);
    let stop = free.ids[10];
    let first = free.ids.iter().position(|id| *id == stop).unwrap();
    let mut stopped = request("s", &prompt(4, 9), 40);
    stopped.sampling.stop_token_ids = vec![stop];
    let stopped = ask(&engine, stopped).await;
    assert_eq!(stopped.finish.reason, FinishReason::Stop);
    assert_eq!(stopped.ids, free.ids[..=first]);
}
