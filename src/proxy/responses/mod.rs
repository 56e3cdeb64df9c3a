//! The OpenAI Responses dialect: its requests, answers and streams. Nothing of it leaves this folder.

mod items;
mod output;
mod request;
mod writer;

use axum::body::Body;
use axum::http::Response;
use serde_json::{Map, Value};

use super::body::RequestBody;
use super::caller::Caller;
use super::dialect::{ErrorShape, answer};
use super::error::ApiError;
use super::session::{ModelRequest, Session};
use writer::ResponsesWriter;

/// What a response repeats of its request.
#[derive(Debug, Clone, Default)]
pub(super) struct Repeated {
    /// Model name as the client wrote it.
    model: String,
    /// Fields as they came: instructions, tools, limits and so on.
    fields: Map<String, Value>,
    /// Whether the client wants its thinking back in the form that it must return.
    encrypted: bool,
}

/// Serves one request of a session.
pub(super) async fn serve(caller: &Caller<'_>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let request::ResponsesRequest {
        request,
        stream,
        repeated,
    } = request::parse(&body.bytes, caller)?;
    answer(caller, body, request, stream, |session, call| {
        ResponsesWriter::new(session, call, repeated)
    })
    .await
}
