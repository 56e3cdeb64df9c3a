//! The completions route, where there is no token route.

use super::peer::completion;
use super::*;

const PROMPT: [TokenId; 3] = [504, 3575, 282];

async fn old() -> (Peer, VllmEngine) {
    let peer = Peer::start().await;
    peer.grow_old();
    let engine = connect(&peer).await;
    (peer, engine)
}

#[tokio::test]
async fn ids_and_log_probs_come_from_completions_where_there_is_no_token_route() {
    let (peer, engine) = old().await;
    for id in ["r1", "r2"] {
        peer.script(&[
            completion(Some(&PROMPT), &[7042], -0.5, None),
            completion(None, &[30, 2], -1.0, Some("stop")),
            usage(3, 3, 2),
        ]);
        let (deltas, finish) = drain(engine.generate(request(id)).await.unwrap()).await;
        assert_eq!(
            deltas,
            [delta(&[7042], -0.5, version(0)), delta(&[30, 2], -1.0, version(0))]
        );
        assert_eq!((finish.reason, finish.error), (FinishReason::Stop, None));
        assert_eq!(
            (finish.usage.prompt, finish.usage.cached, finish.usage.completion),
            (3, 2, 3)
        );
    }
    let sent = peer.sent("/v1/completions");
    assert_eq!(sent[0]["prompt"], json!(PROMPT));
    assert_eq!(
        (&sent[0]["return_token_ids"], &sent[0]["model"], &sent[0]["max_tokens"]),
        (&json!(true), &json!("smol"), &json!(6))
    );
    // The model's own settings are not what trains.
    assert_eq!(
        (&sent[0]["repetition_penalty"], &sent[0]["min_p"]),
        (&json!(1.0), &json!(0.0))
    );
    assert_eq!(peer.sent("/inference/v1/generate").len(), 1, "it is asked for once");
    engine.abort("r2").await;
    assert_eq!(
        peer.sent("/abort_requests").last(),
        Some(&json!({"request_ids": ["cmpl-r2-0"]}))
    );
}

#[tokio::test]
async fn completions_that_contradict_themselves_are_never_given_out() {
    let mut short = completion(Some(&PROMPT), &[1, 2], -0.5, Some("stop"));
    short["choices"][0]["logprobs"]["token_logprobs"] = json!([-0.5]);
    let mut empty = completion(Some(&PROMPT), &[1], -0.5, Some("stop"));
    empty["choices"][0]["logprobs"]["token_logprobs"] = json!([null]);
    let whole = || completion(Some(&PROMPT), &[1], -0.5, Some("stop"));
    for (script, why) in [
        (vec![short], "1 log-probs for 2 tokens"),
        (vec![empty], "a token without a log-prob"),
        (
            vec![completion(Some(&[504, 1, 282]), &[1], -0.5, Some("stop"))],
            "another prompt: 3 tokens for 3, different from token 1 on",
        ),
        (
            vec![completion(Some(&[1, 504, 3575, 282]), &[1], -0.5, Some("stop"))],
            "another prompt: 4 tokens for 3",
        ),
        (vec![completion(None, &[1], -0.5, Some("stop"))], "`prompt_token_ids`"),
        (vec![whole(), usage(3, 2, 0)], "usage says 3 + 2 tokens"),
        (vec![whole()], "without usage"),
    ] {
        let (peer, engine) = old().await;
        peer.script(&script);
        let (deltas, finish) = drain(engine.generate(request("r")).await.unwrap()).await;
        assert_eq!(finish.reason, FinishReason::Error, "{why}");
        assert_eq!(finish.rejected, why != "without usage", "{why}");
        let error = finish.error.unwrap();
        assert!(error.contains(why), "{why}: {error}");
        assert!(deltas.iter().all(|delta| delta.ids == [1]), "{why}");
    }
}

#[tokio::test]
async fn tokens_of_unknown_weights_are_not_given_out() {
    let (peer, engine) = old().await;
    let gate = peer.script_with_gate(
        &[completion(Some(&PROMPT), &[1], -0.5, None)],
        &[completion(None, &[2], -0.5, Some("stop")), usage(3, 2, 0)],
    );
    let mut generation = engine.generate(request("r")).await.unwrap();
    generation.next().await.unwrap();
    engine.publish(version(1), Path::new("/weights")).await.unwrap();
    gate.notify_one();
    let (deltas, finish) = drain(generation).await;
    assert!(deltas.is_empty());
    assert!(finish.error.unwrap().contains("does not say which token is whose"));
}
