//! The Chat Completions dialect: its requests, answers and streams. Nothing of it leaves this folder.

mod request;
mod response;
mod stream;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use super::body::RequestBody;
use super::caller::Caller;
use super::dialect::{ErrorShape, answer};
use super::error::ApiError;
use super::session::{ModelRequest, Session};
use request::ChatRequest;
use stream::ChatWriter;

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
pub(super) async fn serve(caller: &Caller<'_>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let ChatRequest { request, presentation } = request::parse(&body.bytes, &caller.proxy().model)?;
    let streamed = presentation.stream;
    answer(caller, body, request, streamed, |session, call| {
        ChatWriter::new(session, call, presentation)
    })
    .await
}

/// The list of models: the one that is served.
pub(super) fn models(model: &str) -> Value {
    json!({ "object": "list", "data": [model_object(model)] })
}

/// One model; any name is served.
pub(super) fn model_object(name: &str) -> Value {
    json!({ "id": name, "object": "model", "created": 0, "owned_by": "lego" })
}
