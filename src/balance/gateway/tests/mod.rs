//! A gateway before servers of this process that can be broken.

mod answers;
mod pool;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::*;
use crate::inference::testing::{LocalServer, fixture};

/// What a server does to its next request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// This status.
    Status(u16),
    /// It ends the connection in the middle of an answer that is no stream.
    HalfAnswer,
    /// It ends the connection after so many events.
    Events(usize),
    /// It never answers.
    Silent,
}

#[derive(Default)]
struct Server {
    name: &'static str,
    asked: Mutex<Vec<(HeaderMap, Bytes)>>,
    faults: Mutex<Vec<Fault>>,
    running: AtomicUsize,
    most: AtomicUsize,
    metrics: Mutex<String>,
    unwell: AtomicBool,
    pause_ms: AtomicU64,
}

impl Server {
    fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn break_with(&self, faults: &[Fault]) {
        *self.faults.lock().unwrap() = faults.to_vec();
    }
}

async fn chat(State(server): State<Arc<Server>>, headers: HeaderMap, body: Bytes) -> Response<Body> {
    let asked: Value = serde_json::from_slice(&body).unwrap_or_default();
    server.asked.lock().unwrap().push((headers, body));
    let fault = server.faults.lock().unwrap().pop().unwrap_or(Fault::None);
    let running = server.running.fetch_add(1, Ordering::SeqCst) + 1;
    server.most.fetch_max(running, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(server.pause_ms.load(Ordering::SeqCst))).await;
    server.running.fetch_sub(1, Ordering::SeqCst);
    let broken = || Err::<Bytes, _>(std::io::Error::other("broken on purpose"));
    let (kind, parts): (_, Vec<Result<Bytes, std::io::Error>>) = match fault {
        Fault::Silent => std::future::pending().await,
        Fault::Status(status) => {
            let mut response = Response::new(Body::from("{\"error\":{\"message\":\"no\"}}"));
            *response.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
            return response;
        }
        Fault::HalfAnswer => ("application/json", vec![Ok("{\"half".into()), broken()]),
        _ if asked["stream"] == true => {
            let events = if let Fault::Events(events) = fault { events } else { 5 };
            let event = |at| Ok(format!("data: {{\"at\":{at},\"by\":\"{}\"}}\n\n", server.name).into());
            let mut parts: Vec<_> = (0..events).map(event).collect();
            parts.push(if fault == Fault::None {
                Ok("data: {\"usage\":{\"total_tokens\":9}}\n\ndata: [DONE]\n\n".into())
            } else {
                broken()
            });
            ("text/event-stream", parts)
        }
        _ => {
            let answer = json!({ "by": server.name, "usage": { "total_tokens": 700 } });
            ("application/json", vec![Ok(answer.to_string().into())])
        }
    };
    // In pieces, so that what comes before a fault is sent.
    let parts = futures_util::stream::iter(parts).then(|part| async {
        tokio::time::sleep(Duration::from_millis(2)).await;
        part
    });
    let mut response = Response::new(Body::from_stream(parts));
    response.headers_mut().insert("content-type", kind.parse().unwrap());
    response
}

async fn health(State(server): State<Arc<Server>>) -> axum::http::StatusCode {
    if server.unwell.load(Ordering::SeqCst) {
        axum::http::StatusCode::INTERNAL_SERVER_ERROR
    } else {
        axum::http::StatusCode::OK
    }
}

fn routes(server: &Arc<Server>) -> Router {
    Router::new()
        .route("/v1/chat/completions", post(chat))
        .route("/v1/messages", post(chat))
        .route("/health", get(health))
        .route(
            "/metrics",
            get(|State(server): State<Arc<Server>>| async move { server.metrics.lock().unwrap().clone() }),
        )
        .with_state(Arc::clone(server))
}

struct Harness {
    servers: Vec<Arc<Server>>,
    urls: Vec<String>,
    _running: Vec<LocalServer>,
    gateway: Gateway,
    url: String,
    client: reqwest::Client,
    stop: tokio_util::sync::CancellationToken,
}

impl Drop for Harness {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Harness {
    async fn start(count: usize, options: GatewayOptions) -> Self {
        Self::start_servers(count, options, false).await
    }

    async fn start_servers(count: usize, options: GatewayOptions, tls: bool) -> Self {
        let (mut servers, mut running) = (Vec::new(), Vec::new());
        let gateway = Gateway::new(options);
        for name in ["a", "b", "c"].into_iter().take(count) {
            let server = Arc::new(Server {
                name,
                ..Server::default()
            });
            let local = if tls {
                LocalServer::start_with_tls(routes(&server)).await
            } else {
                LocalServer::start(routes(&server)).await
            };
            gateway.add(&local.url).unwrap();
            servers.push(server);
            running.push(local);
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = tokio_util::sync::CancellationToken::new();
        let (serving, stopped) = (gateway.clone(), stop.clone());
        tokio::spawn(async move { serving.serve(listener, stopped.cancelled_owned()).await });
        let harness = Self {
            urls: running.iter().map(|local| local.url.clone()).collect(),
            servers,
            _running: running,
            gateway,
            url,
            client: crate::http_client::plain()
                .timeout(Duration::from_mins(1))
                .build()
                .unwrap(),
            stop,
        };
        harness
            .until(|rows| rows.iter().all(|row| row.state == "healthy"))
            .await;
        harness
    }

    async fn until(&self, holds: impl Fn(&[ReplicaRow]) -> bool) {
        let waited = tokio::time::timeout(Duration::from_secs(30), async {
            while !holds(&self.gateway.replicas()) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(waited.await.is_ok(), "{:?}", self.gateway.replicas());
    }

    #[expect(clippy::needless_pass_by_value, reason = "bodies are written where they are sent")]
    fn post(&self, path: &str, session: &str, body: Value) -> reqwest::RequestBuilder {
        let request = self.client.post(format!("{}{path}", self.url)).json(&body);
        request.header("x-session-id", session)
    }

    async fn chat(&self, session: &str, body: Value) -> (u16, String) {
        let sent = self.post("/v1/chat/completions", session, body).send().await.unwrap();
        (sent.status().as_u16(), sent.text().await.unwrap())
    }

    /// Which server answers the session.
    async fn by(&self, session: &str) -> String {
        let (status, text) = self.chat(session, json!({ "messages": [] })).await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()["by"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    fn index(&self, name: &str) -> usize {
        self.servers.iter().position(|server| server.name == name).unwrap()
    }
}

fn stream() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })
}
