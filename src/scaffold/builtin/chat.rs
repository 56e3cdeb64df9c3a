//! The model endpoint: one Chat Completions call, tried again while the failure is not the agent's.

use std::time::Duration;

use reqwest::StatusCode;
use reqwest::header::RETRY_AFTER;
use serde_json::Value;

use super::BuiltinLimits;
use crate::scaffold::ScaffoldError;

/// The server's `Retry-After` is followed up to here.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);

/// Calls one session's endpoint.
pub(super) struct ChatClient {
    http: reqwest::Client,
    url: String,
    token: String,
    limits: BuiltinLimits,
}

/// One answer of the model.
#[derive(Debug)]
pub(super) struct ChatAnswer {
    /// The assistant message as it came, to be sent back unchanged.
    pub(super) message: Value,
    /// Its tool calls.
    pub(super) tool_calls: Vec<ToolCall>,
    /// Whether the token budget or the window cut it.
    pub(super) cut: bool,
}

/// One tool call of an answer.
#[derive(Debug, PartialEq)]
pub(super) struct ToolCall {
    pub(super) id: String,
    pub(super) name: String,
    /// As sent: by the protocol JSON in a text.
    pub(super) arguments: Value,
}

/// Why there is no answer.
#[derive(Debug, PartialEq)]
pub(super) enum ChatFailure {
    /// The conversation does not fit into the window any more.
    Overlong,
    /// The session's own turn cap.
    TurnCap,
    /// Not the agent's doing.
    Endpoint(String),
}

/// What one attempt says about the next.
enum Attempt {
    Final(ChatFailure),
    Again { reason: String, pause: Option<Duration> },
}

impl ChatClient {
    pub(super) fn new(session_url: &str, token: &str, limits: BuiltinLimits) -> Result<Self, ScaffoldError> {
        let http = crate::http_client::plain()
            .connect_timeout(CONNECT)
            .build()
            .map_err(|error| ScaffoldError::Setup {
                agent: "builtin".to_owned(),
                reason: format!("no HTTP client: {error}"),
            })?;
        let url = format!("{}/v1/chat/completions", session_url.trim_end_matches('/'));
        Ok(Self {
            http,
            url,
            token: token.to_owned(),
            limits,
        })
    }

    /// Asks for one answer. The caller bounds the time.
    pub(super) async fn complete(&self, request: &Value) -> Result<ChatAnswer, ChatFailure> {
        let mut backoff = self.limits.model_backoff;
        let mut attempt = 1;
        loop {
            match self.attempt(request).await {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Final(failure)) => return Err(failure),
                Err(Attempt::Again { reason, .. }) if attempt >= self.limits.model_attempts => {
                    return Err(ChatFailure::Endpoint(format!(
                        "{reason} ({attempt} tries of {})",
                        self.url
                    )));
                }
                Err(Attempt::Again { reason, pause }) => {
                    tracing::debug!(url = self.url, attempt, reason, "model call failed, trying again");
                    tokio::time::sleep(pause.unwrap_or(backoff).min(LONGEST_PAUSE)).await;
                    backoff *= 2;
                    attempt += 1;
                }
            }
        }
    }

    async fn attempt(&self, request: &Value) -> Result<ChatAnswer, Attempt> {
        let again = |error: reqwest::Error| Attempt::Again {
            reason: chain(&error),
            pause: None,
        };
        let sent = self.http.post(&self.url).bearer_auth(&self.token).json(request).send();
        let response = sent.await.map_err(again)?;
        let status = response.status();
        let pause = response
            .headers()
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok()?.parse().ok())
            .map(Duration::from_secs);
        let body = response.text().await.map_err(again)?;
        if status.is_success() {
            read_answer(&body).map_err(|reason| Attempt::Again { reason, pause: None })
        } else {
            Err(read_error(status, &body, pause))
        }
    }
}

/// An error and its causes, since the first line alone does not say what failed.
fn chain(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn read_answer(body: &str) -> Result<ChatAnswer, String> {
    let mut answer: Value = serde_json::from_str(body).map_err(|error| format!("the answer is not JSON: {error}"))?;
    let choice = answer
        .pointer_mut("/choices/0")
        .ok_or("the answer has no choices[0]")?
        .take();
    let cut = choice.get("finish_reason").and_then(Value::as_str) == Some("length");
    let message = choice.get("message").filter(|message| message.is_object());
    let message = message.ok_or("the answer has no choices[0].message")?.clone();
    let calls = message
        .get("tool_calls")
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let tool_calls = calls.iter().map(read_call).collect();
    Ok(ChatAnswer {
        message,
        tool_calls,
        cut,
    })
}

fn read_call(call: &Value) -> ToolCall {
    let text = |pointer: &str| {
        call.pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    ToolCall {
        id: text("/id"),
        name: text("/function/name"),
        arguments: call.pointer("/function/arguments").cloned().unwrap_or_default(),
    }
}

/// Sorts a refusal. The error body is OpenAI's: `{"error": {"message", "type", "code"}}`.
fn read_error(status: StatusCode, body: &str, pause: Option<Duration>) -> Attempt {
    let parsed: Option<Value> = serde_json::from_str(body).ok();
    let field = |name: &str| {
        parsed
            .as_ref()
            .and_then(|body| body.pointer(&format!("/error/{name}"))?.as_str())
    };
    let code = field("code").or_else(|| field("type")).unwrap_or_default();
    let message = field("message").unwrap_or(body);
    let reason = format!("{status}: {message}");
    match (status, code) {
        (_, "context_length_exceeded") => Attempt::Final(ChatFailure::Overlong),
        (_, "turn_cap") => Attempt::Final(ChatFailure::TurnCap),
        (StatusCode::REQUEST_TIMEOUT | StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS, _) => {
            Attempt::Again { reason, pause }
        }
        (status, _) if status.is_server_error() => Attempt::Again { reason, pause },
        _ => Attempt::Final(ChatFailure::Endpoint(reason)),
    }
}
