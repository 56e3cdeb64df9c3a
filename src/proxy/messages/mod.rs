//! The Anthropic Messages dialect: its requests, answers and streams. Nothing of it leaves this folder.

mod blocks;
mod content;
mod request;
mod writer;

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::json;

use super::ProxyOptions;
use super::body::RequestBody;
use super::caller::Caller;
use super::dialect::{ErrorShape, answer, json_response};
use super::error::ApiError;
use super::session::{ModelRequest, Session};
use request::MessagesRequest;
use writer::MessagesWriter;

/// Serves one request of a session.
pub(super) async fn serve(caller: &Caller<'_>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let MessagesRequest { request, model, stream } = request::parse(&body.bytes, &caller.proxy().model)?;
    answer(caller, body, request, stream, |session, call| {
        MessagesWriter::new(session, call, model)
    })
    .await
}

/// Tells how many tokens a request's prompt has, rendered in full; nothing is sampled or recorded, and there need be no
/// session. In front of a hosted API it is an estimate: its tokenizer is not known.
pub(super) async fn count_tokens(proxy: &ProxyOptions, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let mut request = request::parse(&body.bytes, &proxy.model)?.request;
    request.share = Some(body.share);
    let tokens = count(proxy, request).await?;
    Ok(json_response(StatusCode::OK, &json!({ "input_tokens": tokens })))
}

/// Bytes of messages that are rendered and tokenised in one piece; longer ones are counted piece by piece.
const COUNTED_EXACTLY: usize = 4 << 20;

async fn count(proxy: &ProxyOptions, request: ModelRequest) -> Result<usize, ApiError> {
    let Some(policy) = proxy.policy() else {
        return Ok(estimate(&request));
    };
    let prompt = Arc::clone(&policy.prompt);
    let bytes: usize = request.messages.iter().map(|message| message.content.len()).sum();
    let task = tokio::task::spawn_blocking(move || {
        if bytes <= COUNTED_EXACTLY {
            return prompt
                .first(&request.messages, request.tools.as_deref())
                .map(|ids| ids.len());
        }
        let counts = request
            .messages
            .iter()
            .map(|message| prompt.tokenizer().count_up_to(&message.content, usize::MAX));
        counts.sum()
    });
    match task.await {
        Ok(Ok(tokens)) => Ok(tokens),
        Ok(Err(error)) => Err(ApiError::field("messages", &error.to_string())),
        Err(error) => Err(ApiError::internal(format!("the prompt could not be built: {error}"))),
    }
}

/// Four bytes a token, as is usual for English and code.
fn estimate(request: &ModelRequest) -> usize {
    let messages = serde_json::to_vec(&request.messages).unwrap_or_default();
    let tools = serde_json::to_vec(&request.tools).unwrap_or_default();
    (messages.len() + tools.len()) / 4
}
