//! One API in front of the policy; tokens are recorded where they are sampled.
//!
//! An agent talks OpenAI's or Anthropic's APIs here; the engine is spoken to in tokens only (`sample`), and a hosted
//! API, which has none to give, in messages (`hosted`). Each dialect has
//! a room of its own (`chat`, `messages`, `responses`, `completions`), which reads requests into
//! `ModelRequest` and writes what a `Viewer` sees; what they share is in `dialect`. Sessions, prompts,
//! generations and capture know no dialect. Nothing here re-tokenises what was sampled.

mod admin;
mod body;
mod call_log;
mod caller;
mod chat;
mod completions;
mod dialect;
mod endpoint;
mod error;
mod finish;
mod flight;
mod generate;
mod hosted;
mod messages;
mod metrics;
mod options;
mod plausible;
mod prepare;
mod recording;
mod recover;
mod replay;
mod responses;
mod sample;
mod server;
mod session;
mod stop_text;
#[cfg(test)]
mod tests;
mod tool_alarm;
mod turns;

pub use admin::{Admin, FinishedSession, OnFinish};
pub use error::ProxyError;
pub use options::{PolicySource, ProxyOptions, SamplingPolicy, SessionCapture, SessionOptions, SessionTicket, Source};
pub use recover::{RecoveredSession, recover, recover_all};
pub use replay::{Replay, ReplayChange, replay};

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use error::ApiError;
use metrics::{Gauges, Metrics};
use session::Session;
use tool_alarm::ToolAlarm;

use crate::trajectory::SessionKey;

/// Sessions that are remembered as closed, so that a late call is told so.
const REMEMBERED: usize = 4096;

/// The proxy. Cheap to clone.
#[derive(Clone)]
pub struct Proxy(Arc<Inner>);

