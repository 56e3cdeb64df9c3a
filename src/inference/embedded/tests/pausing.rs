//! Abort, pause, publish, resume.

use lego_policy::{AdamW, Device, Sequence, Trainer};

use super::*;
use crate::inference::{EngineError, PauseMode};
use crate::trajectory::FinishReason;

/// A generation that has begun.
async fn begun(engine: &EmbeddedEngine, id: &str, max_tokens: u32) -> Generation {
    let mut generation = engine.generate(request(id, &prompt(1, 20), max_tokens)).await.unwrap();
    // The first delta is looked at, not taken, so that `drain` sees all.
    for _ in 0..2000 {
        if !generation.is_empty() {
            return generation;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no first token; closed: {}", generation.next().await.is_none());
}

/// What `attempt` found on the first fresh engine whose generation it met half way: on a busy machine an answer may be
/// whole before the test's next call reaches the engine, and then says nothing (`None`).
async fn half_way<T>(max_tokens: u32, attempt: impl AsyncFn(&EmbeddedEngine, Generation) -> Option<T>) -> T {
    for _ in 0..50 {
        let engine = start(&EmbeddedOptions::default());
        let generation = begun(&engine, "s", max_tokens).await;
        if let Some(found) = attempt(&engine, generation).await {
            return found;
        }
    }
    panic!("never in mid-generation");
}

#[tokio::test]
async fn an_abort_keeps_what_was_sampled() {
    let whole = ask(&start(&EmbeddedOptions::default()), request("s", &prompt(1, 20), 490)).await;
    let answer = half_way(490, async |engine, generation| {
        engine.abort("unknown").await;
        engine.abort("s").await;
        let answer = drain(generation).await;
        (answer.ids.len() < 490).then_some(answer)
    })
    .await;
    assert_eq!(answer.finish.reason, FinishReason::Abort);
    assert!(!answer.ids.is_empty() && answer.ids.len() < 490);
    assert_eq!(answer.ids, whole.ids[..answer.ids.len()]);
}

#[tokio::test]
async fn keep_stands_still_and_goes_on() {
    let engine = start(&EmbeddedOptions::default());
    let whole = ask(&engine, request("s", &prompt(1, 20), 490)).await;
    let generation = begun(&engine, "s", 490).await;
    engine.pause(PauseMode::Keep).await.unwrap();
    let sampled = engine.load().sampled_tokens;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(engine.load().sampled_tokens, sampled);
    engine.resume().await.unwrap();
    assert_eq!(drain(generation).await.sampled(), whole.sampled());
}

#[tokio::test]
async fn wait_lets_the_running_end_and_the_waiting_wait() {
    let engine = start(&EmbeddedOptions {
        max_running: 1,
        ..EmbeddedOptions::default()
    });
    let running = begun(&engine, "a", 200).await;
    let waiting = engine.generate(request("b", &prompt(2, 20), 10)).await.unwrap();
    engine.pause(PauseMode::Wait).await.unwrap();
    assert_eq!(engine.load().sampled_tokens, 200);
    assert_eq!(drain(running).await.finish.reason, FinishReason::Length);
    engine.resume().await.unwrap();
    assert_eq!(drain(waiting).await.ids.len(), 10);
}

#[tokio::test]
async fn a_wait_that_is_overtaken_says_so() {
    let waited = half_way(490, async |engine, generation| {
        let (waited, resumed) = tokio::join!(engine.pause(PauseMode::Wait), engine.resume());
        resumed.unwrap();
        assert_eq!(drain(generation).await.ids.len(), 490);
        waited.err()
    })
    .await;
    assert!(matches!(waited, EngineError::Unavailable { .. }), "{waited:?}");
}

#[tokio::test]
async fn abort_ends_the_running_and_resume_serves_again() {
    let reason = half_way(490, async |engine, generation| {
        engine.pause(PauseMode::Abort).await.unwrap();
        let answer = drain(generation).await;
        engine.pause(PauseMode::Keep).await.unwrap();
        engine.resume().await.unwrap();
        engine.resume().await.unwrap();
        assert_eq!(ask(engine, request("b", &prompt(2, 20), 10)).await.ids.len(), 10);
        (answer.ids.len() < 490).then_some(answer.finish.reason)
    })
    .await;
    assert_eq!(reason, FinishReason::Abort);
}

#[tokio::test]
async fn a_publish_in_mid_generation_is_seen_token_by_token() {
    let (answer, old) = half_way(400, async |engine, generation| {
        engine.pause(PauseMode::Keep).await.unwrap();
        engine.publish_weights(version(1), weights(2)).await.unwrap();
        assert_eq!(engine.version(), version(1));
        engine.resume().await.unwrap();
        let answer = drain(generation).await;
        let old = answer.versions.iter().filter(|found| **found == version(0)).count();
        (old < 400).then_some((answer, old))
    })
    .await;
    assert!(old > 0, "{old}");
    assert!(answer.versions[old..].iter().all(|found| *found == version(1)));

    // Each token's log-prob is the one that its own weights give to the whole sequence.
    let tokens = [prompt(1, 20), answer.ids.clone()].concat();
    for (seed, part) in [(1, 0..old), (2, old..400)] {
        let trainer = Trainer::new(weights(seed), Device::Cpu, AdamW::default()).unwrap();
        let theirs = trainer
            .log_probs(
                &[Sequence {
                    tokens: &tokens,
                    loss_start: 20,
                    experts: &[],
                }],
                0.9,
                4096,
            )
            .unwrap();
        for (ours, theirs) in answer.logprobs[part.clone()].iter().zip(&theirs[0].logprobs[part]) {
            assert!((ours - theirs).abs() < 1e-4, "{ours} {theirs}");
        }
    }
}

#[tokio::test]
async fn a_publish_invalidates_idle_caches() {
    let engine = start(&EmbeddedOptions::default());
    ask(&engine, request("s/0", &prompt(1, 20), 5)).await;
    engine.publish_weights(version(1), weights(2)).await.unwrap();
    let answer = ask(&engine, request("s/1", &prompt(1, 20), 5)).await;
    assert_eq!(answer.finish.usage.cached, 0);
    let fresh = EmbeddedEngine::start(&weights(2), version(1), &EmbeddedOptions::default()).unwrap();
    assert_eq!(answer, ask(&fresh, request("s/1", &prompt(1, 20), 5)).await);
}

#[tokio::test]
async fn weights_come_from_a_folder_and_must_be_the_same_model() {
    let engine = start(&EmbeddedOptions::default());
    let folder = tempfile::tempdir().unwrap();
    weights(2).save(folder.path()).unwrap();
    engine.publish(version(3), folder.path()).await.unwrap();
    assert_eq!(engine.version(), version(3));

    let error = engine
        .publish(version(4), &folder.path().join("none"))
        .await
        .unwrap_err();
    assert!(matches!(error, EngineError::Weights { .. }), "{error}");
    let other = Weights::init(ModelConfig::tiny(VOCABULARY), 1).unwrap();
    let error = engine.publish_weights(version(4), other).await.unwrap_err().to_string();
    assert!(error.contains("another model's"), "{error}");
    assert_eq!(engine.version(), version(3));
    assert_eq!(
        ask(&engine, request("s", &prompt(1, 20), 5)).await.versions[0],
        version(3)
    );
}
