//! The client against a local peer that answers with the shapes of `SGLang` 0.5.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use tokio::sync::Notify;

use super::*;
use crate::inference::testing::{LocalServer, drain};
use crate::inference::{EngineUsage, RequestOrigin, Sampling, TokenDelta};
use crate::trajectory::{FinishReason, SessionKey, TokenId};

/// A server; what it samples is scripted.
struct Peer {
    base: String,
    script: Arc<Script>,
    _server: LocalServer,
}

#[derive(Default)]
struct Script {
    calls: Mutex<Vec<(String, Value)>>,
    events: Mutex<Vec<Value>>,
    /// Events that come before it waits for the gate.
    before: Mutex<Option<usize>>,
    gate: Notify,
    weights: Mutex<Option<String>>,
    refuses: Mutex<bool>,
}

impl Peer {
    async fn start() -> (Self, SglangEngine) {
        let script = Arc::new(Script::default());
        let router = Router::new().fallback(answer).with_state(Arc::clone(&script));
        let server = LocalServer::start(router).await;
        let peer = Self {
            base: server.url.clone(),
            script,
            _server: server,
        };
        let engine = SglangEngine::connect(peer.options(None)).await.unwrap();
        (peer, engine)
    }

    fn options(&self, model: Option<&str>) -> RemoteOptions {
        RemoteOptions {
            endpoint: self.base.clone(),
            api_key: Some("secret".to_owned()),
            ca_file: None,
            experts: None,
            model: model.map(str::to_owned),
            version: version(0),
            patience: Duration::from_secs(20),
        }
    }

    fn sent(&self, path: &str) -> Vec<Value> {
        let calls = self.script.calls.lock().unwrap();
        let calls = calls.iter().filter(|(called, _)| called == path);
        calls.map(|(_, body)| body.clone()).collect()
    }

    fn paths_from(&self, first: &str) -> Vec<String> {
        let calls = self.script.calls.lock().unwrap();
        let paths: Vec<String> = calls.iter().map(|(path, _)| path.clone()).collect();
        let from = paths.iter().position(|path| path == first).unwrap();
        paths[from..]
            .iter()
            .filter(|path| *path != "/metrics")
            .cloned()
            .collect()
    }
}

