//! What the gateway itself says, in the grammar of the client that it says it to.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

/// How a client reads errors, by the route that it called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grammar {
    OpenAi,
    Responses,
    Anthropic,
}

impl Grammar {
    pub(super) fn of(path: &str) -> Self {
        if path.contains("/messages") {
            Self::Anthropic
        } else if path.contains("/responses") {
            Self::Responses
        } else {
            Self::OpenAi
        }
    }

    /// As an event of a stream that has begun, and what ends it. Whatever came before is closed.
    pub(super) fn event(self, refusal: &Refusal) -> Bytes {
        let body = self.body(refusal);
        match self {
            Self::OpenAi => format!("\n\ndata: {body}\n\ndata: [DONE]\n\n"),
            Self::Responses => {
                let event = json!({ "type": "error", "code": refusal.code, "message": refusal.message, "param": null });
                format!("\n\nevent: error\ndata: {event}\n\n")
            }
            Self::Anthropic => format!("\n\nevent: error\ndata: {body}\n\n"),
        }
        .into()
    }

    fn body(self, refusal: &Refusal) -> Value {
        let Refusal {
            status, message, code, ..
        } = refusal;
        match self {
            Self::OpenAi | Self::Responses => {
                let kind = if *status < 500 {
                    "invalid_request_error"
                } else {
                    "server_error"
                };
                json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
            }
            Self::Anthropic => {
                let kind = match status {
                    429 => "rate_limit_error",
                    503 => "overloaded_error",
                    500.. => "api_error",
                    _ => "invalid_request_error",
                };
                json!({ "type": "error", "error": { "type": kind, "message": message } })
            }
        }
    }

    /// As an answer of its own.
    pub(super) fn response(self, refusal: &Refusal) -> Response<Body> {
        let mut response = Response::new(Body::from(self.body(refusal).to_string()));
        *response.status_mut() = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = refusal.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after.as_secs().max(1)));
        }
        response
    }
}

/// Why the gateway gives no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
}

impl Refusal {
    /// Sending it again can help.
    pub(super) fn unavailable(code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status: 503,
            code,
            message: message.into(),
            retry_after: Some(Duration::from_secs(1)),
        }
    }

    /// The request is not as it should be.
    pub(super) fn bad(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: message.into(),
            retry_after: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_is_told_in_its_own_grammar() {
        let refusal = Refusal::unavailable("replica_lost", "gone");
        let said = |path: &str| String::from_utf8(Grammar::of(path).event(&refusal).to_vec()).unwrap();
        let openai = said("/v1/chat/completions");
        assert!(openai.contains(r#"data: {"error":{"message":"gone""#) && openai.ends_with("data: [DONE]\n\n"));
        assert!(
            said("/v1/messages")
                .contains("event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"")
        );
        assert!(said("/v1/responses").contains(r#"data: {"type":"error","code":"replica_lost","message":"gone""#));
        let response = Grammar::OpenAi.response(&refusal);
        assert_eq!(
            (response.status().as_u16(), &response.headers()["retry-after"]),
            (503, &HeaderValue::from(1))
        );
    }
}
