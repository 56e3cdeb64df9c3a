//! What all dialects share: the way from a request to an answer, whole or streamed, and how errors look.
//!
//! A dialect reads requests into `ModelRequest` and implements `Writer`; nothing else of it leaves its folder.

pub(super) mod fields;
mod refusal;
mod stream;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub(super) use refusal::ErrorShape;
pub(super) use stream::{event, unnamed_event};

use super::body::RequestBody;
use super::caller::Caller;
use super::error::ApiError;
use super::flight::{FlightEnd, FlightState, News};
use super::generate::hex;
use super::session::{ModelRequest, Session};
use crate::inference::EngineUsage;
use crate::prompt::Message;
use crate::trajectory::{FinishReason, SessionKey};

/// An answer that is complete.
pub(super) struct Answered<'a> {
    pub(super) state: &'a FlightState,
    pub(super) finish: FinishReason,
    pub(super) message: &'a Message,
    pub(super) usage: EngineUsage,
}

/// Writes one answer as its client reads it.
pub(super) trait Writer: Send + 'static {
    /// How its errors look.
    const ERRORS: ErrorShape;

    /// The whole answer.
    fn whole(&self, session: &Session, answered: &Answered<'_>) -> Value;

    /// The first bytes of a stream.
    fn begin(&mut self, out: &mut Vec<u8>, state: &FlightState);

    /// What has come since the last look, the end excepted.
    fn news(&mut self, out: &mut Vec<u8>, session: &Session, news: &News);

    /// The last bytes of a stream, for any end.
    fn end(&mut self, out: &mut Vec<u8>, state: &FlightState, end: &FlightEnd);

    /// Keeps a waiting stream alive.
    fn keep_alive(&mut self, out: &mut Vec<u8>);
}

/// Samples, or attaches to what is being sampled, and answers. `writer` is given the session's name and the call's number.
pub(super) async fn answer<W: Writer>(
    caller: &Caller<'_>,
    body: RequestBody,
    mut request: ModelRequest,
    streamed: bool,
    writer: impl FnOnce(&SessionKey, u32) -> W,
) -> Result<Response<Body>, ApiError> {
    request.share = Some(body.share);
    drop(body.bytes);
    let session = &caller.session()?;
    let mut viewer = session.begin(request)?;
    let writer = writer(&session.key, viewer.flight().call);
    if streamed {
        return match viewer.started(stream::FIRST_BYTE_PATIENCE).await {
            Some(error) => Err(error),
            None => Ok(stream::respond(session, viewer, writer)),
        };
    }
    match viewer.finished().await {
        FlightEnd::Failed(error) => Err(error),
        FlightEnd::Answered { finish, message, usage } => {
            viewer.saw_the_end();
            let body = {
                let state = viewer.flight().state();
                writer.whole(
                    session,
                    &Answered {
                        state: &state,
                        finish,
                        message: &message,
                        usage,
                    },
                )
            };
            Ok(json_response(StatusCode::OK, &body))
        }
    }
}

pub(super) fn json_response(status: StatusCode, body: &impl serde::Serialize) -> Response<Body> {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Names an answer: the session's key is its secret, eight digits of it name the call well enough.
pub(super) fn answer_id(prefix: &str, session: &SessionKey, call: u32) -> String {
    format!("{prefix}{}-{call}", session.0.get(..8).unwrap_or(&session.0))
}

/// What stands for a signature or for encrypted thinking. Clients send it back and look no closer; the
/// thinking itself is recorded in tokens.
pub(super) fn signature(thinking: &str) -> String {
    hex(&Sha256::digest(thinking.as_bytes()))
}
