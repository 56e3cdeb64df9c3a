//! A local server with the shapes of vLLM 0.32 that can be lost in mid-stream. All servers of a script give the same
//! answer and go on from wherever the prompt leaves it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};

use crate::trajectory::TokenId;

/// What the servers have in common.
pub(super) struct Script {
    answer: Vec<TokenId>,
    /// Length of the first prompt: what later ones hold behind it is of the answer.
    prompt: Mutex<Option<usize>>,
    /// Number of the server and `max_tokens` of each generation, and how much of the answer its prompt held.
    pub(super) asked: Mutex<Vec<(usize, u64, usize)>>,
    pub(super) seeds: Mutex<Vec<u64>>,
}

impl Script {
    pub(super) fn new(answer: Vec<TokenId>) -> Arc<Self> {
        Arc::new(Self {
            answer,
            prompt: Mutex::default(),
            asked: Mutex::default(),
            seeds: Mutex::default(),
        })
    }
}

struct Server {
    number: usize,
    script: Arc<Script>,
    fault: Fault,
    lost: AtomicBool,
}

/// What is wrong with a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// It is lost once so much of the answer has been sampled.
    LostAt(usize),
    /// It counts a token too many.
    Miscounts,
}

/// The log-prob that only this token of this server has.
pub(super) fn logprob(server: usize, at: usize) -> f32 {
    -1.0 - server as f32 - at as f32 / 1024.0
}

/// Starts a server and tells its address.
pub(super) async fn start(script: &Arc<Script>, number: usize, fault: Fault) -> String {
    let server = Arc::new(Server {
        number,
        script: Arc::clone(script),
        fault,
        lost: AtomicBool::new(false),
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let router = Router::new().fallback(answer).with_state(server);
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    base
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    if server.lost.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match path.as_str() {
        "/v1/models" => Json(json!({"data": [{"id": "smol", "max_model_len": 2048}]})).into_response(),
        "/weight_info" => Json(json!({"weight_version": "default"})).into_response(),
        "/health" | "/abort_requests" => StatusCode::OK.into_response(),
        "/inference/v1/generate" => generate(server, &body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

fn generate(server: Arc<Server>, body: &Value) -> Response {
    let prompt: Vec<TokenId> = serde_json::from_value(body["token_ids"].clone()).unwrap();
    let most = body["sampling_params"]["max_tokens"].as_u64().unwrap();
    let (script, number) = (Arc::clone(&server.script), server.number);
    let first = *script.prompt.lock().unwrap().get_or_insert(prompt.len());
    let done = prompt.len() - first;
    let seed = body["sampling_params"]["seed"].as_u64().unwrap();
    script.seeds.lock().unwrap().push(seed);
    script.asked.lock().unwrap().push((number, most, done));
    assert_eq!(
        prompt[first..],
        script.answer[..done],
        "the prompt holds what was sampled"
    );
    let to = script.answer.len().min(done + most as usize);
    let counted = to - done + usize::from(server.fault == Fault::Miscounts);
    let mut end = vec![
        json!({"choices": [{"token_ids": [], "logprobs": null, "finish_reason": "stop",
        "weight_versions": [{"version": "default", "start": 0, "end": to - done}]}]}),
    ];
    if body["stream_options"]["include_usage"] == true {
        end.push(json!({"choices": [], "usage": {"prompt_tokens": prompt.len(), "completion_tokens": counted}}));
    }
    let token = move |at: usize| {
        let id = script.answer[at];
        json!({"choices": [{"token_ids": [id], "finish_reason": null,
            "logprobs": {"content": [{"token_id": id, "logprob": logprob(number, at)}]}}]})
    };
    let events = (done..to).map(token).chain(end).enumerate();
    let stream = futures_util::stream::unfold((events, server), move |(mut events, server)| async move {
        let (index, event) = events.next()?;
        if server.fault == Fault::LostAt(done + index) && done + index <= to {
            // What was written before is on its way.
            tokio::time::sleep(Duration::from_millis(20)).await;
            server.lost.store(true, Ordering::SeqCst);
            return Some((Err(std::io::Error::other("killed")), (events, server)));
        }
        Some((Ok(Bytes::from(format!("data: {event}\n\n"))), (events, server)))
    });
    Body::from_stream(stream).into_response()
}
