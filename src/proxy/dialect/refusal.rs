//! Refusals and failures in the shape that each family of clients reads.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use super::json_response;
use crate::proxy::error::ApiError;

/// How an error looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::proxy) enum ErrorShape {
    /// `{"error": {…}}`
    OpenAi,
    /// The same for clients that die of a 429: they are told 503.
    Responses,
    /// `{"type": "error", "error": {…}}`
    Anthropic,
}

impl ErrorShape {
    pub(in crate::proxy) fn response(self, error: &ApiError) -> Response<Body> {
        let status = if self == Self::Responses && error.status == 429 {
            503
        } else {
            error.status
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json_response(status, &self.body(error));
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

    pub(in crate::proxy) fn body(self, error: &ApiError) -> Value {
        match self {
            Self::OpenAi | Self::Responses => json!({
                "error": { "message": error.message, "type": error.kind, "param": error.param, "code": error.code }
            }),
            Self::Anthropic => json!({
                "type": "error",
                "error": { "type": anthropic_kind(error.status), "message": anthropic_message(error) },
            }),
        }
    }
}

fn anthropic_kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Anthropic's clients compact when they read exactly this of a prompt that is too long.
fn anthropic_message(error: &ApiError) -> String {
    match &error.overflow {
        Some(overflow) => format!(
            "prompt is too long: {} tokens > {} maximum",
            overflow.prompt, overflow.window
        ),
        None => error.message.clone(),
    }
}
