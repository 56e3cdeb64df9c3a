//! What whoever runs the proxy may do over HTTP: open, list, look into and finish sessions.
//!
//! These routes exist only where a proxy has an `Admin`, and answer only to its token; agents never hold it.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::dialect::{ErrorShape, fields, json_response};
use super::error::ApiError;
use super::server::{Answer, same_secret, tokens};
use super::session::Session;
use super::{Inner, Proxy, ProxyError, SessionCapture, SessionOptions, SessionTicket, body};
use crate::trajectory::{Segment, SessionKey};

/// Makes durable what a finished session recorded; why it could not is told to who finished it, who may try again.
pub type OnFinish = Arc<dyn Fn(&FinishedSession) -> Result<(), String> + Send + Sync>;

/// Makes a proxy one that is run by hand.
#[derive(Clone)]
pub struct Admin {
    /// Opens the admin routes; an empty one opens nothing.
    pub token: String,
    /// Takes finished sessions.
    pub on_finish: OnFinish,
    /// Folder for the call logs of sessions that are opened over HTTP.
    pub call_logs: Option<PathBuf>,
    /// Whether a client that names no session, or one that there is not, is given one.
    pub anonymous: bool,
    /// Model calls of such a session at most.
    pub turn_cap: Option<u32>,
    /// With a session's name, what makes its sampling repeatable.
    pub seed: u64,
}

/// A session that was finished over HTTP.
#[derive(Debug, Clone)]
pub struct FinishedSession {
    /// Its name.
    pub key: SessionKey,
    /// What it was opened with.
    pub options: SessionOptions,
    /// When.
    pub opened_at: Timestamp,
    /// When its last call was over.
    pub ended_at: Timestamp,
    /// What its work was worth, if anyone said.
    pub reward: Option<f32>,
    /// What it recorded.
    pub capture: SessionCapture,
}

impl Admin {
    /// Every session samples on its own; a named one the same again where the server's seed is the same.
    pub(super) fn seed_of(&self, key: &SessionKey) -> u64 {
        let digest = Sha256::digest(format!("{}/{key}", self.seed));
        u64::from_le_bytes(std::array::from_fn(|index| digest[index]))
    }

    fn call_log(&self, key: &str) -> Option<PathBuf> {
        Some(self.call_logs.as_ref()?.join(format!("{key}.jsonl")))
    }

    /// Whether an earlier process has recorded a session of this name in the folder.
    pub(super) fn has_recorded(&self, key: &str) -> bool {
        let mut parts = std::path::Path::new(key).components();
        let is_name = matches!(parts.next(), Some(std::path::Component::Normal(_))) && parts.next().is_none();
        let log = self.call_log(key).filter(|_| is_name);
        // One that is empty could not be begun.
        log.and_then(|log| log.metadata().ok())
            .is_some_and(|log| log.is_file() && log.len() > 0)
    }

    /// Options of a session opened over HTTP.
    pub(super) fn session_options(&self, key: &SessionKey, task_id: &str, episode_index: u32) -> SessionOptions {
        SessionOptions {
            task_id: task_id.to_owned(),
            episode_index,
            seed: self.seed_of(key),
            turn_cap: self.turn_cap,
            call_log: self.call_log(&key.0),
            ..SessionOptions::default()
        }
    }
}

impl Proxy {
    /// Opens a session as `POST /sess` does; its task is named as it is, where nobody names one.
    fn open_for(&self, admin: &Admin, task_id: Option<&str>, episode_index: u32) -> Result<SessionTicket, ProxyError> {
        let key = SessionKey::random();
        let options = admin.session_options(&key, task_id.unwrap_or(&key.0), episode_index);
        self.open_as(key, options, false)
    }

    /// Opens a session for who runs the proxy by hand; `None` where nobody does.
    pub fn open_by_hand(&self) -> Result<Option<SessionTicket>, ProxyError> {
        let admin = self.0.options.admin.as_ref();
        admin.map(|admin| self.open_for(admin, None, 0)).transpose()
    }

    /// Sessions that were finished over HTTP and could not be made durable.
    pub fn unwritten_sessions(&self) -> usize {
        self.0.finishes.unwritten()
    }

    /// Tries once more to make them durable; tells how many could not be within this time, and why.
    pub async fn write_unwritten(&self, patience: Duration) -> Option<(usize, String)> {
        let admin = self.0.options.admin.as_ref()?;
        super::finish::write_waiting(&self.0, admin, patience).await
    }
}

pub(super) fn routes(router: Router<Arc<Inner>>) -> Router<Arc<Inner>> {
    router
        .route("/sess", get(list).post(open))
        .route("/sess/{session}/trajectory", get(trajectory))
        .route("/sess/{session}/finish", post(finish))
}

/// The admin's powers, for who shows the token.
fn admin<'a>(inner: &'a Inner, request: &Request) -> Result<&'a Admin, ApiError> {
    let admin = inner.options.admin.as_ref();
    admin
        .filter(|admin| !admin.token.is_empty())
        .filter(|admin| tokens(request.headers()).any(|token| same_secret(token, &admin.token)))
        .ok_or_else(ApiError::not_admin)
}

