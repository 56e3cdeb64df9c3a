//! The client against a local peer that answers with the shapes of vLLM 0.32.

mod completions;
mod peer;
mod recorded;
mod routing;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::*;
use crate::inference::testing::drain;
use crate::inference::{GenerationEvent, RequestOrigin, Sampling, TokenDelta, check_logprobs};
use crate::trajectory::{FinishReason, SessionKey, TokenId};
use peer::{Peer, chunk, last_chunk, usage};

async fn connect(peer: &Peer) -> VllmEngine {
    VllmEngine::connect(RemoteOptions {
        endpoint: peer.base.clone(),
        api_key: Some("secret".to_owned()),
        ca_file: None,
        experts: None,
        model: None,
        version: version(0),
        patience: Duration::from_secs(20),
    })
    .await
    .unwrap()
}

fn version(update: u64) -> PolicyVersion {
    PolicyVersion { lineage: 0, update }
}

fn request(id: &str) -> GenerateRequest {
    GenerateRequest {
        id: id.to_owned(),
        session: SessionKey::from("s"),
        prompt: Arc::from([504, 3575, 282]),
        sampling: Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            max_tokens: 6,
            stop_token_ids: vec![2],
            seed: u64::MAX,
        },
        origin: RequestOrigin::default(),
        routing_from: None,
    }
}

/// All tokens with their log-probs and versions, and the end.
fn delta(ids: &[TokenId], logprob: f32, version: PolicyVersion) -> TokenDelta {
    TokenDelta {
        ids: ids.to_vec(),
        logprobs: Some(vec![logprob; ids.len()]),
        version,
    }
}

#[tokio::test]
async fn tokens_log_probs_and_usage_arrive_as_they_were_sent() {
    let peer = Peer::start().await;
    peer.script(&[
        chunk(&[7042], -0.5),
        chunk(&[30, 2], -1.0),
        last_chunk("stop", &json!([{"version": "default", "start": 0, "end": 3}])),
        usage(3, 3, 2),
    ]);
    let engine = connect(&peer).await;
    assert_eq!(
        (engine.window(), engine.version(), engine.gives_logprobs()),
        (2048, version(0), true)
    );
    let (deltas, finish) = drain(engine.generate(request("r1")).await.unwrap()).await;
    assert_eq!(
        deltas,
        [delta(&[7042], -0.5, version(0)), delta(&[30, 2], -1.0, version(0))]
    );
    assert_eq!(finish.reason, FinishReason::Stop);
    assert_eq!(
        (finish.usage.prompt, finish.usage.cached, finish.usage.completion),
        (3, 2, 3)
    );
    let sent = peer.sent("/inference/v1/generate");
    assert_eq!(
        sent,
        [
            json!({"request_id": "r1", "token_ids": [504, 3575, 282], "sampling_params": {"max_tokens": 6,
            "temperature": 1.0, "top_p": 1.0, "top_k": -1, "seed": u64::MAX >> 1, "logprobs": 0, "stop_token_ids": [2]},
            "return_token_ids": true, "output_mode": "tokens", "stream": true, "stream_options": {"include_usage": true}})
        ]
    );
    assert_eq!(peer.keys(), ["Bearer secret"]);
}

#[tokio::test]
async fn what_contradicts_itself_is_never_given_out() {
    let versions = json!([{"version": "default", "start": 0, "end": 1}]);
    let mut short = chunk(&[1, 2], -0.5);
    short["choices"][0]["logprobs"]["content"].as_array_mut().unwrap().pop();
    let mut other = chunk(&[1], -0.5);
    other["choices"][0]["logprobs"]["content"][0]["token_id"] = json!(9);
    for (script, why) in [
        (vec![short], "1 log-probs for 2 tokens"),
        (vec![other], "token 1 comes with the log-prob of"),
        (
            vec![chunk(&[1], -0.5), last_chunk("stop", &versions), usage(3, 2, 0)],
            "usage says 3 + 2 tokens",
        ),
        (
            vec![chunk(&[1], -0.5), last_chunk("stop", &versions), usage(4, 1, 0)],
            "usage says 4 + 1 tokens",
        ),
        (
            vec![chunk(&[1], -0.5), last_chunk("stop", &json!([])), usage(3, 1, 0)],
            "cover 0 of 1 tokens",
        ),
        (vec![chunk(&[1], -0.5)], "without a finish reason"),
        (
            vec![json!({"error": {"message": "engine died", "code": 500}})],
            "engine died",
        ),
    ] {
        let peer = Peer::start().await;
        peer.script(&script);
        let engine = connect(&peer).await;
        let (deltas, finish) = drain(engine.generate(request("r")).await.unwrap()).await;
        assert_eq!(finish.reason, FinishReason::Error, "{why}");
        // What breaks off can be continued, what contradicts itself cannot.
        let broke_off = ["without a finish reason", "engine died"].contains(&why);
        assert_eq!(finish.rejected, !broke_off, "{why}");
        assert!(
            finish.error.as_deref().is_some_and(|error| error.contains(why)),
            "{why}: {:?}",
            finish.error
        );
        assert!(
            deltas
                .iter()
                .all(|delta| delta.ids.len() == delta.logprobs.as_ref().unwrap().len())
        );
    }
}

