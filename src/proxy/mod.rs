//! One API in front of the policy; tokens are recorded where they are sampled.
//!
//! An agent talks OpenAI's Chat Completions here; the engine is spoken to in tokens only. Each dialect has a
//! folder of its own (`chat`), which reads requests into `ModelRequest` and writes what a `Viewer` sees;
//! sessions, prompts, generations and capture know no dialect. Nothing here re-tokenises what was sampled.

mod call_log;
mod chat;
mod error;
mod flight;
mod generate;
mod metrics;
mod options;
mod prepare;
mod recording;
mod recover;
mod sample;
mod server;
mod session;
#[cfg(test)]
mod tests;
mod turns;

pub use error::ProxyError;
pub use options::{ProxyOptions, SamplingPolicy, SessionCapture, SessionOptions, SessionTicket};
pub use recover::{RecoveredSession, recover};

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, RwLock};

use error::ApiError;
use metrics::Metrics;
use session::Session;

use crate::trajectory::SessionKey;

/// Sessions that are remembered as closed, so that a late call is told so.
const REMEMBERED: usize = 4096;

/// The proxy. Cheap to clone.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    options: Arc<ProxyOptions>,
    sessions: RwLock<Sessions>,
    metrics: Metrics,
}

#[derive(Default)]
struct Sessions {
    by_key: HashMap<String, Arc<Session>>,
    keys_by_token: HashMap<String, String>,
    /// Keys and tokens of closed sessions, the oldest first.
    closed: VecDeque<[String; 2]>,
}

impl Proxy {
    /// A proxy without sessions; it listens once `serve` runs.
    pub fn new(options: ProxyOptions) -> Self {
        Self(Arc::new(Inner {
            options: Arc::new(options),
            sessions: RwLock::default(),
            metrics: Metrics::default(),
        }))
    }

    /// Its routes, for servers of one's own.
    pub fn router(&self) -> axum::Router {
        server::router(Arc::clone(&self.0))
    }

    /// Opens a session. Needs a tokio runtime where it has a call log.
    pub fn open_session(&self, options: SessionOptions) -> Result<SessionTicket, ProxyError> {
        let session = Session::open(Arc::clone(&self.0.options), options)?;
        let base = self.0.options.base_url.trim_end_matches('/');
        let ticket = SessionTicket {
            url: format!("{base}/sess/{}", session.key),
            key: session.key.clone(),
            token: session.token.clone(),
        };
        let mut sessions = self.0.sessions.write().unwrap_or_else(PoisonError::into_inner);
        sessions
            .keys_by_token
            .insert(ticket.token.clone(), ticket.key.0.clone());
        sessions.by_key.insert(ticket.key.0.clone(), session);
        self.0.metrics.sessions_opened.fetch_add(1, Ordering::Relaxed);
        Ok(ticket)
    }

    /// Closes a session: its running generations are aborted, later calls are refused for good, and what it
    /// recorded is handed out.
    pub async fn close_session(&self, key: &SessionKey) -> Result<SessionCapture, ProxyError> {
        let session = {
            let mut sessions = self.0.sessions.write().unwrap_or_else(PoisonError::into_inner);
            let session = sessions
                .by_key
                .remove(&key.0)
                .ok_or_else(|| ProxyError::UnknownSession(key.clone()))?;
            sessions.keys_by_token.remove(&session.token);
            sessions.closed.push_back([key.0.clone(), session.token.clone()]);
            if sessions.closed.len() > REMEMBERED {
                sessions.closed.pop_front();
            }
            session
        };
        let capture = session.close().await?;
        let metrics = &self.0.metrics;
        metrics.sessions_closed.fetch_add(1, Ordering::Relaxed);
        metrics
            .sampled_tokens
            .fetch_add(capture.audit.sampled_tokens, Ordering::Relaxed);
        metrics
            .sampling_overrides
            .fetch_add(u64::from(capture.n_sampling_overrides), Ordering::Relaxed);
        Ok(capture)
    }

    /// Ends every session's generations; the sessions stay until they are closed.
    fn cancel_all(&self) {
        let sessions = self.0.sessions.read().unwrap_or_else(PoisonError::into_inner);
        for session in sessions.by_key.values() {
            session.closed.cancel();
        }
    }
}

impl Inner {
    fn session(&self, key: &str) -> Result<Arc<Session>, ApiError> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        match sessions.by_key.get(key) {
            Some(session) => Ok(Arc::clone(session)),
            None if sessions.closed.iter().any(|[closed, _]| closed == key) => Err(ApiError::closed()),
            None => Err(ApiError::unauthorized()),
        }
    }

    fn session_of_token(&self, token: &str) -> Option<Result<Arc<Session>, ApiError>> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions
            .keys_by_token
            .get(token)
            .and_then(|key| sessions.by_key.get(key))
        {
            return Some(Ok(Arc::clone(session)));
        }
        sessions
            .closed
            .iter()
            .any(|[_, closed]| closed == token)
            .then(|| Err(ApiError::closed()))
    }
}