fn answer(result: Result<Value, ApiError>) -> Answer {
    match result {
        Ok(body) => json_response(StatusCode::OK, &body),
        Err(error) => ErrorShape::OpenAi.response(&error),
    }
}

async fn list(State(inner): State<Arc<Inner>>, request: Request) -> Answer {
    answer(admin(&inner, &request).map(|_| {
        let sessions = inner.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let mut open: Vec<&Arc<Session>> = sessions.by_key.values().collect();
        open.sort_by_key(|session| session.opened_at);
        let rows: Vec<Value> = open
            .iter()
            .map(|session| {
                json!({
                    "session": session.key, "task_id": session.options.task_id,
                    "episode_index": session.options.episode_index,
                    "opened_at": session.opened_at, "calls": session.calls(),
                })
            })
            .collect();
        json!({ "sessions": rows })
    }))
}

/// The fields of a body, which may be empty. A misspelt one is refused: a reward that is not taken is lost.
fn only(body: &[u8], known: &[&str]) -> Result<Map<String, Value>, ApiError> {
    let fields = if body.is_empty() {
        Map::new()
    } else {
        fields::object(body)?
    };
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(ApiError::field(
            key,
            &format!("unknown field, expected one of: {}", known.join(", ")),
        )),
        None => Ok(fields),
    }
}

async fn open(State(inner): State<Arc<Inner>>, request: Request) -> Answer {
    let opened = async {
        let admin = admin(&inner, &request)?.clone();
        let body = body::read(&inner.room, request).await?.bytes;
        let fields = only(&body, &["task_id", "episode_index"])?;
        let task_id = match fields.get("task_id") {
            None => None,
            Some(Value::String(id)) => Some(id.as_str()),
            Some(other) => return Err(fields::expected("task_id", "a text", other)),
        };
        let episode = fields::whole(&fields, "episode_index")?.unwrap_or(0);
        let episode = u32::try_from(episode).map_err(|_| ApiError::field("episode_index", "expected at least 0"))?;
        let ticket = Proxy(Arc::clone(&inner))
            .open_for(&admin, task_id, episode)
            .map_err(|error| ApiError::internal(error.to_string()))?;
        Ok(json!({ "session": ticket.key, "token": ticket.token, "url": ticket.url }))
    };
    answer(opened.await)
}

async fn trajectory(State(inner): State<Arc<Inner>>, Path(key): Path<String>, request: Request) -> Answer {
    answer(admin(&inner, &request).and_then(|_| {
        let session = inner.session(&key).map_err(|_| no_session(&key))?;
        Ok(shown(&session.key, &session.snapshot()))
    }))
}

async fn finish(State(inner): State<Arc<Inner>>, Path(key): Path<String>, request: Request) -> Answer {
    let finished = async {
        let admin = admin(&inner, &request)?.clone();
        let body = body::read(&inner.room, request).await?.bytes;
        let fields = only(&body, &["reward"])?;
        // -0.0 is 0.
        let reward = fields::float(&fields, "reward")?.map(|reward| reward + 0.0);
        if reward.is_some_and(|reward| !reward.is_finite()) {
            return Err(ApiError::field("reward", "expected a finite number"));
        }
        // In a task of its own: who asks may go away in the middle.
        let ending = tokio::spawn(async move { super::finish::finish(&inner, &admin, &key, reward).await });
        ending
            .await
            .unwrap_or_else(|error| Err(ApiError::internal(error.to_string())))
    };
    answer(finished.await)
}

/// What is answered of a finished session.
pub(super) fn summary(finished: &FinishedSession) -> Value {
    let mut summary = shown(&finished.key, &finished.capture);
    if let Value::Object(summary) = &mut summary {
        summary.retain(|name, _| name != "segments" && name != "messages");
    }
    summary["segments"] = finished.capture.segments.len().into();
    summary["reward"] = finished.reward.into();
    summary
}

pub(super) fn no_session(key: &str) -> ApiError {
    ApiError::not_found(format!("There is no open session `{key}`."))
}

/// A capture as JSON.
fn shown(key: &SessionKey, capture: &SessionCapture) -> Value {
    let segments: Vec<Value> = capture.segments.iter().map(segment).collect();
    let messages: Value = serde_json::from_str(&capture.messages).unwrap_or_default();
    json!({
        "session": key,
        "segments": segments,
        "messages": messages,
        "ledger": capture.ledger,
        "num_calls": capture.audit.num_calls,
        "num_turns": capture.audit.num_turns,
        "num_parse_errors": capture.audit.num_parse_errors,
        "sampled_tokens": capture.audit.sampled_tokens,
        "delivered_fraction": capture.audit.delivered_fraction,
        "n_rewrites": capture.audit.n_rewrites,
        "n_discarded": capture.audit.n_discarded,
        "n_unresolved_retries": capture.audit.n_unresolved_retries,
    })
}

fn segment(segment: &Segment) -> Value {
    json!({
        "prompt_ids": segment.prompt_ids,
        "response_ids": segment.response_ids,
        "response_mask": segment.response_mask,
        "response_logprobs": segment.response_logprobs,
        "weight_versions": segment.weight_versions,
        "is_main_agent": segment.is_main_agent,
    })
}
