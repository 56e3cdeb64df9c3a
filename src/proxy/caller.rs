//! Who makes a request: a session, by its URL or its key; or somebody without one, where those are served.
//!
//! A session of who brings none is opened when there is a request to record, and not before: what only counts tokens, or
//! is refused, leaves nothing behind.

use std::sync::{Arc, PoisonError};

use axum::http::HeaderMap;

use super::error::ApiError;
use super::server::{same_secret, tokens};
use super::session::Session;
use super::{Admin, Inner, Proxy, ProxyOptions};
use crate::trajectory::SessionKey;

/// Sessions that may be open before anonymous clients are given no more.
const MOST_OPEN: usize = 4096;

/// Who makes a request.
pub(super) struct Caller<'a> {
    inner: &'a Arc<Inner>,
    whose: Whose,
}

enum Whose {
    Session(Arc<Session>),
    /// The name of the session to open.
    Anonymous(String),
}

impl Caller<'_> {
    pub(super) fn proxy(&self) -> &Arc<ProxyOptions> {
        &self.inner.options
    }

    /// Its session, where that is open already.
    pub(super) fn known_session(&self) -> Option<&Arc<Session>> {
        match &self.whose {
            Whose::Session(session) => Some(session),
            Whose::Anonymous(_) => None,
        }
    }

    /// Its session, which is opened where there is none yet.
    pub(super) fn session(&self) -> Result<Arc<Session>, ApiError> {
        match &self.whose {
            Whose::Session(session) => Ok(Arc::clone(session)),
            Whose::Anonymous(name) => self.inner.open_anonymous(name),
        }
    }
}

impl Inner {
    /// Who shows these headers, under the session that the URL names, if it names one.
    pub(super) fn caller<'a>(
        self: &'a Arc<Self>,
        named: Option<&str>,
        headers: &HeaderMap,
    ) -> Result<Caller<'a>, ApiError> {
        let whose = match named {
            Some(name) => self.of_name(name, headers),
            None => self.of_tokens(headers),
        };
        Ok(Caller {
            inner: self,
            whose: whose?,
        })
    }

    /// The session that a URL names; its own token must come along, unless it is an anonymous one.
    fn of_name(&self, name: &str, headers: &HeaderMap) -> Result<Whose, ApiError> {
        match self.session(name) {
            Ok(session) if session.anonymous || tokens(headers).any(|token| same_secret(token, &session.token)) => {
                Ok(Whose::Session(session))
            }
            Ok(_) => Err(ApiError::unauthorized()),
            Err(error) if error.status == 401 && self.anonymous().is_some() => {
                if is_name(name) {
                    Ok(Whose::Anonymous(name.to_owned()))
                } else {
                    Err(ApiError::session_name(name))
                }
            }
            Err(error) => Err(error),
        }
    }

    /// The session that a token belongs to.
    fn of_tokens(&self, headers: &HeaderMap) -> Result<Whose, ApiError> {
        match tokens(headers).find_map(|token| self.session_of_token(token)) {
            Some(found) => Ok(Whose::Session(found?)),
            None if self.anonymous().is_some() => Ok(Whose::Anonymous(SessionKey::random().0)),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// Who runs a proxy that serves clients without a session.
    pub(super) fn anonymous(&self) -> Option<&Admin> {
        self.options.admin.as_ref().filter(|admin| admin.anonymous)
    }

    fn open_anonymous(self: &Arc<Self>, name: &str) -> Result<Arc<Session>, ApiError> {
        let admin = self.anonymous().ok_or_else(ApiError::unauthorized)?;
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let open = sessions.by_key.len();
        drop(sessions);
        if open >= MOST_OPEN {
            let message = format!("{open} sessions are open; finish some first.");
            return Err(ApiError::unavailable(message, None));
        }
        let key = SessionKey(name.to_owned());
        let options = admin.session_options(&key, name, 0);
        Proxy(Arc::clone(self))
            .open_as(key, options, true)
            .map_err(|error| ApiError::internal(error.to_string()))?;
        self.session(name)
    }
}

/// What may name a session, and with it a file.
fn is_name(name: &str) -> bool {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.bytes().all(known)
}
