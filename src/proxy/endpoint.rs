//! The inference endpoints: where each is found, whose it is, and how its errors look.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::routing::post;

use super::dialect::ErrorShape;
use super::error::ApiError;
use super::server::Answer;
use super::{Inner, body, chat, completions, messages, responses};

/// What answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Endpoint {
    Chat,
    Completions,
    Messages,
    CountTokens,
    Responses,
}

const ALL: [(&str, Endpoint); 5] = [
    ("/chat/completions", Endpoint::Chat),
    ("/completions", Endpoint::Completions),
    ("/messages", Endpoint::Messages),
    ("/messages/count_tokens", Endpoint::CountTokens),
    ("/responses", Endpoint::Responses),
];

/// The routes by which clients find the endpoints, for who looked for another.
pub(super) fn names() -> String {
    let names: Vec<String> = ALL
        .iter()
        .map(|(path, _)| format!("POST {}{path}", PREFIXES[0]))
        .collect();
    names.join(", ")
}

/// Clients whose base URL already ends in /v1 double it.
pub(super) const PREFIXES: [&str; 2] = ["/v1", "/v1/v1"];

/// Adds every endpoint under every name that clients find it by.
pub(super) fn routes(mut router: Router<Arc<Inner>>) -> Router<Arc<Inner>> {
    for prefix in PREFIXES {
        for (path, endpoint) in ALL {
            let by_token = move |State(inner): State<Arc<Inner>>, request: Request| async move {
                endpoint.answer(&inner, None, request).await
            };
            let by_session = move |State(inner): State<Arc<Inner>>, Path(key): Path<String>, request: Request| async move {
                endpoint.answer(&inner, Some(&key), request).await
            };
            router = router
                .route(&format!("{prefix}{path}"), post(by_token))
                .route(&format!("/sess/{{session}}{prefix}{path}"), post(by_session));
        }
    }
    router
}

impl Endpoint {
    /// Its name in the metrics.
    fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Messages => "messages",
            Self::CountTokens => "count_tokens",
            Self::Responses => "responses",
        }
    }

    fn errors(self) -> ErrorShape {
        match self {
            Self::Chat | Self::Completions => ErrorShape::OpenAi,
            Self::Messages | Self::CountTokens => ErrorShape::Anthropic,
            Self::Responses => ErrorShape::Responses,
        }
    }

    async fn answer(self, inner: &Arc<Inner>, named: Option<&str>, request: Request) -> Answer {
        let answered = self.answered(inner, named, request).await;
        let answer = answered.unwrap_or_else(|error| self.errors().response(&error));
        inner.metrics.count_response(self.name(), answer.status().as_u16());
        answer
    }

    async fn answered(self, inner: &Arc<Inner>, named: Option<&str>, request: Request) -> Result<Answer, ApiError> {
        let caller = inner.caller(named, request.headers())?;
        if inner.draining.load(Ordering::Acquire) {
            return Err(ApiError::draining());
        }
        let body = body::read(&inner.room, request).await?;
        match self {
            Self::Chat => chat::serve(&caller, body).await,
            Self::Completions => completions::serve(&caller, body).await,
            Self::Messages => messages::serve(&caller, body).await,
            Self::CountTokens => messages::count_tokens(caller.proxy(), body).await,
            Self::Responses => responses::serve(&caller, body).await,
        }
    }
}