#[tokio::test]
async fn tokens_sampled_after_a_publication_carry_the_new_version() {
    let peer = Peer::start().await;
    let gate = peer.script_with_gate(
        &[chunk(&[1, 2], -0.5)],
        &[
            chunk(&[3], -0.5),
            chunk(&[4, 5], -0.5),
            last_chunk(
                "length",
                &json!([{"version": "default", "start": 0, "end": 3}, {"version": "0.7", "start": 3, "end": 5}]),
            ),
            usage(3, 5, 0),
        ],
    );
    let engine = connect(&peer).await;
    let mut generation = engine.generate(request("r")).await.unwrap();
    let Some(GenerationEvent::Tokens(first)) = generation.next().await else {
        panic!()
    };
    assert_eq!(first, delta(&[1, 2], -0.5, version(0)));
    engine.publish(version(7), Path::new("/weights")).await.unwrap();
    gate.notify_one();
    let (deltas, finish) = drain(generation).await;
    assert_eq!(
        deltas,
        [delta(&[3], -0.5, version(0)), delta(&[4, 5], -0.5, version(7))]
    );
    assert_eq!((finish.reason, engine.version()), (FinishReason::Length, version(7)));
    assert_eq!(
        peer.paths_of_control(),
        [
            "/pause?mode=keep&clear_cache=false",
            "/collective_rpc",
            "/update_weight_version",
            "/reset_prefix_cache?reset_running_requests=true",
            "/weight_info",
            "/resume"
        ]
    );
    assert_eq!(
        peer.sent("/collective_rpc"),
        [json!({"method": "reload_weights", "kwargs": {"weights_path": "/weights"}})]
    );
}

#[tokio::test]
async fn a_failed_publication_resumes_and_keeps_the_version() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    peer.fail("/collective_rpc");
    let error = engine
        .publish(version(7), Path::new("/weights"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("/weights") && error.contains("it failed"), "{error}");
    assert_eq!(engine.version(), version(0));
    assert_eq!(peer.paths_of_control().last().unwrap(), "/resume");
    // Whoever paused resumes.
    engine.pause(PauseMode::Abort).await.unwrap();
    engine.publish(version(8), Path::new("/weights")).await.unwrap_err();
    assert_ne!(peer.paths_of_control().last().unwrap(), "/resume");
}

#[tokio::test]
async fn weights_beside_an_older_cache_are_not_published() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    peer.keep_cache();
    let error = engine.publish(version(7), Path::new("/weights")).await.unwrap_err();
    assert!(error.to_string().contains("keeps what older weights have cached"), "{error}");
    assert_eq!(engine.version(), version(0));
    assert_eq!(peer.paths_of_control().last().unwrap(), "/resume");
}

#[tokio::test]
async fn aborting_uses_the_servers_own_id_and_a_dropped_reader_aborts() {
    let peer = Peer::start().await;
    let _gate = peer.script_with_gate(&[chunk(&[1], -0.5)], &[]);
    let engine = connect(&peer).await;
    engine.abort("r1").await;
    let mut generation = engine.generate(request("r2")).await.unwrap();
    generation.next().await.unwrap();
    drop(generation);
    let expected = [
        json!({"request_ids": ["generate-tokens-r1"]}),
        json!({"request_ids": ["generate-tokens-r2"]}),
    ];
    for _ in 0..200 {
        if peer.sent("/abort_requests").len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(peer.sent("/abort_requests"), expected);
}

#[tokio::test]
async fn refusals_say_what_to_do() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    peer.forbid();
    let error = engine.generate(request("r")).await.unwrap_err();
    assert!(
        matches!(&error, EngineError::Invalid(reason) if reason.contains("--enable-scale-out")),
        "{error}"
    );
    let long = GenerateRequest {
        prompt: vec![1; 2048].into(),
        ..request("r")
    };
    let error = engine.generate(long).await.unwrap_err();
    assert!(
        matches!(
            error,
            EngineError::Window {
                prompt: 2048,
                window: 2048
            }
        ),
        "{error}"
    );
    let nowhere = RemoteOptions {
        endpoint: "http://127.0.0.1:1".to_owned(),
        api_key: None,
        ca_file: None,
        experts: None,
        model: None,
        version: version(0),
        patience: Duration::from_secs(1),
    };
    assert!(matches!(
        VllmEngine::connect(nowhere).await,
        Err(EngineError::Unavailable { .. })
    ));
}

