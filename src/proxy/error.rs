//! Failures of the proxy itself, and refusals as its clients see them.

use std::path::PathBuf;
use std::time::Duration;

use crate::inference::{EngineError, HostedError};
use crate::trajectory::SessionKey;
use crate::trajectory::forest::ForestError;

/// A failure towards whoever runs the proxy.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// There is no such session, or it was closed before.
    #[error("no open session `{0}`")]
    UnknownSession(SessionKey),
    /// The call log could not be written.
    #[error("call log `{}` could not be written: {source}", path.display())]
    CallLog {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The call log could not be read.
    #[error("call log `{}`, line {line}: {reason}", path.display())]
    BadCallLog {
        /// The file.
        path: PathBuf,
        /// Counted from 1; 0 where the file could not be read at all.
        line: usize,
        /// What was expected and what was found.
        reason: String,
    },
    /// A call contradicts itself.
    #[error(transparent)]
    Forest(#[from] ForestError),
}

/// A refusal or failure towards a client, in no dialect yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) code: Option<&'static str>,
    /// The field at fault.
    pub(super) param: Option<String>,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    /// Whether sending the same again can help.
    pub(super) retryable: bool,
    /// Set where the prompt is too long.
    pub(super) overflow: Option<Box<Overflow>>,
}

/// A prompt and the window that it does not fit, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overflow {
    pub(super) window: usize,
    pub(super) prompt: usize,
}

impl ApiError {
    fn new(status: u16, kind: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            status,
            kind,
            code: None,
            param: None,
            message,
            retry_after: None,
            retryable: false,
            overflow: None,
        }
    }

    /// A field that is not what it should be.
    pub(super) fn field(param: impl Into<String>, problem: &str) -> Self {
        let param = param.into();
        let message = format!("{param}: {problem}");
        Self {
            param: Some(param),
            ..Self::new(400, "invalid_request_error", message)
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "invalid_request_error", message)
    }

    /// The text by which agents recognise that they must compact.
    pub(super) fn context_length(window: usize, prompt: usize) -> Self {
        Self {
            code: Some("context_length_exceeded"),
            param: Some("messages".to_owned()),
            overflow: Some(Box::new(Overflow { window, prompt })),
            ..Self::bad_request(format!(
                "This model's maximum context length is {window} tokens. However, your messages resulted in {prompt} \
                 tokens. Please reduce the length of the messages."
            ))
        }
    }

    pub(super) fn unauthorized() -> Self {
        let message = "Incorrect API key provided: no session has this key.";
        Self {
            code: Some("invalid_api_key"),
            ..Self::new(401, "authentication_error", message)
        }
    }

    /// A route of who runs the proxy.
    pub(super) fn not_admin() -> Self {
        Self {
            message: "This route takes the admin token alone, as a Bearer token or x-api-key.".to_owned(),
            ..Self::unauthorized()
        }
    }

    pub(super) fn closed() -> Self {
        Self {
            code: Some("session_closed"),
            ..Self::new(410, "invalid_request_error", "This session has ended.")
        }
    }

    /// A name that is another session's in the folder of call logs.
    pub(super) fn recorded_before(key: &str) -> Self {
        Self {
            message: format!("A session `{key}` was recorded in this folder before: take another name."),
            ..Self::closed()
        }
    }

    pub(super) fn draining() -> Self {
        Self::unavailable("The proxy is shutting down.", None)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self {
            code: Some("not_found"),
            ..Self::new(404, "invalid_request_error", message)
        }
    }

    pub(super) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "invalid_request_error",
            format!("The body is larger than {} MiB.", limit >> 20),
        )
    }

    pub(super) fn slow_body(patience: Duration) -> Self {
        let message = format!("Nothing more of the body came within {} s.", patience.as_secs());
        Self::new(408, "invalid_request_error", message)
    }

    /// Bodies of others take all the room there is.
    pub(super) fn no_room(bytes: usize) -> Self {
        let message = format!(
            "The requests that are being read take all of {} MiB: send it again.",
            bytes >> 20
        );
        Self::unavailable(message, Some(Duration::from_secs(2)))
    }

    /// A name that anonymous clients cannot take.
    pub(super) fn session_name(name: &str) -> Self {
        let shown: String = name.chars().take(80).collect();
        Self::bad_request(format!(
            "`{shown}` cannot name a session: expected at most 64 letters, digits, `-`, `_` and `.`, not beginning with `.`."
        ))
    }

    pub(super) fn encoding(name: &str) -> Self {
        let message = format!("Content-Encoding `{name}` is not supported; zstd, gzip and deflate are.");
        Self::new(415, "invalid_request_error", message)
    }

    pub(super) fn messages_only() -> Self {
        Self::bad_request(
            "Only messages are taken here: the proxy is in front of a hosted API, which continues no text. Use \
             /v1/chat/completions.",
        )
    }

    pub(super) fn preempted() -> Self {
        let message = "A newer attempt of the same request took this one's place.";
        Self {
            code: Some("preempted"),
            ..Self::new(409, "conflict_error", message)
        }
    }

    pub(super) fn turn_cap(cap: u32) -> Self {
        let message = format!("This session may make {cap} model calls, and has made them.");
        Self {
            code: Some("turn_cap"),
            ..Self::new(429, "rate_limit_error", message)
        }
    }

    pub(super) fn no_tool_calls(limit: u32) -> Self {
        let message = format!("The last {limit} answers of this conversation called no tool: it has ended.");
        Self {
            code: Some("no_tool_calls"),
            ..Self::new(429, "rate_limit_error", message)
        }
    }

    pub(super) fn unavailable(message: impl Into<String>, retry_after: Option<Duration>) -> Self {
        let retry_after = retry_after.or(Some(Duration::from_secs(1)));
        Self {
            retry_after,
            retryable: true,
            ..Self::new(503, "server_error", message)
        }
    }

    pub(super) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "server_error", message)
    }
}

