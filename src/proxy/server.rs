//! The server and its routes. Only inference routes: nothing here exports, ends or lists sessions.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::get;
use hyper_util::service::TowerToHyperService;
use serde_json::json;
use tokio::net::TcpListener;

use super::dialect::{ErrorShape, json_response};
use super::error::ApiError;
use super::{Inner, Proxy, Source, admin, chat, endpoint};

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
        let router = self.router();
        let service_of = |_| TowerToHyperService::new(router.clone());
        let patience = self.0.options.client_patience;
        crate::http_server::serve(listener, service_of, patience, shutdown, || self.cancel_all()).await
    }
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
