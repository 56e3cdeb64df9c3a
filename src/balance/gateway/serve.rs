//! From a connection's request to its answer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response};
use hyper::body::{Body as _, Incoming};
use hyper::service::service_fn;
use tokio::net::TcpListener;

use super::answer::{self, Pace, early};
use super::attempt::{Asked, Won, end_to_end, is_stream, response};
use super::key::{key, of_path};
use super::refusal::{Grammar, Refusal};
use super::scan::{Fields, fields};
use super::{Gateway, Inner, admin, attempt};

/// Largest body of a request.
const BODY: usize = 64 << 20;
/// Room that is set aside at once for a body of a declared length.
const RESERVED: usize = 1 << 20;
/// Time for requests that run to end after a stop.
const DRAIN: Duration = Duration::from_secs(30);

impl Gateway {
    /// Serves until `shutdown` completes; requests that run then may end.
    ///
    /// # Errors
    /// None at present: what cannot be accepted is tried again.
    pub async fn serve(&self, listener: TcpListener, shutdown: impl Future<Output = ()>) -> std::io::Result<()> {
        let inner = Arc::clone(&self.0);
        let service_of = |peer: SocketAddr| {
            let inner = Arc::clone(&inner);
            service_fn(move |request| {
                let inner = Arc::clone(&inner);
                async move { Ok::<_, Infallible>(handle(inner, request, peer).await) }
            })
        };
        let stopped = async {
            shutdown.await;
            self.0.draining.store(true, Ordering::Relaxed);
            let idle = async {
                while self.0.counts.in_flight.load(Ordering::Relaxed) > 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            if tokio::time::timeout(DRAIN, idle).await.is_err() {
                tracing::warn!("requests still run after {DRAIN:?}; they are cut");
            }
        };
        crate::http_server::serve(listener, service_of, self.0.options.patience, stopped, || {}).await?;
        for replica in self.0.pool.all() {
            self.0.pool.remove(&replica.url);
        }
        Ok(())
    }
}

/// Counts a request as long as its answer is on its way.
struct Counted(Arc<Inner>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.counts.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A body whose request is counted until its end.
struct CountedBody(Body, #[expect(dead_code, reason = "held to the end")] Counted);

impl hyper::body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        std::pin::Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.0.size_hint()
    }
}

async fn handle(inner: Arc<Inner>, request: Request<Incoming>, peer: SocketAddr) -> Response<Body> {
    let path = request.uri().path();
    if let Some(route) = admin::route(request.method(), path) {
        return admin::answer(&inner, route, request, peer).await;
    }
    let grammar = Grammar::of(path);
    let before = inner.counts.in_flight.fetch_add(1, Ordering::Relaxed);
    let counted = Counted(Arc::clone(&inner));
    let answered = if inner.draining.load(Ordering::Relaxed) {
        Err(Refusal::unavailable("draining", "The gateway is shutting down."))
    } else if before >= inner.options.most_requests {
        inner.counts.refused.fetch_add(1, Ordering::Relaxed);
        let refusal = Refusal::unavailable(
            "overloaded",
            format!("{before} requests run already: send it again later."),
        );
        Err(Refusal { status: 429, ..refusal })
    } else {
        forward(&inner, request, grammar).await
    };
    let response = answered.unwrap_or_else(|refusal| grammar.response(&refusal));
    inner.counts.answer(response.status().as_u16());
    response.map(|body| Body::new(CountedBody(body, counted)))
}

async fn forward(inner: &Arc<Inner>, request: Request<Incoming>, grammar: Grammar) -> Result<Response<Body>, Refusal> {
    let (mut parts, incoming) = request.into_parts();
    let body = if incoming.is_end_stream() {
        Bytes::new()
    } else {
        read(incoming, inner.options.patience).await?
    };
    let (named, stripped) = of_path(parts.uri.path());
    let path = match parts.uri.query() {
        _ if inner.options.keep_path => parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        Some(query) => format!("{stripped}?{query}"),
        None => stripped.to_owned(),
    };
    let found = if parts.method == Method::POST {
        fields(&body)
    } else {
        Fields::default()
    };
    let own = inner.options.session_header.as_deref();
    let key = key(named, &parts.headers, own, &found);
    let said = found
        .said
        .map_or(0, |said| said.as_ptr() as usize - body.as_ptr() as usize);
    let streams = found.stream;
    end_to_end(&mut parts.headers);
    inner.retries.earn();
    let asked = Asked {
        method: parts.method,
        path,
        headers: parts.headers,
        body,
        streams,
        key,
        said,
    };
    let pace = Pace {
        comment: inner.options.keep_alive,
        idle: inner.options.idle,
    };
    let mut awaited = Box::pin(attempt::answer(Arc::clone(inner), asked));
    if !streams {
        return awaited.await.map(|won| relayed(won, grammar, pace));
    }
    match tokio::time::timeout(pace.comment, awaited.as_mut()).await {
        Ok(won) => won.map(|won| relayed(won, grammar, pace)),
        Err(_) => Ok(early(awaited, grammar, pace)),
    }
}

fn relayed(won: Won, grammar: Grammar, pace: Pace) -> Response<Body> {
    let is_events = is_stream(&won.headers);
    response(won, |content, ticket| {
        answer::body(content, ticket, grammar, pace, is_events)
    })
}

/// Reads a whole body. One of which nothing more comes is not waited for.
async fn read(mut body: Incoming, patience: Duration) -> Result<Bytes, Refusal> {
    let declared = body.size_hint().exact().unwrap_or(0) as usize;
    let mut first: Option<Bytes> = None;
    let mut all: Vec<u8> = Vec::new();
    loop {
        let frame = std::future::poll_fn(|context| std::pin::Pin::new(&mut body).poll_frame(context));
        let frame = tokio::time::timeout(patience, frame).await.map_err(|_| {
            let message = format!("Nothing more of the body came within {} s.", patience.as_secs());
            Refusal::bad(408, "slow_body", message)
        })?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Refusal::bad(400, "broken_body", format!("The body broke off: {error}")))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.len() + data.len() > BODY {
            return Err(Refusal::bad(
                413,
                "too_large",
                format!("The body is larger than {} MiB.", BODY >> 20),
            ));
        }
        // One that came in one piece is not copied.
        match first.take() {
            None if all.is_empty() => first = Some(data),
            Some(begun) => {
                all.reserve(declared.min(RESERVED).max(begun.len() + data.len()));
                all.extend_from_slice(&begun);
                all.extend_from_slice(&data);
            }
            None => all.extend_from_slice(&data),
        }
    }
    Ok(first.unwrap_or_else(|| all.into()))
}
