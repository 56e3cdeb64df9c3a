//! What a generation costs: a turn its delta, a group its prompt once.

use super::*;

#[tokio::test]
async fn a_turn_of_a_long_session_costs_its_delta() {
    let engine = start(&EmbeddedOptions::default());
    let mut history = prompt(1, 30);
    let mut held = 0;
    for turn in 0..40_u32 {
        let before = engine.load();
        let answer = ask(&engine, request(&format!("s/{turn}"), &history, 5)).await;
        assert_eq!(answer.finish.usage.cached, held, "turn {turn}");
        // Fed are the delta, the last answer's last token, and all sampled tokens but the last.
        let fed = history.len() as u64 - u64::from(held) + 4;
        until("counted", || {
            engine.load().computed_tokens == before.computed_tokens + fed
        })
        .await;
        assert!(turn == 0 || fed == 6 + 1 + 4);
        history.extend(answer.ids);
        held = history.len() as u32 - 1;
        history.extend(prompt(turn, 6));
    }
    let load = engine.load();
    assert_eq!(load.sampled_tokens, 200);
    assert_eq!(load.prompt_tokens - load.cached_tokens, 30 + 39 * 7);
}

#[tokio::test]
async fn a_rewritten_history_reuses_what_is_still_true() {
    let engine = start(&EmbeddedOptions::default());
    let history = prompt(1, 60);
    ask(&engine, request("s/0", &history, 5)).await;
    let mut rewritten = history.clone();
    rewritten[50] = (rewritten[50] + 1) % VOCABULARY as u32;
    assert_eq!(engine.cached(&rewritten).await, Some(50));
    let reused = ask(&engine, request("s/1", &rewritten, 5)).await;
    assert_eq!(reused.finish.usage.cached, 50);
    let fresh = ask(&start(&EmbeddedOptions::default()), request("s/1", &rewritten, 5)).await;
    assert_eq!(reused.sampled(), fresh.sampled());
}

#[tokio::test]
async fn what_is_cached_is_told_and_new_weights_end_it() {
    let engine = start(&EmbeddedOptions::default());
    let history = prompt(1, 60);
    assert_eq!(engine.cached(&history).await, Some(0));
    ask(&engine, request("s/0", &history, 5)).await;
    assert_eq!(engine.cached(&history).await, Some(60));
    engine.publish_weights(version(1), weights(7)).await.unwrap();
    assert_eq!(engine.cached(&history).await, Some(0));
}

#[tokio::test]
async fn an_identical_prompt_costs_one_token() {
    let engine = start(&EmbeddedOptions::default());
    let first = ask(&engine, request("s/0", &prompt(1, 60), 5)).await;
    let mut again = request("s/1", &prompt(1, 60), 5);
    again.sampling.seed = request("s/0", &[], 1).sampling.seed;
    let again = ask(&engine, again).await;
    assert_eq!(again.finish.usage.cached, 59);
    assert_eq!(first.sampled(), again.sampled());
}

#[tokio::test]
async fn a_group_computes_its_prompt_once() {
    let engine = start(&EmbeddedOptions {
        pass_tokens: 20,
        ..EmbeddedOptions::default()
    });
    let group = (0..8).map(|i| ask(&engine, request(&format!("member{i}"), &prompt(1, 100), 3)));
    let answers = futures_util::future::join_all(group).await;
    let cached: u32 = answers.iter().map(|answer| answer.finish.usage.cached).sum();
    assert_eq!(cached, 7 * 99);
    let alone = ask(
        &start(&EmbeddedOptions::default()),
        request("member7", &prompt(1, 100), 3),
    )
    .await;
    assert_eq!(answers[7].sampled(), alone.sampled());
}

#[tokio::test]
async fn a_side_conversation_leaves_the_main_one_cached() {
    let engine = start(&EmbeddedOptions::default());
    let main = ask(&engine, request("s/main", &prompt(1, 80), 5)).await;
    ask(&engine, request("s/side", &[prompt(1, 10), prompt(9, 30)].concat(), 5)).await;
    let history = [prompt(1, 80), main.ids, prompt(2, 4)].concat();
    assert_eq!(
        ask(&engine, request("s/main2", &history, 5)).await.finish.usage.cached,
        84
    );
}
