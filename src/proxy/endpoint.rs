//! The inference endpoints: where each is found, whose it is, and how its errors look.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::routing::post;

use super::dialect::ErrorShape;
use super::error::ApiError;
use super::server::{Answer, same_secret, tokens};
use super::session::Session;
use super::{Inner, Proxy, body, chat, completions, messages, responses};
use crate::trajectory::SessionKey;

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

/// Sessions that may be open before anonymous clients are given no more.
const MOST_OPEN: usize = 4096;

/// Clients whose base URL already ends in /v1 double it.
pub(super) const PREFIXES: [&str; 2] = ["/v1", "/v1/v1"];

/// Adds every endpoint under every name that clients find it by.
pub(super) fn routes(mut router: Router<Arc<Inner>>) -> Router<Arc<Inner>> {
    for prefix in PREFIXES {
        for (path, endpoint) in ALL {
            let by_token = move |State(inner): State<Arc<Inner>>, request: Request| async move {
                let session = inner.session_by_tokens(tokens(request.headers()));
                endpoint.answer(&inner, session, request).await
            };
            let by_session = move |State(inner): State<Arc<Inner>>, Path(key): Path<String>, request: Request| async move {
                let session = inner.session_by_key(&key, tokens(request.headers()));
                endpoint.answer(&inner, session, request).await
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

    async fn answer(self, inner: &Inner, session: Result<Arc<Session>, ApiError>, request: Request) -> Answer {
        let answer = match session {
            Err(error) => self.errors().response(&error),
            Ok(_) if inner.draining.load(Ordering::Acquire) => self.errors().response(&ApiError::draining()),
            Ok(session) => match body::read(request).await {
                Err(error) => self.errors().response(&error),
                Ok(body) => match self {
                    Self::Chat => chat::serve(&session, &body).await,
                    Self::Completions => completions::serve(&session, &body).await,
                    Self::Messages => messages::serve(&session, &body).await,
                    Self::CountTokens => messages::count_tokens(&session, &body).await,
                    Self::Responses => responses::serve(&session, &body).await,
                },
            },
        };
        inner.metrics.count_response(self.name(), answer.status().as_u16());
        answer
    }
}

impl Inner {
    /// The session that a URL names; its own token must come along, unless it is an anonymous one.
    fn session_by_key<'a>(
        self: &Arc<Self>,
        key: &str,
        mut shown: impl Iterator<Item = &'a str>,
    ) -> Result<Arc<Session>, ApiError> {
        let session = match self.session(key) {
            Err(error) if error.status == 401 => self.anonymous(key).unwrap_or(Err(error))?,
            found => found?,
        };
        if session.anonymous || shown.any(|token| same_secret(token, &session.token)) {
            Ok(session)
        } else {
            Err(ApiError::unauthorized())
        }
    }

    /// The session that a token belongs to.
    fn session_by_tokens<'a>(
        self: &Arc<Self>,
        mut shown: impl Iterator<Item = &'a str>,
    ) -> Result<Arc<Session>, ApiError> {
        shown
            .find_map(|token| self.session_of_token(token))
            .or_else(|| self.anonymous(&SessionKey::random().0))
            .unwrap_or_else(|| Err(ApiError::unauthorized()))
    }

    /// A session for who brings none, under the name that the URL has for it; `None` where there are none such.
    fn anonymous(self: &Arc<Self>, name: &str) -> Option<Result<Arc<Session>, ApiError>> {
        let admin = self.options.admin.as_ref().filter(|admin| admin.anonymous)?;
        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > 64 || name.starts_with('.') || !name.bytes().all(known) {
            return None;
        }
        let open = self
            .sessions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_key
            .len();
        if open >= MOST_OPEN {
            let message = format!("{open} sessions are open; finish some first.");
            return Some(Err(ApiError::unavailable(message, None)));
        }
        let key = SessionKey(name.to_owned());
        let options = admin.session_options(&key, name, 0);
        let opened = Proxy(Arc::clone(self)).open_as(key, options, true);
        Some(match opened {
            Ok(_) => self.session(name),
            Err(error) => Err(ApiError::internal(error.to_string())),
        })
    }
}
