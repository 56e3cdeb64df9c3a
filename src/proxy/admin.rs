//! What whoever runs the proxy may do over HTTP: open, list, look into and finish sessions.
//!
//! These routes exist only where a proxy has an `Admin`, and answer only to its token; agents never hold it.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

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
use super::{Inner, Proxy, ProxyError, SessionCapture, SessionOptions, body};
use crate::trajectory::{Segment, SessionKey};

/// Takes what a finished session recorded; what it returns is told to who finished it.
pub type OnFinish = Arc<dyn Fn(FinishedSession) -> Result<(), String> + Send + Sync>;

/// Makes a proxy one that is run by hand.
#[derive(Clone)]
pub struct Admin {
    /// Opens the admin routes.
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

    /// Options of a session opened over HTTP.
    pub(super) fn session_options(&self, key: &SessionKey, task_id: &str, episode_index: u32) -> SessionOptions {
        SessionOptions {
            task_id: task_id.to_owned(),
            episode_index,
            seed: self.seed_of(key),
            turn_cap: self.turn_cap,
            call_log: self
                .call_logs
                .as_ref()
                .map(|folder| folder.join(format!("{key}.jsonl"))),
            ..SessionOptions::default()
        }
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
        .filter(|admin| tokens(request.headers()).any(|token| same_secret(token, &admin.token)))
        .ok_or_else(ApiError::unauthorized)
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
        let body = body::read(request).await?;
        let fields = only(&body, &["task_id", "episode_index"])?;
        let key = SessionKey::random();
        let task_id = match fields.get("task_id") {
            None => &key.0,
            Some(Value::String(id)) => id,
            Some(other) => return Err(fields::expected("task_id", "a text", other)),
        };
        let episode = fields::whole(&fields, "episode_index")?.unwrap_or(0);
        let episode = u32::try_from(episode).map_err(|_| ApiError::field("episode_index", "expected at least 0"))?;
        let options = admin.session_options(&key, task_id, episode);
        let ticket = Proxy(Arc::clone(&inner))
            .open_as(key.clone(), options, false)
            .map_err(|error| failed(&error))?;
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
        let session = inner.session(&key).map_err(|_| no_session(&key))?;
        let body = body::read(request).await?;
        let fields = only(&body, &["reward"])?;
        let reward = fields::float(&fields, "reward")?;
        if reward.is_some_and(|reward| !reward.is_finite()) {
            return Err(ApiError::field("reward", "expected a finite number"));
        }
        let capture = Proxy(Arc::clone(&inner))
            .close_session(&session.key)
            .await
            .map_err(|error| failed(&error))?;
        let mut summary = shown(&session.key, &capture);
        if let Value::Object(summary) = &mut summary {
            summary.retain(|name, _| name != "segments" && name != "messages");
        }
        summary["segments"] = capture.segments.len().into();
        summary["reward"] = reward.into();
        let finished = FinishedSession {
            key: session.key.clone(),
            options: session.options.clone(),
            opened_at: session.opened_at,
            reward,
            capture,
        };
        match tokio::task::spawn_blocking(move || (admin.on_finish)(finished)).await {
            Ok(Ok(())) => Ok(summary),
            Ok(Err(reason)) => Err(ApiError::internal(reason)),
            Err(error) => Err(ApiError::internal(error.to_string())),
        }
    };
    answer(finished.await)
}

fn no_session(key: &str) -> ApiError {
    ApiError {
        message: format!("There is no open session `{key}`."),
        ..ApiError::not_found("")
    }
}

fn failed(error: &ProxyError) -> ApiError {
    match error {
        ProxyError::UnknownSession(key) => no_session(&key.0),
        other => ApiError::internal(other.to_string()),
    }
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
