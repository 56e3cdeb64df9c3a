//! A local server with the routes and shapes of vLLM 0.32 that serves a real policy: the embedded engine samples.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use lego::inference::{
    EmbeddedEngine, EmbeddedOptions, Engine, GenerateRequest, GenerationEvent, PauseMode, RequestOrigin, Sampling,
};
use lego::trajectory::{FinishReason, PolicyVersion, SessionKey};
use serde_json::{Value, json};

/// How a server differs from one that does all that it is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Started without `--enable-scale-out`.
    Forbids,
    /// Started without `--logprobs-mode processed_logprobs`.
    Raw,
    /// Lost in the middle of this generation.
    DiesAt(u64),
}

/// A server; it ends with the test.
pub(crate) struct Peer {
    pub(crate) url: String,
    server: Arc<Server>,
    _runtime: tokio::runtime::Runtime,
}

struct Server {
    engine: EmbeddedEngine,
    fault: Fault,
    generations: AtomicU64,
    /// What each publication is called, by its number.
    labels: Mutex<Vec<String>>,
    /// Folders that were loaded.
    loaded: Mutex<Vec<PathBuf>>,
}

fn number(update: usize) -> PolicyVersion {
    PolicyVersion {
        lineage: 0,
        update: update as u64,
    }
}

impl Peer {
    pub(crate) fn start(policy: &Path, fault: Fault) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let weights = lego_policy::Weights::load(policy).unwrap();
        let (url, server) = runtime.block_on(async {
            let server = Arc::new(Server {
                engine: EmbeddedEngine::start(&weights, number(0), &EmbeddedOptions::default()).unwrap(),
                fault,
                generations: AtomicU64::new(0),
                labels: Mutex::new(vec!["default".to_owned()]),
                loaded: Mutex::default(),
            });
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let router = Router::new().fallback(answer).with_state(Arc::clone(&server));
            tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
            (url, server)
        });
        Self {
            url,
            server,
            _runtime: runtime,
        }
    }

    pub(crate) fn generations(&self) -> u64 {
        self.server.generations.load(Ordering::SeqCst)
    }

    /// Folders that were loaded, and what the weights are called now.
    pub(crate) fn loaded(&self) -> (Vec<PathBuf>, String) {
        let label = self.server.labels.lock().unwrap().last().unwrap().clone();
        (self.server.loaded.lock().unwrap().clone(), label)
    }
}