async fn answer(State(script): State<Arc<Script>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    assert!(request.headers()["authorization"] == "Bearer secret");
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    script.calls.lock().unwrap().push((path.clone(), body.clone()));
    match path.as_str() {
        "/get_server_info" => {
            let label = script.weights.lock().unwrap().clone();
            Json(
                json!({"model_path": "/models/smol", "served_model_name": "smol", "context_length": null,
                "max_total_num_tokens": 4096, "weight_version": label.as_deref().unwrap_or("default")}),
            )
            .into_response()
        }
        "/update_weights_from_disk" => {
            if *script.refuses.lock().unwrap() {
                let answer = json!({"success": false, "message": "no such folder", "num_paused_requests": 0});
                return (StatusCode::BAD_REQUEST, Json(answer)).into_response();
            }
            *script.weights.lock().unwrap() = body["weight_version"].as_str().map(str::to_owned);
            Json(json!({"success": true, "message": "Succeeded", "num_paused_requests": 0})).into_response()
        }
        "/pause_generation" | "/continue_generation" => Json(json!({"status": "ok"})).into_response(),
        "/abort_request" | "/health_generate" => StatusCode::OK.into_response(),
        "/generate" => {
            let events = std::mem::take(&mut *script.events.lock().unwrap());
            let before = script.before.lock().unwrap().take();
            let stream = futures_util::stream::unfold(
                (events.into_iter().enumerate(), script),
                move |(mut events, script)| async move {
                    let (index, event) = events.next()?;
                    if before == Some(index) {
                        script.gate.notified().await;
                    }
                    let mut text = String::new();
                    write!(text, "data: {event}\n\n").unwrap();
                    if events.len() == 0 {
                        text += "data: [DONE]\n\n";
                    }
                    Some((Ok::<_, std::convert::Infallible>(text), (events, script)))
                },
            );
            axum::body::Body::from_stream(stream).into_response()
        }
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn version(update: u64) -> PolicyVersion {
    PolicyVersion { lineage: 0, update }
}

/// An event that carries these ids, of `total` so far; log-probs are of the ids listed.
fn event(ids: &[TokenId], logprobs: &[TokenId], total: usize, finish: &Value) -> Value {
    let logprobs: Vec<Value> = logprobs.iter().map(|id| json!([-f64::from(*id), id, null])).collect();
    json!({"text": "x", "output_ids": ids, "meta_info": {"id": "r", "finish_reason": finish, "prompt_tokens": 3,
        "completion_tokens": total, "cached_tokens": 2, "weight_version": "default",
        "output_token_logprobs": logprobs}})
}

fn stop() -> Value {
    json!({"type": "stop", "matched": 2})
}

fn request() -> GenerateRequest {
    GenerateRequest {
        id: "r".to_owned(),
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

fn ids(deltas: &[TokenDelta]) -> Vec<TokenId> {
    deltas.iter().flat_map(|delta| delta.ids.clone()).collect()
}

#[tokio::test]
async fn streams_of_everything_so_far_and_of_what_is_new_read_the_same() {
    let none = Value::Null;
    let scripts = [
        // Ids and log-probs so far.
        vec![
            event(&[5], &[5], 1, &none),
            event(&[5, 6, 7], &[5, 6, 7], 3, &none),
            event(&[5, 6, 7, 2], &[5, 6, 7, 2], 4, &stop()),
        ],
        // New ones.
        vec![
            event(&[5], &[5], 1, &none),
            event(&[6, 7], &[6, 7], 3, &none),
            event(&[2], &[2], 4, &stop()),
        ],
        // New ids, log-probs so far; and an end without tokens.
        vec![
            event(&[5, 6], &[5, 6], 2, &none),
            event(&[7, 2], &[5, 6, 7, 2], 4, &none),
            event(&[], &[5, 6, 7, 2], 4, &stop()),
        ],
    ];
    for script in scripts {
        let (peer, engine) = Peer::start().await;
        assert_eq!(engine.window(), 4096);
        *peer.script.events.lock().unwrap() = script;
        let (deltas, finish) = drain(engine.generate(request()).await.unwrap()).await;
        assert_eq!(ids(&deltas), [5, 6, 7, 2]);
        let logprobs: Vec<f32> = deltas
            .iter()
            .flat_map(|delta| delta.logprobs.clone().unwrap())
            .collect();
        assert_eq!(logprobs, [-5.0, -6.0, -7.0, -2.0]);
        assert_eq!((finish.reason, finish.error), (FinishReason::Stop, None));
        let usage = EngineUsage {
            prompt: 3,
            cached: 2,
            completion: 4,
        };
        assert_eq!(finish.usage, usage);
        let sent = peer.sent("/generate");
        assert_eq!(
            sent,
            [
                json!({"input_ids": [504, 3575, 282], "rid": "r", "sampling_params": {"max_new_tokens": 6,
                "temperature": 1.0, "top_p": 1.0, "top_k": -1, "stop_token_ids": [2], "sampling_seed": u64::MAX >> 33},
                "return_logprob": true, "stream": true})
            ]
        );
    }
}

#[tokio::test]
async fn what_contradicts_itself_is_never_given_out() {
    let none = Value::Null;
    let mut unknown = event(&[5], &[5], 1, &stop());
    unknown["meta_info"]["weight_version"] = json!("step-9");
    let mut nameless = event(&[5], &[5], 1, &stop());
    nameless["meta_info"]["output_token_logprobs"][0][0] = Value::Null;
    let failed = json!({"type": "abort", "message": "out of memory", "status_code": 500});
    for (script, why) in [
        (vec![event(&[5, 6], &[5], 2, &stop())], "1 log-probs, where 0 of 2"),
        (
            vec![event(&[5], &[5], 1, &none), event(&[6, 7], &[6], 2, &stop())],
            "token 7",
        ),
        (
            vec![event(&[5], &[5], 1, &none), event(&[6, 7, 8], &[6], 2, &stop())],
            "3 ids, where 1 of 2",
        ),
        (
            vec![event(&[5], &[6], 1, &stop())],
            "token 5 comes with the log-prob of 6",
        ),
        (vec![event(&[5], &[], 1, &stop())], "0 log-probs"),
        (vec![event(&[5], &[5], 1, &none)], "without a finish reason"),
        (vec![event(&[], &[], 0, &failed)], "status 500: out of memory"),
        (vec![json!({"error": {"message": "died"}})], "died"),
        (vec![unknown], "`step-9` were not published from here"),
        (vec![nameless], "without a log-prob"),
    ] {
        let (peer, engine) = Peer::start().await;
        *peer.script.events.lock().unwrap() = script;
        let (_, finish) = drain(engine.generate(request()).await.unwrap()).await;
        assert_eq!(finish.reason, FinishReason::Error, "{why}");
        let broke_off = ["without a finish reason", "status 500: out of memory", "died"].contains(&why);
        assert_eq!(finish.rejected, !broke_off, "{why}");
        let error = finish.error.unwrap();
        assert!(error.contains(why), "{why}: {error}");
    }
}

#[tokio::test]
async fn weights_come_from_a_folder_while_generations_stand_still() {
    let (peer, engine) = Peer::start().await;
    assert_eq!(engine.served().await.unwrap(), version(0));
    let mut last = event(&[6, 2], &[6, 2], 3, &stop());
    last["meta_info"]["weight_versions"] =
        json!([{"version": "default", "start": 0, "end": 2}, {"version": "0.7", "start": 2, "end": 3}]);
    *peer.script.events.lock().unwrap() = vec![event(&[5], &[5], 1, &Value::Null), last];
    *peer.script.before.lock().unwrap() = Some(1);
    let mut generation = engine.generate(request()).await.unwrap();
    generation.next().await.unwrap();
    engine.publish(version(7), Path::new("/weights")).await.unwrap();
    peer.script.gate.notify_one();
    let (deltas, finish) = drain(generation).await;
    assert_eq!(finish.error, None);
    let versions: Vec<_> = deltas.iter().map(|delta| (delta.ids.clone(), delta.version)).collect();
    assert_eq!(versions, [(vec![6], version(0)), (vec![2], version(7))]);
    assert_eq!(
        peer.paths_from("/pause_generation"),
        [
            "/pause_generation",
            "/update_weights_from_disk",
            "/get_server_info",
            "/continue_generation"
        ]
    );
    assert_eq!(peer.sent("/pause_generation"), [json!({"mode": "retract"})]);
    assert_eq!(
        peer.sent("/update_weights_from_disk"),
        [json!({"model_path": "/weights", "weight_version": "0.7", "flush_cache": true, "keep_pause": true})]
    );
    assert_eq!(
        (engine.version(), engine.served().await.unwrap()),
        (version(7), version(7))
    );

    *peer.script.refuses.lock().unwrap() = true;
    let error = engine
        .publish(version(8), Path::new("/gone"))
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("/gone") && error.contains("no such folder"), "{error}");
    assert_eq!(engine.version(), version(7));
    assert_eq!(
        peer.paths_from("/pause_generation").last().unwrap(),
        "/continue_generation"
    );
}

#[tokio::test]
async fn aborts_and_refusals_name_the_request_and_the_server() {
    let (peer, engine) = Peer::start().await;
    engine.abort("r").await;
    assert_eq!(peer.sent("/abort_request"), [json!({"rid": "r"})]);
    let long = GenerateRequest {
        prompt: vec![1; 4096].into(),
        ..request()
    };
    assert!(matches!(
        engine.generate(long).await,
        Err(EngineError::Window { window: 4096, .. })
    ));
    let Err(error) = SglangEngine::connect(peer.options(Some("qwen"))).await else {
        panic!("accepted")
    };
    assert!(error.to_string().contains("serves `smol`, not `qwen`"), "{error}");
}

#[test]
fn the_load_is_read_off_the_metrics() {
    let page = "sglang:num_running_reqs{model_name=\"smol\"} 2.0\nsglang:num_queue_reqs{} 1.0\nsglang:num_used_tokens{} 800.0\n\
                sglang:max_total_num_tokens{} 1600.0\nsglang:prompt_tokens_total{} 100.0\nsglang:cached_tokens_total{} 60.0\n\
                sglang:generation_tokens_total{} 50.0\n";
    let load = load_of(&Metrics(page));
    assert_eq!(
        (load.running, load.waiting, load.kv_used, load.kv_capacity),
        (2, 1, 800, 1600)
    );
    assert_eq!((load.computed_tokens, load.preemptions), (90, 0));
}

#[tokio::test]
async fn rows_of_experts_are_asked_for_and_checked() {
    let (peer, _) = Peer::start().await;
    let options = RemoteOptions {
        experts: Some(crate::trajectory::Experts {
            layers: 1,
            top_k: 1,
            count: 4,
        }),
        ..peer.options(None)
    };
    let engine = SglangEngine::connect(options).await.unwrap();
    // Little-endian int32: experts 3 and 1, for positions 2 and 3 of 3 + 2 tokens.
    for (rows, fits) in [("AwAAAAEAAAA=", true), ("AwAAAA==", false)] {
        let mut end = event(&[5, 2], &[5, 2], 2, &stop());
        end["meta_info"]["routed_experts"] = rows.into();
        *peer.script.events.lock().unwrap() = vec![end];
        let asking = GenerateRequest {
            routing_from: Some(2),
            ..request()
        };
        let (_, finish) = drain(engine.generate(asking).await.unwrap()).await;
        assert_eq!(finish.rejected, !fits, "{finish:?}");
        assert_eq!(finish.routing.map(|routing| routing.rows), fits.then(|| vec![3, 1]));
    }
    let sent = peer.sent("/generate");
    assert_eq!(
        (&sent[0]["return_routed_experts"], &sent[0]["routed_experts_start_len"]),
        (&json!(true), &json!(2))
    );
}
