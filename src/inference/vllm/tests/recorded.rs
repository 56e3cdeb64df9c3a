//! Answers of a vLLM 0.32.0 that ran (on a processor, with the quickstart's policy), word for word.

use super::*;

const TOKENS: &str = include_str!("recorded/tokens.sse");
const ABORTED: &str = include_str!("recorded/aborted.sse");
const REFUSED: &str = include_str!("recorded/refused.sse");
const COMPLETION: &str = include_str!("recorded/completion.sse");

fn events(stream: &str) -> Vec<Value> {
    let lines = stream.lines().filter_map(|line| line.strip_prefix("data: {"));
    lines
        .map(|rest| serde_json::from_str(&format!("{{{rest}")).unwrap())
        .collect()
}

/// What a request with this prompt makes of an answer: ids, log-probs and the end.
async fn read(stream: &str, prompt: &[TokenId], old: bool) -> (Vec<TokenId>, Vec<f32>, crate::inference::Finish) {
    let peer = Peer::start().await;
    if old {
        peer.grow_old();
    }
    let events = events(stream);
    assert!(!events.is_empty());
    peer.script(&events);
    let engine = connect(&peer).await;
    let asking = GenerateRequest {
        prompt: Arc::from(prompt),
        ..request("r")
    };
    let (deltas, finish) = drain(engine.generate(asking).await.unwrap()).await;
    assert!(deltas.iter().all(|delta| delta.version == version(0)));
    let ids = deltas.iter().flat_map(|delta| delta.ids.clone()).collect();
    let logprobs = deltas.iter().flat_map(|delta| delta.logprobs.clone().unwrap());
    (ids, logprobs.collect(), finish)
}

#[tokio::test]
async fn an_answer_is_read_with_its_usage() {
    let (ids, logprobs, finish) = read(TOKENS, &[1, 30, 40, 50, 60], false).await;
    assert_eq!(ids, [365, 348, 270]);
    assert_eq!(logprobs, [-4.348_002_4, -0.212_290_81, -0.505_758_3]);
    assert_eq!((finish.reason, finish.error), (FinishReason::Length, None));
    assert_eq!((finish.usage.prompt, finish.usage.completion), (5, 3));
}

#[tokio::test]
async fn what_was_sampled_before_an_abort_stands() {
    let (ids, logprobs, finish) = read(ABORTED, &[1, 30, 40, 50, 60], false).await;
    assert_eq!((ids.as_slice(), logprobs.len()), (&[365, 348, 270][..], 3));
    assert_eq!((finish.reason, finish.error), (FinishReason::Abort, None));
}

#[tokio::test]
async fn a_refusal_comes_within_a_stream_and_is_not_tried_again() {
    let (ids, _, finish) = read(REFUSED, &[1, 999], false).await;
    assert!(ids.is_empty());
    assert!(finish.rejected, "{finish:?}");
    assert!(finish.error.unwrap().contains("Token id 999 is out of vocabulary"));
}

#[tokio::test]
async fn a_completion_is_read_with_the_prompt_that_was_seen() {
    let (ids, logprobs, finish) = read(COMPLETION, &[1, 30, 40, 50, 60], true).await;
    assert_eq!((ids.as_slice(), logprobs[3]), (&[348, 348, 348, 372][..], -3.504_104_6));
    assert_eq!((finish.reason, finish.error), (FinishReason::Length, None));
    assert_eq!((finish.usage.prompt, finish.usage.completion), (5, 4));
}
