//! The gateway's own routes: its replicas, sessions and metrics.
//!
//! What changes something takes the admin token, or comes from this machine where there is none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Inner;
use super::circuit::Health;
use super::refusal::{Grammar, Refusal};

/// Largest body of these routes.
const BODY: usize = 64 << 10;
/// Longest wait for a replica to be well.
const LONGEST_WAIT: Duration = Duration::from_mins(30);

/// A route of the gateway's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Replicas,
    AddReplica,
    RemoveReplica,
    Sessions,
    EndSession(String),
    Metrics,
    Health,
}

pub(super) fn route(method: &Method, path: &str) -> Option<Route> {
    Some(match (method.as_str(), path) {
        ("GET", "/replicas") => Route::Replicas,
        ("POST", "/replicas") => Route::AddReplica,
        ("DELETE", "/replicas") => Route::RemoveReplica,
        ("GET", "/sessions") => Route::Sessions,
        ("GET", "/metrics") => Route::Metrics,
        ("GET" | "HEAD", "/health") => Route::Health,
        ("DELETE", _) => Route::EndSession(path.strip_prefix("/sessions/")?.to_owned()),
        _ => return None,
    })
}

/// A replica to add or to remove.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    url: String,
    /// Of one that is added: seconds to wait until it is well.
    #[serde(default)]
    wait_s: f64,
    /// Of one that is removed: at once, whoever is with it.
    #[serde(default)]
    now: bool,
}

pub(super) async fn answer(
    inner: &Arc<Inner>,
    route: Route,
    request: Request<Incoming>,
    peer: SocketAddr,
) -> Response<Body> {
    let reads = matches!(
        route,
        Route::Replicas | Route::Sessions | Route::Metrics | Route::Health
    );
    if !reads && !may_change(inner, request.headers(), peer) {
        let message = "This route takes the admin token, as a Bearer token; without one it answers this machine alone.";
        return Grammar::OpenAi.response(&Refusal::bad(401, "not_admin", message));
    }
    match route {
        Route::Replicas => rows(&inner.pool.rows()),
        Route::Sessions => rows(&inner.pool.sessions()),
        Route::Metrics => {
            let mut response = Response::new(Body::from(inner.metrics()));
            let text = HeaderValue::from_static("text/plain; version=0.0.4");
            response.headers_mut().insert(header::CONTENT_TYPE, text);
            response
        }
        Route::Health => {
            let now = std::time::Instant::now();
            if inner.pool.all().iter().any(|replica| replica.circuit().takes(now)) {
                return rows(&json!({ "status": "ok" }));
            }
            Grammar::OpenAi.response(&Refusal::unavailable("no_replica", "No replica is well."))
        }
        Route::EndSession(session) if inner.pool.end_session(&session) => rows(&json!({ "ended": session })),
        Route::EndSession(session) => {
            let message = format!("No session `{session}` is known.");
            Grammar::OpenAi.response(&Refusal::bad(404, "unknown_session", message))
        }
        Route::AddReplica | Route::RemoveReplica => match read(request).await {
            Ok(change) if route == Route::AddReplica => add(inner, &change).await,
            Ok(change) => remove(inner, &change),
            Err(refusal) => Grammar::OpenAi.response(&refusal),
        },
    }
}

fn may_change(inner: &Inner, headers: &HeaderMap, peer: SocketAddr) -> bool {
    let Some(token) = &inner.options.admin_token else {
        return peer.ip().is_loopback();
    };
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = given.and_then(|text| text.strip_prefix("Bearer ")).unwrap_or_default();
    // Hashes are compared, so that the time it takes tells nothing of the token.
    let hash = |text: &str| <sha2::Sha256 as sha2::Digest>::digest(text.as_bytes());
    hash(given) == hash(token)
}

async fn read(request: Request<Incoming>) -> Result<Change, Refusal> {
    let expected = r#"expected {"url": "http://host:8000"}"#;
    let bad = |reason: String| Refusal::bad(400, "bad_replica", format!("{expected}: {reason}"));
    let mut body = Body::new(request.into_body()).into_data_stream();
    let mut all = Vec::new();
    while let Some(data) = body.next().await {
        all.extend_from_slice(&data.map_err(|error| bad(error.to_string()))?);
        if all.len() > BODY {
            return Err(bad("the body is too long".to_owned()));
        }
    }
    serde_json::from_slice(&all).map_err(|error| bad(error.to_string()))
}

async fn add(inner: &Inner, change: &Change) -> Response<Body> {
    let replica = match inner.add(&change.url) {
        Ok(replica) => replica,
        Err(error) => return Grammar::OpenAi.response(&Refusal::bad(400, "bad_replica", error.to_string())),
    };
    let patience = Duration::try_from_secs_f64(change.wait_s)
        .unwrap_or_default()
        .min(LONGEST_WAIT);
    let mut up = replica.up.subscribe();
    let waited = tokio::time::timeout(patience, up.wait_for(|up| *up)).await;
    if waited.is_err() && !patience.is_zero() && replica.circuit().health != Health::Up {
        let message = format!("{} was not well within {patience:?}; it is still asked.", replica.url);
        return Grammar::OpenAi.response(&Refusal::unavailable("not_well", message));
    }
    rows(&json!({ "added": replica.url }))
}

fn remove(inner: &Inner, change: &Change) -> Response<Body> {
    let url = change.url.trim_end_matches('/');
    let found = if change.now {
        inner.pool.remove(url)
    } else {
        inner.pool.drain(url)
    };
    if !found {
        return Grammar::OpenAi.response(&Refusal::bad(
            404,
            "unknown_replica",
            format!("There is no replica `{url}`."),
        ));
    }
    if change.now {
        return rows(&json!({ "removed": url }));
    }
    inner.pool.remove_drained();
    rows(&json!({ "draining": url }))
}

fn rows(value: &impl Serialize) -> Response<Body> {
    let mut response = Response::new(Body::from(serde_json::to_vec(value).unwrap_or_default()));
    *response.status_mut() = StatusCode::OK;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