struct Inner {
    options: Arc<ProxyOptions>,
    sessions: RwLock<Sessions>,
    metrics: Arc<Metrics>,
    tool_alarm: ToolAlarm,
    finishes: finish::Finishes,
    /// Whether no more calls are taken.
    draining: AtomicBool,
    /// For all bodies of requests together.
    room: Arc<body::Room>,
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
            room: body::Room::new(options.body_room, options.client_patience),
            options: Arc::new(options),
            sessions: RwLock::default(),
            metrics: Arc::default(),
            tool_alarm: ToolAlarm::default(),
            finishes: finish::Finishes::default(),
            draining: AtomicBool::new(false),
        }))
    }

    /// Its routes, for servers of one's own.
    pub fn router(&self) -> axum::Router {
        server::router(Arc::clone(&self.0))
    }

    /// Opens a session. Needs a tokio runtime where it has a call log.
    pub fn open_session(&self, options: SessionOptions) -> Result<SessionTicket, ProxyError> {
        self.open_as(SessionKey::random(), options, false)
    }

    /// Opens a session under this name. An anonymous one asks nobody for its token.
    fn open_as(&self, key: SessionKey, options: SessionOptions, anonymous: bool) -> Result<SessionTicket, ProxyError> {
        let shared = (Arc::clone(&self.0.options), Arc::clone(&self.0.metrics));
        let base = self.0.options.base_url.trim_end_matches('/');
        let ticket_of = |session: &Session| SessionTicket {
            url: format!("{base}/sess/{}", session.key),
            key: session.key.clone(),
            token: session.token.clone(),
        };
        let mut sessions = self.0.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = sessions.by_key.get(&key.0) {
            // Two clients began the same anonymous session at once: the first one's is both of theirs.
            return Ok(ticket_of(open));
        }
        // Under the lock: whoever sees the log of a name also sees whether it is this process's.
        let session = Session::open(key, shared, options, anonymous)?;
        let ticket = ticket_of(&session);
        sessions
            .keys_by_token
            .insert(ticket.token.clone(), ticket.key.0.clone());
        sessions.by_key.insert(ticket.key.0.clone(), session);
        self.0.metrics.sessions_opened.fetch_add(1, Ordering::Relaxed);
        Ok(ticket)
    }

    /// Sessions that are open.
    pub fn open_sessions(&self) -> usize {
        self.0
            .sessions
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .by_key
            .len()
    }

    /// Fires once a call of the session was refused for good: its turn cap is reached, or its agent stopped calling
    /// tools. `None` for a session that is not open.
    pub fn no_more_calls(&self, key: &SessionKey) -> Option<CancellationToken> {
        let sessions = self.0.sessions.read().unwrap_or_else(PoisonError::into_inner);
        Some(sessions.by_key.get(&key.0)?.no_more_calls.clone())
    }

    /// Closes a session: its running generations are aborted, later calls are refused for good, and what it
    /// recorded is handed out.
    pub async fn close_session(&self, key: &SessionKey) -> Result<SessionCapture, ProxyError> {
        let session = self
            .retire(key)
            .ok_or_else(|| ProxyError::UnknownSession(key.clone()))?;
        self.close(&session).await
    }

    /// Has calls of a session refused for good from now on; `None` where it is not open.
    fn retire(&self, key: &SessionKey) -> Option<Arc<Session>> {
        let mut sessions = self.0.sessions.write().unwrap_or_else(PoisonError::into_inner);
        let session = sessions.by_key.remove(&key.0)?;
        sessions.keys_by_token.remove(&session.token);
        sessions.closed.push_back([key.0.clone(), session.token.clone()]);
        if sessions.closed.len() > REMEMBERED {
            sessions.closed.pop_front();
        }
        Some(session)
    }

    /// Ends what runs in a session that was retired, and hands out what it recorded. May be tried again.
    async fn close(&self, session: &Session) -> Result<SessionCapture, ProxyError> {
        let capture = session.close().await;
        if let Some(policy) = session.proxy.policy() {
            policy.engine.end_session(&session.key);
        }
        let capture = capture?;
        let audit = &capture.audit;
        let alarm = &self.0.tool_alarm;
        if let Some(told) = alarm.add(capture.answers_with_tools, audit.num_tool_calls, audit.num_parse_errors) {
            tracing::warn!("{told}");
        }
        let metrics = &self.0.metrics;
        metrics.sessions_closed.fetch_add(1, Ordering::Relaxed);
        metrics
            .sampling_overrides
            .fetch_add(u64::from(capture.n_sampling_overrides), Ordering::Relaxed);
        Ok(capture)
    }

    /// Refuses new calls and waits until those that run have ended, at most this long. Sessions stay.
    pub async fn drain(&self, patience: Duration) {
        self.0.draining.store(true, Ordering::Release);
        let sessions: Vec<Arc<Session>> = {
            let sessions = self.0.sessions.read().unwrap_or_else(PoisonError::into_inner);
            sessions.by_key.values().cloned().collect()
        };
        let idle = async {
            for session in &sessions {
                session.idle().await;
            }
        };
        if tokio::time::timeout(patience, idle).await.is_err() {
            tracing::warn!("calls still run after {patience:?}; they are aborted");
        }
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
    fn gauges(&self) -> Gauges {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        Gauges {
            sessions_open: sessions.by_key.len(),
            generations: sessions.by_key.values().map(|session| session.running()).sum(),
            engine: self.options.policy().map(|policy| policy.engine.load()),
            balanced: self.options.policy().and_then(|policy| policy.engine.balanced()),
            body_bytes: self.room.taken(),
        }
    }

    fn session(&self, key: &str) -> Result<Arc<Session>, ApiError> {
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        match sessions.by_key.get(key) {
            Some(session) => Ok(Arc::clone(session)),
            None if sessions.closed.iter().any(|[closed, _]| closed == key) => Err(ApiError::closed()),
            None if self.recorded_before(key) => Err(ApiError::recorded_before(key)),
            None => Err(ApiError::unauthorized()),
        }
    }

    /// Whether a client that names its own session names one of an earlier process.
    fn recorded_before(&self, key: &str) -> bool {
        self.anonymous().is_some_and(|admin| admin.has_recorded(key))
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
