//! The server: the page, its answers, and a stream that says when to ask again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{Response, StatusCode, header};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::api::{Parameters, Refusal, answer};
use super::board::Board;
use super::guard::{Guard, guard};
use super::{DashboardError, assets};

/// Between two looks at the files.
const TICK: Duration = Duration::from_secs(1);
/// For open connections to end.
const ENDING: Duration = Duration::from_secs(2);
/// Bytes of a log that the page hands over.
const MOST_IMPORT: usize = 64 << 20;
/// Between two signs of life on a stream without news.
const ALIVE: Duration = Duration::from_secs(15);

/// How the page is served.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    /// Needed by whoever looks, where it is set.
    pub token: Option<String>,
    /// Path below which it lies, `/x`; empty for none.
    pub base_path: String,
}

#[derive(Clone)]
struct Shared {
    board: Arc<Board>,
    stop: CancellationToken,
}

pub(super) fn router(board: Arc<Board>, options: &ServerOptions, stop: CancellationToken) -> Router {
    let guarding = Arc::new(Guard {
        token: options.token.clone(),
        base: options.base_path.clone(),
    });
    let base = &options.base_path;
    let mut routes = Router::new()
        .route(&format!("{base}/"), get(page))
        .route(&format!("{base}/assets/{{name}}"), get(asset))
        .route(&format!("{base}/api/events"), get(events))
        .route(&format!("{base}/api/import"), post(import))
        .route(&format!("{base}/api/{{name}}"), get(ask));
    if !base.is_empty() {
        // Relative addresses need the slash.
        let to = format!("{base}/");
        routes = routes.route(base, get(move || async move { redirect(&to) }));
    }
    let routes = routes
        .layer(DefaultBodyLimit::max(MOST_IMPORT))
        .with_state(Shared { board, stop });
    routes.layer(axum::middleware::from_fn_with_state(guarding, guard))
}

/// Serves until `stop`, reading on once a second.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    board: Arc<Board>,
    options: ServerOptions,
    stop: CancellationToken,
) -> Result<(), DashboardError> {
    let reading = tokio::spawn(read_on(Arc::clone(&board), stop.clone()));
    let router = router(board, &options, stop.clone());
    let asked = stop.clone();
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move { asked.cancelled().await });
    let ended = tokio::select! {
        ended = serving => ended,
        () = async { stop.cancelled().await; tokio::time::sleep(ENDING).await } => Ok(()),
    };
    stop.cancel();
    let _ = reading.await;
    Ok(ended?)
}

async fn read_on(board: Arc<Board>, stop: CancellationToken) {
    let mut number = 0;
    while !stop.is_cancelled() {
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(TICK) => {}
        }
        number += 1;
        let board = Arc::clone(&board);
        let _ = tokio::task::spawn_blocking(move || board.tick(number)).await;
    }
}

fn reply(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
    response
}

fn json_reply(status: StatusCode, value: &Value) -> Response<Body> {
    reply(status, "application/json", value.to_string())
}

fn redirect(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::PERMANENT_REDIRECT;
    if let Ok(to) = header::HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

async fn page() -> Response<Body> {
    reply(StatusCode::OK, "text/html; charset=utf-8", assets::page())
}

async fn asset(Path(name): Path<String>) -> Response<Body> {
    match assets::file(&name) {
        Some((text, kind)) => reply(StatusCode::OK, kind, text),
        None => json_reply(StatusCode::NOT_FOUND, &json!({"error": format!("no file `{name}`")})),
    }
}

async fn ask(
    State(shared): State<Shared>,
    Path(name): Path<String>,
    Query(parameters): Query<Parameters>,
) -> Response<Body> {
    let answered = tokio::task::spawn_blocking(move || answer(&shared.board, &name, &parameters)).await;
    match answered {
        Ok(Ok(value)) => json_reply(StatusCode::OK, &value),
        Ok(Err(Refusal::NotFound(why))) => json_reply(StatusCode::NOT_FOUND, &json!({"error": why})),
        Ok(Err(Refusal::Wrong(why))) => json_reply(StatusCode::BAD_REQUEST, &json!({"error": why})),
        Err(_) => json_reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({"error": "a bug: see the terminal"}),
        ),
    }
}

async fn import(State(shared): State<Shared>, Query(parameters): Query<Parameters>, body: Bytes) -> Response<Body> {
    let name = parameters.get("name").cloned().unwrap_or_else(|| "import".to_owned());
    let taken = tokio::task::spawn_blocking(move || shared.board.import(&name, &String::from_utf8_lossy(&body))).await;
    match taken {
        Ok(Ok(id)) => json_reply(StatusCode::OK, &json!({"id": id})),
        Ok(Err(why)) => json_reply(StatusCode::BAD_REQUEST, &json!({"error": why})),
        Err(_) => json_reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({"error": "a bug: see the terminal"}),
        ),
    }
}

/// One event whenever something changed: the runs with their revisions.
async fn events(State(shared): State<Shared>) -> Response<Body> {
    let changes = shared.board.changes();
    let stream = futures_util::stream::unfold((shared, changes, true), |(shared, mut changes, first)| async move {
        if !first {
            tokio::select! {
                () = shared.stop.cancelled() => return None,
                waited = tokio::time::timeout(ALIVE, changes.changed()) => match waited {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) => return None,
                    Err(_) => {
                        let alive = Bytes::from_static(b": alive\n\n");
                        return Some((Ok::<_, Infallible>(alive), (shared, changes, false)));
                    }
                },
            }
        }
        changes.borrow_and_update();
        let board = Arc::clone(&shared.board);
        let news = tokio::task::spawn_blocking(move || board.runs_json())
            .await
            .unwrap_or(Value::Null);
        let event = Bytes::from(format!("event: change\ndata: {news}\n\n"));
        Some((Ok(event), (shared, changes, false)))
    });
    let mut response = reply(StatusCode::OK, "text/event-stream", Body::from_stream(stream));
    response
        .headers_mut()
        .insert("x-accel-buffering", header::HeaderValue::from_static("no"));
    response
}
