//! Routes, authentication and bodies. Only inference routes: nothing here exports, ends or lists sessions.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::{get, post};
use axum::serve::ListenerExt as _;
use serde_json::json;
use tokio::net::TcpListener;

use super::chat;
use super::error::ApiError;
use super::session::Session;
use super::{Inner, Proxy};

/// Largest body.
const BODY_LIMIT: usize = 64 << 20;

/// Longest time for open connections to end after the shutdown began.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

type Answer = Response<Body>;

pub(super) fn router(inner: Arc<Inner>) -> Router {
    let mut router = Router::new();
    // Clients whose base URL already ends in /v1 double it.
    for prefix in ["/v1", "/v1/v1"] {
        router = router
            .route(&format!("{prefix}/chat/completions"), post(chat_by_token))
            .route(
                &format!("/sess/{{session}}{prefix}/chat/completions"),
                post(chat_by_session),
            )
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
        .route("/health", get(hello))
        .route("/metrics", get(metrics))
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .with_state(inner)
}

impl Proxy {
    /// Serves until `shutdown` completes; then ends every session's generations and gives open connections a
    /// few seconds.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let listener = listener.tap_io(|stream| {
            if let Err(error) = stream.set_nodelay(true) {
                tracing::debug!(%error, "no TCP_NODELAY");
            }
        });
        let (begun, begins) = tokio::sync::oneshot::channel();
        let proxy = self.clone();
        let server = axum::serve(listener, self.router()).with_graceful_shutdown(async move {
            shutdown.await;
            proxy.cancel_all();
            let _ = begun.send(());
        });
        let overdue = async {
            if begins.await.is_err() {
                // The server ended by itself, and with it the future that held the sender.
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(SHUTDOWN_PATIENCE).await;
        };
        tokio::select! {
            served = server.into_future() => served,
            () = overdue => Ok(()),
        }
    }
}

async fn chat_by_session(State(inner): State<Arc<Inner>>, Path(key): Path<String>, request: Request) -> Answer {
    let session = inner.session(&key).and_then(|session| {
        let authorised = tokens(request.headers()).any(|token| same_secret(token, &session.token));
        if authorised {
            Ok(session)
        } else {
            Err(ApiError::unauthorized())
        }
    });
    chat(&inner, session, request).await
}

async fn chat_by_token(State(inner): State<Arc<Inner>>, request: Request) -> Answer {
    let session = tokens(request.headers()).find_map(|token| inner.session_of_token(token));
    chat(
        &inner,
        session.unwrap_or_else(|| Err(ApiError::unauthorized())),
        request,
    )
    .await
}

async fn chat(inner: &Inner, session: Result<Arc<Session>, ApiError>, request: Request) -> Answer {
    let answer = match session {
        Err(error) => chat::error_response(&error),
        Ok(session) => match body(request).await {
            Ok(body) => chat::serve(&session, &body).await,
            Err(error) => chat::error_response(&error),
        },
    };
    inner.metrics.count_response(answer.status().as_u16());
    answer
}

async fn body(request: Request) -> Result<axum::body::Bytes, ApiError> {
    if let Some(encoding) = request.headers().get(header::CONTENT_ENCODING)
        && encoding != "identity"
    {
        return Err(ApiError::encoding(encoding.to_str().unwrap_or("?")));
    }
    let declared = request
        .headers()
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if declared.is_some_and(|length: usize| length > BODY_LIMIT) {
        return Err(ApiError::too_large(BODY_LIMIT));
    }
    to_bytes(request.into_body(), BODY_LIMIT).await.map_err(|error| {
        let mut source: Option<&dyn std::error::Error> = Some(&error);
        while let Some(cause) = source {
            if cause.to_string().contains("length limit") {
                return ApiError::too_large(BODY_LIMIT);
            }
            source = cause.source();
        }
        ApiError::bad_request(format!("the body could not be read: {error}"))
    })
}

/// Every key that the request shows.
fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
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
fn same_secret(left: &str, right: &str) -> bool {
    left.len() == right.len() && left.bytes().zip(right.bytes()).fold(0, |acc, (l, r)| acc | (l ^ r)) == 0
}

async fn models(State(inner): State<Arc<Inner>>) -> Answer {
    chat::json_response(StatusCode::OK, &chat::models(&inner.options.model))
}

async fn model(Path(name): Path<String>) -> Answer {
    chat::json_response(StatusCode::OK, &chat::model_object(&name))
}

async fn model_of_session(Path((_, name)): Path<(String, String)>) -> Answer {
    chat::json_response(StatusCode::OK, &chat::model_object(&name))
}

async fn hello() -> Answer {
    chat::json_response(StatusCode::OK, &json!({ "status": "ok" }))
}

async fn metrics(State(inner): State<Arc<Inner>>) -> Answer {
    let mut answer = Response::new(Body::from(inner.metrics.render()));
    let text = header::HeaderValue::from_static("text/plain; version=0.0.4");
    answer.headers_mut().insert(header::CONTENT_TYPE, text);
    answer
}

async fn unknown_route(request: Request) -> Answer {
    chat::error_response(&ApiError::not_found(request.uri().path()))
}

async fn wrong_method(request: Request) -> Answer {
    let message = format!("{} is not allowed on {}.", request.method(), request.uri().path());
    chat::error_response(&ApiError {
        status: 405,
        ..ApiError::bad_request(message)
    })
}
