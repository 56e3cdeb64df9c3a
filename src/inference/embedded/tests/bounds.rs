//! Bounds: memory, window, queue, readers that stall or leave, the end of the engine.

use super::*;
use crate::inference::EngineError;
use crate::inference::PauseMode;
use crate::trajectory::FinishReason;

#[tokio::test]
async fn idle_caches_give_way_oldest_first() {
    let engine = start_with_capacity(150, &EmbeddedOptions::default());
    for salt in 0..4 {
        ask(&engine, request(&format!("s{salt}/0"), &prompt(salt, 40), 5)).await;
        until("used within capacity", || engine.load().kv_used <= 150).await;
    }
    // 44 tokens each: the last three fit, the first had to go.
    let cached = async |salt: u32| {
        ask(&engine, request(&format!("s{salt}/1"), &prompt(salt, 40), 1))
            .await
            .finish
            .usage
            .cached
    };
    assert_eq!(cached(3).await, 39);
    assert_eq!(cached(0).await, 0);
}

#[tokio::test]
async fn memory_for_less_than_the_batch_changes_no_answer() {
    let requests = || (0..6).map(|i| request(&format!("s{i}"), &prompt(i, 30), 60));
    let roomy = start(&EmbeddedOptions::default());
    let expected = futures_util::future::join_all(requests().map(|request| ask(&roomy, request))).await;
    let tight = start_with_capacity(200, &EmbeddedOptions::default());
    let answers = futures_util::future::join_all(requests().map(|request| ask(&tight, request))).await;
    for (answer, expected) in answers.iter().zip(&expected) {
        assert_eq!(answer.sampled(), expected.sampled());
    }
    let load = tight.load();
    assert!(load.preemptions > 0 && load.kv_used <= 200, "{load:?}");
    assert_eq!(load.prompt_tokens, 180);
    assert_eq!(roomy.load().preemptions, 0);
}

#[tokio::test]
async fn the_window_refuses_prompts_and_clamps_answers() {
    let engine = start(&EmbeddedOptions::default());
    let error = engine.generate(request("s", &prompt(1, WINDOW), 5)).await.unwrap_err();
    assert!(matches!(
        error,
        EngineError::Window {
            prompt: WINDOW,
            window: WINDOW
        }
    ));
    let answer = ask(&engine, request("s", &prompt(1, WINDOW - 7), 100)).await;
    assert_eq!((answer.ids.len(), answer.finish.reason), (7, FinishReason::Length));

    let small = start_with_capacity(50, &EmbeddedOptions::default());
    assert_eq!(small.window(), 50);
    assert_eq!(ask(&small, request("s", &prompt(1, 30), 100)).await.ids.len(), 20);
}

#[tokio::test]
async fn what_cannot_be_served_is_refused() {
    let engine = start(&EmbeddedOptions::default());
    let refused = async |change: fn(&mut GenerateRequest)| {
        let mut request = request("s", &prompt(1, 5), 5);
        change(&mut request);
        engine.generate(request).await.unwrap_err().to_string()
    };
    assert!(
        refused(|request| request.prompt = [].into())
            .await
            .contains("prompt is empty")
    );
    assert!(
        refused(|request| request.prompt = [99].into())
            .await
            .contains("token 99")
    );
    assert!(
        refused(|request| request.sampling.max_tokens = 0)
            .await
            .contains("max_tokens")
    );
    assert!(refused(|request| request.sampling.top_k = 0).await.contains("top_k"));
    assert!(refused(|request| request.sampling.top_p = 1.5).await.contains("top_p"));
    assert!(
        refused(|request| request.sampling.temperature = f32::NAN)
            .await
            .contains("temperature")
    );
    let options = EmbeddedOptions {
        kv_memory: 3,
        ..EmbeddedOptions::default()
    };
    assert!(EmbeddedEngine::start(&weights(1), version(0), &options).is_err());
}

