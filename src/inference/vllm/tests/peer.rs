//! A local server with vLLM's routes and shapes; what it samples is scripted.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::inference::testing::LocalServer;
use crate::trajectory::TokenId;

pub(super) const METRICS: &str = "# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine=\"0\",model_name=\"smol\"} 2.0
vllm:num_requests_waiting{engine=\"0\",model_name=\"smol\"} 1.0
vllm:num_requests_waiting_by_reason{engine=\"0\",reason=\"capacity\"} 9.0
vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"smol\"} 0.5
vllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"100\"} 1.0
vllm:prompt_tokens_total{engine=\"0\",model_name=\"smol\"} 100.0
vllm:prefix_cache_hits_total{engine=\"0\",model_name=\"smol\"} 60.0
vllm:generation_tokens_total{engine=\"0\",model_name=\"smol\"} 50.0
vllm:num_preemptions_total{engine=\"0\",model_name=\"smol\"} 4.0
";

/// The server.
pub(super) struct Peer {
    pub(super) base: String,
    state: Arc<Mutex<Script>>,
    _server: LocalServer,
}

#[derive(Default)]
struct Script {
    /// Path with query, body.
    calls: Vec<(String, Value)>,
    keys: Vec<String>,
    before: VecDeque<Value>,
    gate: Option<Arc<Notify>>,
    after: VecDeque<Value>,
    weights: String,
    failing: Option<&'static str>,
    forbidden: bool,
    /// There is no token route.
    old: bool,
    /// Answers without success, and keeps what is cached, even with nothing running.
    keeps_cache: bool,
}

impl Peer {
    pub(super) async fn start() -> Self {
        let state = Arc::new(Mutex::new(Script {
            weights: "default".to_owned(),
            ..Script::default()
        }));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&state));
        let server = LocalServer::start(router).await;
        Self {
            base: server.url.clone(),
            state,
            _server: server,
        }
    }

    /// What the next generation answers.
    pub(super) fn script(&self, events: &[Value]) {
        self.state.lock().unwrap().before = events.iter().cloned().collect();
    }

    /// Answers `before`, waits to be notified, then answers `after`.
    pub(super) fn script_with_gate(&self, before: &[Value], after: &[Value]) -> Arc<Notify> {
        let gate = Arc::new(Notify::new());
        let mut state = self.state.lock().unwrap();
        state.before = before.iter().cloned().collect();
        state.after = after.iter().cloned().collect();
        state.gate = Some(Arc::clone(&gate));
        gate
    }

    pub(super) fn fail(&self, path: &'static str) {
        self.state.lock().unwrap().failing = Some(path);
    }

    pub(super) fn forbid(&self) {
        self.state.lock().unwrap().forbidden = true;
    }

    /// There is no token route from now on.
    pub(super) fn grow_old(&self) {
        self.state.lock().unwrap().old = true;
    }

    /// It does not empty its cache from now on.
    pub(super) fn keep_cache(&self) {
        self.state.lock().unwrap().keeps_cache = true;
    }

    /// What it calls its weights from now on.
    pub(super) fn call_weights(&self, label: &str) {
        label.clone_into(&mut self.state.lock().unwrap().weights);
    }

    /// Bodies sent to a path.
    pub(super) fn sent(&self, path: &str) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        let calls = state.calls.iter().filter(|(called, _)| called == path);
        calls.map(|(_, body)| body.clone()).collect()
    }

    /// The different values of the `Authorization` header.
    pub(super) fn keys(&self) -> Vec<String> {
        let mut keys = self.state.lock().unwrap().keys.clone();
        keys.dedup();
        keys
    }

    /// What was called since the first generation, or after connecting, but for metrics.
    pub(super) fn paths_of_control(&self) -> Vec<String> {
        let state = self.state.lock().unwrap();
        let paths: Vec<String> = state.calls.iter().map(|(path, _)| path.clone()).collect();
        let from = paths.iter().position(|path| path.starts_with("/pause")).unwrap_or(0);
        paths[from..]
            .iter()
            .filter(|path| *path != "/metrics")
            .cloned()
            .collect()
    }
}

async fn answer(State(state): State<Arc<Mutex<Script>>>, request: Request) -> Response {
    let path = request.uri().path_and_query().unwrap().to_string();
    let key = request
        .headers()
        .get(header::AUTHORIZATION)
        .map(|key| key.to_str().unwrap().to_owned());
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut script = state.lock().unwrap();
    script.calls.push((path.clone(), body.clone()));
    script.keys.extend(key);
    if script.failing == Some(path.as_str()) {
        let error = json!({"error": {"message": "it failed", "type": "InternalServerError", "code": 500}});
        return (StatusCode::INTERNAL_SERVER_ERROR, Json(error)).into_response();
    }
    match path.split('?').next().unwrap() {
        "/v1/models" => {
            Json(json!({"object": "list", "data": [{"id": "smol", "max_model_len": 2048}]})).into_response()
        }
        "/weight_info" => Json(json!({ "weight_version": script.weights })).into_response(),
        "/metrics" => METRICS.into_response(),
        "/pause" => Json(json!({"status": "paused"})).into_response(),
        "/resume" => Json(json!({"status": "resumed"})).into_response(),
        "/collective_rpc" => Json(json!({"results": [null]})).into_response(),
        "/update_weight_version" => {
            script.weights = body["new_version"].as_str().unwrap().to_owned();
            Json(json!({"success": true, "new_version": script.weights})).into_response()
        }
        // 200 whatever becomes of it; what runs keeps it from being emptied.
        "/reset_prefix_cache" => {
            let empties = path.ends_with("?reset_running_requests=true") && !script.keeps_cache;
            Json(json!({"success": empties})).into_response()
        }
        "/abort_requests" => Json(json!({"status": "aborted", "aborted": 1})).into_response(),
        "/health" => StatusCode::OK.into_response(),
        "/inference/v1/generate" if script.old => {
            (StatusCode::NOT_FOUND, Json(json!({"detail": "Not Found"}))).into_response()
        }
        "/inference/v1/generate" if script.forbidden => {
            let message =
                "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.";
            let error =
                json!({"error": {"message": message, "type": "PermissionDeniedError", "param": null, "code": 403}});
            (StatusCode::FORBIDDEN, Json(error)).into_response()
        }
        "/inference/v1/generate" | "/v1/completions" => stream(&mut script, &body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Server-sent events, cut in odd places. There is usage for who asks for it.
fn stream(script: &mut Script, body: &Value) -> Response {
    let with_usage = body["stream_options"]["include_usage"] == true;
    let text = |events: VecDeque<Value>| {
        let mut text = String::new();
        for event in events.iter().filter(|event| with_usage || event["usage"].is_null()) {
            let _ = write!(text, "data: {event}\n\n");
        }
        text
    };
    let (before, after) = (
        text(std::mem::take(&mut script.before)),
        text(std::mem::take(&mut script.after)),
    );
    let gate = script.gate.take();
    let pieces = [(None, before), (gate, after + "data: [DONE]\n\n")];
    let chunks = futures_util::stream::unfold((pieces.into_iter(), String::new()), |(mut pieces, rest)| async move {
        let mut text = rest;
        if text.is_empty() {
            let (gate, next) = pieces.next()?;
            if let Some(gate) = gate {
                gate.notified().await;
            }
            text = next;
        }
        let rest = text.split_off(text.len().min(37));
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), (pieces, rest)))
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::from_stream(chunks)).into_response()
}

/// A delta of tokens.
pub(super) fn chunk(ids: &[TokenId], logprob: f32) -> Value {
    let content: Vec<Value> = ids
        .iter()
        .map(|id| json!({"token": format!("token_id:{id}"), "token_id": id, "logprob": logprob}))
        .collect();
    json!({"request_id": "r", "choices": [{"index": 0, "token_ids": ids, "logprobs": {"content": content},
        "finish_reason": null}]})
}

/// The last one with a choice.
pub(super) fn last_chunk(finish: &str, versions: &Value) -> Value {
    json!({"request_id": "r", "choices": [{"index": 0, "token_ids": [], "logprobs": null, "finish_reason": finish,
        "stop_reason": null, "routed_experts": null, "weight_versions": versions}]})
}

/// A delta of tokens of the completions route; the first one says which prompt was seen.
pub(super) fn completion(prompt: Option<&[TokenId]>, ids: &[TokenId], logprob: f32, finish: Option<&str>) -> Value {
    let logprobs = json!({"text_offset": vec![0; ids.len()], "token_logprobs": vec![logprob; ids.len()],
        "tokens": vec!["x"; ids.len()], "top_logprobs": vec![Value::Null; ids.len()]});
    json!({"id": "cmpl-r", "object": "text_completion", "model": "smol", "choices": [{"index": 0, "text": "x",
        "logprobs": logprobs, "finish_reason": finish, "stop_reason": null, "prompt_token_ids": prompt,
        "token_ids": ids}]})
}

/// The one with the token counts.
pub(super) fn usage(prompt: u32, completion: u32, cached: u32) -> Value {
    json!({"request_id": "r", "choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion, "prompt_tokens_details": {"cached_tokens": cached}}})
}
