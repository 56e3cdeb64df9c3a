//! The Chat Completions dialect: its requests, answers, streams and errors. Nothing of it leaves this folder.

mod request;
mod response;
mod stream;

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::error::ApiError;
use super::flight::FlightEnd;
use super::session::{ModelRequest, Session};
use request::ChatRequest;
use response::Envelope;

/// How the client wants its answer.
#[expect(clippy::struct_excessive_bools, reason = "these are the flags of the wire format")]
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Presentation {
    /// Model name as the client wrote it.
    model: String,
    stream: bool,
    include_usage: bool,
    logprobs: bool,
    return_token_ids: bool,
}

/// Serves one request of a session.
pub(super) async fn serve(session: &std::sync::Arc<Session>, body: &[u8]) -> Response<Body> {
    let ChatRequest { request, presentation } = match request::parse(body, &session.proxy.model) {
        Ok(parsed) => parsed,
        Err(error) => return error_response(&error),
    };
    let mut viewer = match session.begin(request) {
        Ok(viewer) => viewer,
        Err(error) => return error_response(&error),
    };
    let envelope = Envelope::new(&session.key, viewer.flight().call, presentation);
    if envelope.presentation.stream {
        return match viewer.started(stream::FIRST_BYTE_PATIENCE).await {
            Some(error) => error_response(&error),
            None => stream::respond(session, viewer, envelope),
        };
    }
    match viewer.finished().await {
        FlightEnd::Failed(error) => error_response(&error),
        FlightEnd::Answered { finish, message, usage } => {
            let body = {
                let state = viewer.flight().state();
                response::completion(
                    &envelope,
                    session.proxy.prompt.tokenizer(),
                    &state,
                    finish,
                    &message,
                    usage,
                )
            };
            json_response(StatusCode::OK, &body)
        }
    }
}

/// The list of models: the one that is served.
pub(super) fn models(model: &str) -> Value {
    json!({ "object": "list", "data": [model_object(model)] })
}

/// One model; any name is served.
pub(super) fn model_object(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "lego" })
}

/// An error in the shape that OpenAI's clients read.
pub(super) fn error_response(error: &ApiError) -> Response<Body> {
    let status = StatusCode::from_u16(error.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, &error_body(error));
    let headers = response.headers_mut();
    if let Some(after) = error.retry_after {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
    }
    if !error.retryable {
        // Several clients retry 409 and 429 on their own unless told not to.
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
    }
    response
}

fn error_body(error: &ApiError) -> Value {
    json!({ "error": { "message": error.message, "type": error.kind, "param": error.param, "code": error.code } })
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