#[tokio::test]
async fn a_server_that_forgot_what_was_published_says_so() {
    let peer = Peer::start().await;
    let engine = connect(&peer).await;
    assert_eq!(engine.served().await.unwrap(), version(0));
    engine.publish(version(3), Path::new("/weights")).await.unwrap();
    assert_eq!(engine.served().await.unwrap(), version(3));
    // Started anew it calls its weights as at first: those are not what was published.
    peer.call_weights("default");
    let error = engine.served().await.unwrap_err().to_string();
    assert!(error.contains("`default` were not published from here"), "{error}");
    peer.fail("/health");
    assert!(matches!(engine.served().await, Err(EngineError::Unavailable { .. })));
}

#[tokio::test]
async fn a_server_that_could_not_go_on_is_paused_and_resumed_again() {
    for failing in ["/resume", "/pause?mode=keep&clear_cache=false"] {
        let peer = Peer::start().await;
        let engine = connect(&peer).await;
        peer.fail(failing);
        engine.publish(version(1), Path::new("/weights")).await.unwrap_err();
        assert_eq!(peer.paths_of_control().last().unwrap(), "/resume", "{failing}");
        peer.fail("nothing");
        engine.publish(version(1), Path::new("/weights")).await.unwrap();
        let pauses = peer
            .paths_of_control()
            .iter()
            .filter(|path| path.starts_with("/pause"))
            .count();
        assert_eq!((pauses, peer.sent("/resume").len()), (2, 2), "{failing}");
    }
}

#[tokio::test]
async fn a_label_that_an_earlier_run_left_is_not_mistaken_for_ours() {
    let peer = Peer::start().await;
    peer.call_weights("0.3");
    let engine = connect(&peer).await;
    engine.publish(version(3), Path::new("/weights")).await.unwrap();
    peer.script(&[
        chunk(&[1], -0.5),
        last_chunk("stop", &json!([{"version": "0.3", "start": 0, "end": 1}])),
        usage(3, 1, 0),
    ]);
    let (deltas, finish) = drain(engine.generate(request("r")).await.unwrap()).await;
    assert_eq!((deltas, finish.error), (vec![delta(&[1], -0.5, version(3))], None));
}

#[tokio::test]
async fn log_probs_before_temperature_are_recognised() {
    for (logprob, after) in [(0.0, true), (-0.693, true), (-1.2, false)] {
        let peer = Peer::start().await;
        peer.script(&[
            chunk(&[1], logprob),
            last_chunk("length", &json!([{"version": "default", "start": 0, "end": 1}])),
            usage(1, 1, 0),
        ]);
        let engine = connect(&peer).await;
        assert_eq!(
            check_logprobs(&engine, &[Arc::from([504])]).await.unwrap(),
            after,
            "{logprob}"
        );
        let sent = &peer.sent("/inference/v1/generate")[0]["sampling_params"];
        assert_eq!((&sent["top_k"], &sent["max_tokens"]), (&json!(1), &json!(1)));
    }
    let peer = Peer::start().await;
    peer.forbid();
    let error = check_logprobs(&connect(&peer).await, &[Arc::from([504])])
        .await
        .unwrap_err();
    assert!(error.to_string().contains("--enable-scale-out"), "{error}");
}

#[tokio::test]
async fn a_server_of_another_model_is_refused() {
    let peer = Peer::start().await;
    let options = RemoteOptions {
        endpoint: peer.base.clone(),
        api_key: None,
        ca_file: None,
        experts: None,
        model: Some("qwen".to_owned()),
        version: version(0),
        patience: Duration::from_secs(1),
    };
    let Err(error) = VllmEngine::connect(options).await else {
        panic!("accepted")
    };
    let error = error.to_string();
    assert!(
        error.contains("serves `smol`, not `qwen`") && error.contains("--served-model-name qwen"),
        "{error}"
    );
}

#[test]
fn the_load_is_read_off_the_metrics() {
    let load = load_of(&Metrics(peer::METRICS));
    assert_eq!((load.running, load.waiting, load.preemptions), (2, 1, 4));
    assert_eq!((load.kv_capacity, load.kv_used), (1600, 800));
    assert_eq!(
        (
            load.prompt_tokens,
            load.cached_tokens,
            load.sampled_tokens,
            load.computed_tokens
        ),
        (100, 60, 50, 90)
    );
    assert_eq!(load_of(&Metrics("")), EngineLoad::default());
}