#[tokio::test]
async fn beyond_the_queue_is_refused_until_a_place_is_free() {
    let options = EmbeddedOptions {
        max_running: 1,
        max_waiting: 1,
        ..EmbeddedOptions::default()
    };
    let engine = start(&options);
    engine.pause(PauseMode::Keep).await.unwrap();
    let first = engine.generate(request("a", &prompt(1, 5), 5)).await.unwrap();
    let second = engine.generate(request("b", &prompt(2, 5), 5)).await.unwrap();
    let error = engine.generate(request("c", &prompt(3, 5), 5)).await.unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::Unavailable {
                retry_after: Some(_),
                ..
            }
        ),
        "{error}"
    );
    engine.resume().await.unwrap();
    assert_eq!(drain(first).await.ids.len(), 5);
    assert_eq!(drain(second).await.ids.len(), 5);
    until("a place", || engine.load().running + engine.load().waiting == 0).await;
    assert_eq!(ask(&engine, request("c", &prompt(3, 5), 5)).await.ids.len(), 5);
}

#[tokio::test]
async fn an_id_in_use_is_refused() {
    let engine = start(&EmbeddedOptions::default());
    engine.pause(PauseMode::Keep).await.unwrap();
    let first = engine.generate(request("a", &prompt(1, 5), 5)).await.unwrap();
    let twin = ask(&engine, request("a", &prompt(1, 5), 5)).await;
    assert_eq!(twin.finish.reason, FinishReason::Error);
    assert!(twin.finish.error.unwrap().contains("`a` is in use"));
    engine.resume().await.unwrap();
    assert_eq!(drain(first).await.ids.len(), 5);
}

#[tokio::test]
async fn a_stalled_reader_stalls_nobody_and_loses_nothing() {
    let engine = start(&EmbeddedOptions::default());
    let stalled = engine.generate(request("slow", &prompt(1, 10), 400)).await.unwrap();
    assert_eq!(ask(&engine, request("quick", &prompt(2, 10), 450)).await.ids.len(), 450);
    until("both done", || engine.load().running == 0).await;
    assert_eq!(drain(stalled).await.ids.len(), 400);
}

#[tokio::test]
async fn a_reader_that_leaves_aborts_its_generation() {
    let engine = start(&EmbeddedOptions::default());
    // A busy machine may let one run to its end before it sees the reader gone, but not ten.
    for attempt in 1..=10 {
        let mut generation = engine.generate(request("s/0", &prompt(1, 10), 500)).await.unwrap();
        next(&mut generation).await.unwrap();
        drop(generation);
        until("aborted", || engine.load().running == 0).await;
        if engine.load().sampled_tokens < attempt * 500 {
            break;
        }
        assert!(attempt < 10, "every generation ran to its end");
    }
    assert!(
        ask(&engine, request("s/1", &prompt(1, 10), 1))
            .await
            .finish
            .usage
            .cached
            == 9
    );

    engine.pause(PauseMode::Keep).await.unwrap();
    drop(engine.generate(request("t", &prompt(1, 10), 5)).await.unwrap());
    until("forgotten while paused", || engine.load().waiting == 0).await;
}

#[tokio::test]
async fn dropping_the_engine_ends_its_thread_and_all_generations() {
    let engine = start(&EmbeddedOptions {
        max_running: 1,
        ..EmbeddedOptions::default()
    });
    let mut running = engine.generate(request("a", &prompt(1, 10), 500)).await.unwrap();
    let waiting = engine.generate(request("b", &prompt(1, 10), 500)).await.unwrap();
    next(&mut running).await.unwrap();
    let thread = Arc::downgrade(&engine.shared);
    drop(engine);
    let mut last = None;
    while let Some(event) = next(&mut running).await {
        last = Some(event);
    }
    let Some(GenerationEvent::Finished(finish)) = last else {
        panic!("no end: {last:?}")
    };
    assert_eq!(
        (finish.reason, finish.error.as_deref()),
        (FinishReason::Error, Some("the engine was stopped"))
    );
    assert_eq!(drain(waiting).await.finish.reason, FinishReason::Error);
    until("the thread's end", || thread.strong_count() == 0).await;
}