impl Server {
    fn is_dead(&self) -> bool {
        matches!(self.fault, Fault::DiesAt(at) if self.generations.load(Ordering::SeqCst) >= at)
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    if server.is_dead() {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let done = || Json(json!({"success": true})).into_response();
    match path.as_str() {
        "/v1/models" => Json(json!({"data": [{"id": "quickstart", "max_model_len": 256}]})).into_response(),
        "/health" => StatusCode::OK.into_response(),
        "/weight_info" => {
            let label = server.labels.lock().unwrap().last().unwrap().clone();
            Json(json!({ "weight_version": label })).into_response()
        }
        "/pause" => {
            server.engine.pause(PauseMode::Keep).await.unwrap();
            done()
        }
        "/resume" => {
            server.engine.resume().await.unwrap();
            done()
        }
        "/collective_rpc" => {
            assert_eq!(body["method"], "reload_weights");
            let folder = PathBuf::from(body["kwargs"]["weights_path"].as_str().unwrap());
            let next = server.labels.lock().unwrap().len();
            if let Err(error) = server.engine.publish(number(next), &folder).await {
                return (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response();
            }
            server.labels.lock().unwrap().push("unnamed".to_owned());
            server.loaded.lock().unwrap().push(folder);
            Json(json!({"results": [null]})).into_response()
        }
        "/update_weight_version" => {
            let label = body["new_version"].as_str().unwrap().to_owned();
            *server.labels.lock().unwrap().last_mut().unwrap() = label;
            done()
        }
        "/reset_prefix_cache" => done(),
        "/abort_requests" => {
            let id = body["request_ids"][0].as_str().unwrap();
            server.engine.abort(id.strip_prefix("generate-tokens-").unwrap()).await;
            done()
        }
        "/inference/v1/generate" if server.fault == Fault::Forbids => {
            let message =
                "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.";
            (
                StatusCode::FORBIDDEN,
                Json(json!({"error": {"message": message, "code": 403}})),
            )
                .into_response()
        }
        "/inference/v1/generate" => generate(server, &body).await,
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn generate(server: Arc<Server>, body: &Value) -> Response {
    let knobs = &body["sampling_params"];
    let prompt: Vec<u32> = serde_json::from_value(body["token_ids"].clone()).unwrap();
    let prompt_tokens = prompt.len();
    let request = GenerateRequest {
        id: body["request_id"].as_str().unwrap().to_owned(),
        session: SessionKey::from("any"),
        prompt: prompt.into(),
        sampling: Sampling {
            temperature: knobs["temperature"].as_f64().unwrap() as f32,
            top_p: knobs["top_p"].as_f64().unwrap() as f32,
            top_k: knobs["top_k"].as_i64().unwrap() as i32,
            max_tokens: knobs["max_tokens"].as_u64().unwrap() as u32,
            stop_token_ids: serde_json::from_value(knobs["stop_token_ids"].clone()).unwrap(),
            seed: knobs["seed"].as_u64().unwrap(),
        },
        origin: RequestOrigin::default(),
    };
    let generation = match server.engine.generate(request).await {
        Ok(generation) => generation,
        Err(error) => return (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    };
    server.generations.fetch_add(1, Ordering::SeqCst);
    let spans: Vec<(PolicyVersion, usize)> = Vec::new();
    let stream = futures_util::stream::unfold(
        (generation, server, spans),
        move |(mut generation, server, mut spans)| async move {
            let event = generation.events.recv().await?;
            if server.is_dead() {
                return Some((Err(std::io::Error::other("killed")), (generation, server, spans)));
            }
            let text = match event {
                GenerationEvent::Tokens(delta) => {
                    match spans.last_mut() {
                        Some((version, count)) if *version == delta.version => *count += delta.ids.len(),
                        _ => spans.push((delta.version, delta.ids.len())),
                    }
                    // A raw server does not know of temperature.
                    let raw = |logprob: f32| {
                        if server.fault == Fault::Raw {
                            logprob - 2.0
                        } else {
                            logprob
                        }
                    };
                    let content: Vec<Value> = delta
                        .ids
                        .iter()
                        .zip(delta.logprobs.unwrap())
                        .map(|(id, logprob)| json!({"token_id": id, "logprob": raw(logprob)}))
                        .collect();
                    let chunk = json!({"choices": [{"token_ids": delta.ids, "logprobs": {"content": content},
                    "finish_reason": null}]});
                    format!("data: {chunk}\n\n")
                }
                GenerationEvent::Finished(finish) => {
                    let reason = match finish.reason {
                        FinishReason::Stop => "stop",
                        FinishReason::Length => "length",
                        FinishReason::Abort | FinishReason::Error => "abort",
                    };
                    let labels = server.labels.lock().unwrap().clone();
                    let (mut at, mut versions) = (0, Vec::new());
                    for (version, count) in &spans {
                        let label = &labels[version.update as usize];
                        versions.push(json!({"version": label, "start": at, "end": at + count}));
                        at += count;
                    }
                    let last = json!({"choices": [{"token_ids": [], "logprobs": null, "finish_reason": reason,
                    "weight_versions": versions}]});
                    let usage = json!({"choices": [], "usage": {"prompt_tokens": prompt_tokens, "completion_tokens": at,
                    "prompt_tokens_details": {"cached_tokens": finish.usage.cached}}});
                    format!("data: {last}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
                }
            };
            Some((Ok(Bytes::from(text)), (generation, server, spans)))
        },
    );
    Body::from_stream(stream).into_response()
}