impl From<HostedError> for ApiError {
    /// What it says keeps its status. That the key is wrong, or the model's name, is our own doing and not the agent's.
    fn from(error: HostedError) -> Self {
        let text = error.to_string();
        let (status, retry_after, too_long) = match error {
            HostedError::Lost(error) => return error.into(),
            HostedError::Status {
                status,
                retry_after,
                too_long,
                ..
            } => (status, retry_after, too_long),
        };
        let ours = |code, kind, hint: &str| Self {
            code: Some(code),
            ..Self::new(status, kind, format!("{text} ({hint})"))
        };
        match status {
            401 => ours(
                "invalid_api_key",
                "authentication_error",
                "the key is the proxy's own, which `engine.api_key_env` names",
            ),
            403 => ours("permission_denied", "permission_error", "the key is the proxy's own"),
            404 => ours(
                "model_not_found",
                "invalid_request_error",
                "the model is named by `engine.served_model`, the address by `engine.endpoints`",
            ),
            400 if too_long => Self {
                code: Some("context_length_exceeded"),
                param: Some("messages".to_owned()),
                overflow: overflow_in(&text),
                ..Self::bad_request(text)
            },
            400 | 413 | 422 => Self {
                status,
                ..Self::bad_request(text)
            },
            429 => Self {
                retryable: true,
                retry_after,
                code: Some("rate_limit_exceeded"),
                ..Self::new(429, "rate_limit_error", text)
            },
            408 | 500.. => Self {
                status: if status == 408 { 503 } else { status },
                retry_after: retry_after.or(Some(Duration::from_secs(1))),
                ..Self::unavailable(text, None)
            },
            _ => Self::internal(text),
        }
    }
}

/// The window and the prompt that a refusal tells of, in this order.
fn overflow_in(text: &str) -> Option<Box<Overflow>> {
    let (_, said) = text.split_once("maximum context length")?;
    let mut numbers = said
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok());
    let (window, prompt) = (numbers.next()?, numbers.next()?);
    Some(Box::new(Overflow { window, prompt }))
}

impl From<EngineError> for ApiError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Window { prompt, window } => Self::context_length(window, prompt),
            EngineError::Invalid(message) => Self::bad_request(message),
            EngineError::Unavailable { reason, retry_after } => {
                Self::unavailable(format!("The engine is unavailable: {reason}"), retry_after)
            }
            error @ EngineError::Recording { .. } => Self::internal(error.to_string()),
            error @ (EngineError::Rejected(_) | EngineError::Weights { .. }) => {
                Self::unavailable(error.to_string(), None)
            }
        }
    }
}
