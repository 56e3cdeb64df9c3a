//! The server and its routes. Only inference routes: nothing here exports, ends or lists sessions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::dialect::{ErrorShape, json_response};
use super::error::ApiError;
use super::{Inner, Proxy, Source, admin, chat, endpoint};

/// Longest time for open connections to end after the shutdown began.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// Time after which a connection is accepted again where that failed.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

pub(super) type Answer = Response<Body>;

pub(super) fn router(inner: Arc<Inner>) -> Router {
    let mut router = endpoint::routes(Router::new());
    if inner.options.admin.is_some() {
        router = admin::routes(router);
    }
    for prefix in endpoint::PREFIXES {
        router = router
            .route(&format!("{prefix}/models"), get(models))
            .route(&format!("/sess/{{session}}{prefix}/models"), get(models))
            .route(&format!("{prefix}/models/{{*name}}"), get(model))
            .route(
                &format!("/sess/{{session}}{prefix}/models/{{*name}}"),
                get(model_of_session),
            );
    }
    router
        .route("/", get(hello))
        .route("/sess/{session}", get(hello))
        .route("/api/hello", get(hello))
        .route("/sess/{session}/api/hello", get(hello))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(inner)
}

impl Proxy {
    /// Serves until `shutdown` completes; then ends every session's generations and gives open connections a
    /// few seconds.
    ///
    /// # Errors
    /// None at present: what cannot be accepted is tried again.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let (router, ending) = (self.router(), CancellationToken::new());
        let mut connections = JoinSet::new();
        let mut shutdown = std::pin::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => break,
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        let patience = self.0.options.client_patience;
                        connections.spawn(connection(stream, router.clone(), patience, ending.clone()));
                    }
                    Err(error) if is_of_one_client(&error) => {}
                    Err(error) => {
                        // Too many open files, most likely: some will be closed.
                        tracing::error!(%error, "no connection could be accepted");
                        tokio::time::sleep(ACCEPT_AGAIN).await;
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
        drop(listener);
        self.cancel_all();
        ending.cancel();
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN_PATIENCE, ended).await.is_err() {
            tracing::warn!("connections were still open after {SHUTDOWN_PATIENCE:?}");
        }
        Ok(())
    }
}

/// Serves one connection. Who begins a request and does not go on, or begins no other, is not waited for.
async fn connection(stream: TcpStream, router: Router, patience: Duration, ending: CancellationToken) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        ended = served.as_mut() => ended,
        () = ending.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether only the client that came is concerned.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Every key that the request shows.
pub(super) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let bearer = headers.get_all(header::AUTHORIZATION).into_iter().filter_map(|value| {
        let text = value.to_str().ok()?;
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let keys = headers
        .get_all("x-api-key")
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    bearer.chain(keys)
}

/// Compares without telling by its duration how much was right.
pub(super) fn same_secret(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().zip(right.bytes()).fold(0, |acc, (l, r)| acc | (l ^ r)) == 0
}

async fn models(State(inner): State<Arc<Inner>>) -> Answer {
    json_response(StatusCode::OK, &chat::models(&inner.options.model))
}

async fn model(Path(name): Path<String>) -> Answer {
    json_response(StatusCode::OK, &chat::model_object(&name))
}

async fn model_of_session(Path((_, name)): Path<(String, String)>) -> Answer {
    json_response(StatusCode::OK, &chat::model_object(&name))
}

async fn hello() -> Answer {
    json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

/// Whether there is an engine to ask, or an API.
async fn health(State(inner): State<Arc<Inner>>) -> Answer {
    let lost = match &inner.options.source {
        Source::Policy(policy) if policy.engine.is_up() => None,
        Source::Policy(_) => Some("every engine is lost".to_owned()),
        Source::Hosted(api) => api.lost().await,
    };
    match lost {
        None => json_response(StatusCode::OK, &json!({ "status": "ok" })),
        Some(reason) => ErrorShape::OpenAi.response(&ApiError::unavailable(reason, None)),
    }
}

async fn metrics(State(inner): State<Arc<Inner>>) -> Answer {
    let mut answer = Response::new(Body::from(inner.metrics.render(&inner.gauges())));
    let text = header::HeaderValue::from_static("text/plain; version=0.0.4");
    answer.headers_mut().insert(header::CONTENT_TYPE, text);
    answer
}

async fn unknown_route(request: Request) -> Answer {
    let message = format!(
        "Unknown route: {} {}. There are {}, and GET /v1/models.",
        request.method(),
        request.uri().path(),
        endpoint::names()
    );
    ErrorShape::OpenAi.response(&ApiError::not_found(message))
}

async fn wrong_method(request: Request) -> Answer {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    ErrorShape::OpenAi.response(&ApiError {
        status: 405,
        ..ApiError::bad_request(message)
    })
}
