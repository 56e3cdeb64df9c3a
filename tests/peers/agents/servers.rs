//! Servers with the token routes of vLLM whose policy says what is scripted, and what may befall them.
//!
//! They are asked in tokens alone: which answer is due, and how much of it was sampled before, is read off the prompt.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};

/// What happens to one generation, counted from 0 over all servers.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Trouble {
    None,
    /// Whichever server works on it is lost in the middle of the answer.
    Lost(u64),
    /// Its first token takes this long.
    Slow(u64, Duration),
}

/// Replicas of one policy; they end with the test.
pub(super) struct Servers {
    pub(super) urls: Vec<String>,
    played: Arc<Played>,
    _runtime: tokio::runtime::Runtime,
}

/// What all of them share.
struct Played {
    /// Answers to the turns of any conversation, end-of-turn token included.
    answers: Vec<Vec<u32>>,
    /// Tokens that open an answer.
    opening: Vec<u32>,
    trouble: Trouble,
    generations: AtomicU64,
}

struct Server {
    played: Arc<Played>,
    lost: AtomicBool,
}

impl Servers {
    pub(super) fn start(count: usize, answers: Vec<Vec<u32>>, opening: Vec<u32>, trouble: Trouble) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let played = Arc::new(Played {
            answers,
            opening,
            trouble,
            generations: AtomicU64::new(0),
        });
        let start = || {
            let server = Arc::new(Server {
                played: Arc::clone(&played),
                lost: AtomicBool::new(false),
            });
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                let url = format!("http://{}", listener.local_addr().unwrap());
                let router = Router::new().fallback(answer).with_state(server);
                tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
                url
            })
        };
        let urls = (0..count).map(|_| start()).collect();
        Self {
            urls,
            played,
            _runtime: runtime,
        }
    }

    pub(super) fn generations(&self) -> u64 {
        self.played.generations.load(Ordering::SeqCst)
    }
}

async fn answer(State(server): State<Arc<Server>>, request: Request) -> Response {
    if server.lost.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    let path = request.uri().path().to_owned();
    let body = axum::body::to_bytes(request.into_body(), 16 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    match path.as_str() {
        "/v1/models" => Json(json!({"data": [{"id": "policy", "max_model_len": 131_072}]})).into_response(),
        "/health" => StatusCode::OK.into_response(),
        "/weight_info" => Json(json!({"weight_version": "default"})).into_response(),
        "/abort_requests" => Json(json!({"success": true})).into_response(),
        "/inference/v1/generate" => generate(server, &body),
        _ => StatusCode::NOT_FOUND.into_response(),
    }
}

/// What is left to say behind this prompt; `None` where no answer is opened.
fn due(played: &Played, prompt: &[u32]) -> Option<Vec<u32>> {
    let width = played.opening.len();
    let openings: Vec<usize> = (0..prompt.len().saturating_sub(width - 1))
        .filter(|at| prompt[*at..].starts_with(&played.opening))
        .collect();
    let last = openings.last()? + width;
    let answer = &played.answers[openings.len() - 1];
    let said = &prompt[last..];
    assert!(answer.starts_with(said), "the prompt goes on with what was sampled");
    Some(answer[said.len()..].to_vec())
}

/// The log-prob of a scripted token: any value that tells tokens apart.
pub(super) fn logprob(id: u32) -> f32 {
    -(id as f32 % 16.0) / 8.0
}

fn generate(server: Arc<Server>, body: &Value) -> Response {
    let prompt: Vec<u32> = serde_json::from_value(body["token_ids"].clone()).unwrap();
    let played = &server.played;
    let Some(ids) = due(played, &prompt) else {
        // Asked before the run for any token at all.
        return events(server, prompt.len(), vec![0], "length", Duration::ZERO, usize::MAX);
    };
    let number = played.generations.fetch_add(1, Ordering::SeqCst);
    let (wait, lost_after) = match played.trouble {
        Trouble::Slow(at, wait) if at == number => (wait, usize::MAX),
        Trouble::Lost(at) if at == number => (Duration::ZERO, ids.len() / 2),
        _ => (Duration::ZERO, usize::MAX),
    };
    events(server, prompt.len(), ids, "stop", wait, lost_after)
}

/// An answer as server-sent events, token for token.
fn events(
    server: Arc<Server>,
    prompt: usize,
    ids: Vec<u32>,
    finish: &str,
    wait: Duration,
    lost_after: usize,
) -> Response {
    let completion = ids.len();
    let events = ids.into_iter().map(|id| {
        let content = json!([{"token_id": id, "logprob": logprob(id)}]);
        json!({"choices": [{"token_ids": [id], "logprobs": {"content": content}, "finish_reason": null}]})
    });
    let end = [
        json!({"choices": [{"token_ids": [], "logprobs": null, "finish_reason": finish,
            "weight_versions": [{"version": "default", "start": 0, "end": completion}]}]}),
        json!({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": 0}}}),
    ];
    let lines = events.chain(end).map(|event| format!("data: {event}\n\n"));
    let lines: Vec<String> = lines.chain(["data: [DONE]\n\n".to_owned()]).collect();
    let stream = futures_util::stream::unfold(
        (server, lines.into_iter().enumerate()),
        move |(server, mut lines)| async move {
            let (at, line) = lines.next()?;
            if at == 0 {
                tokio::time::sleep(wait).await;
            }
            if at == lost_after {
                server.lost.store(true, Ordering::SeqCst);
                return Some((Err(std::io::Error::other("killed")), (server, lines)));
            }
            // Token for token: what is lost is lost between two of them.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((Ok(Bytes::from(line)), (server, lines)))
        },
    );
    Body::from_stream(stream).into_response()
}
