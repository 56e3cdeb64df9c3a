//! Server-sent events of one answer, in any dialect.
//!
//! Tokens leave as they are sampled. While nothing comes, the dialect's keep-alive does; and whatever happens,
//! the stream does not end without its final event.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, header};
use futures_util::stream;
use serde::Serialize;
use serde_json::Value;

use super::Writer;
use crate::proxy::flight::Viewer;
use crate::proxy::session::Session;

/// Until then the status is open: an error still has its own, afterwards it is an event of the stream.
pub(super) const FIRST_BYTE_PATIENCE: Duration = Duration::from_secs(5);

/// Room for what one token makes, in most dialects.
const EVENT_BYTES: usize = 512;

struct State<W> {
    session: Arc<Session>,
    viewer: Viewer,
    writer: W,
    begun: bool,
    done: bool,
}

/// Streams the answer that `viewer` watches.
pub(super) fn respond<W: Writer>(session: &Arc<Session>, viewer: Viewer, writer: W) -> Response<Body> {
    let state = State {
        session: Arc::clone(session),
        viewer,
        writer,
        begun: false,
        done: false,
    };
    let chunks = stream::unfold(state, |mut state| async move {
        if state.done {
            return None;
        }
        let bytes = state.next().await;
        Some((Ok::<_, std::convert::Infallible>(bytes), state))
    });
    let mut response = Response::new(Body::from_stream(chunks));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream; charset=utf-8"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<W: Writer> State<W> {
    /// The next bytes of the stream: everything that is new, or a keep-alive.
    async fn next(&mut self) -> Bytes {
        let mut out = Vec::with_capacity(EVENT_BYTES);
        if !self.begun {
            self.begun = true;
            self.writer.begin(&mut out, &self.viewer.flight().state());
            return out.into();
        }
        match self.viewer.next(self.session.proxy.keep_alive).await {
            None => self.writer.keep_alive(&mut out),
            Some(news) => {
                self.writer.news(&mut out, &self.session, &news);
                if let Some(end) = &news.end {
                    self.writer.end(&mut out, &self.viewer.flight().state(), end);
                    self.viewer.saw_the_end();
                    self.done = true;
                }
            }
        }
        out.into()
    }
}

/// An event without a name.
pub(in crate::proxy) fn unnamed_event(out: &mut Vec<u8>, data: &impl Serialize) {
    out.extend_from_slice(b"data: ");
    // Values of ours always serialise.
    let _ = serde_json::to_writer(&mut *out, data);
    out.extend_from_slice(b"\n\n");
}

/// An event named as its data's `type` says.
pub(in crate::proxy) fn event(out: &mut Vec<u8>, data: &Value) {
    out.extend_from_slice(b"event: ");
    out.extend_from_slice(data["type"].as_str().unwrap_or_default().as_bytes());
    out.push(b'\n');
    unnamed_event(out, data);
}
