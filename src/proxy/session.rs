//! One session: one trial's calls, whoever of its agents makes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use super::body::Share;
use super::call_log::{CallLog, Line, RowsOf, SCHEMA};
use super::error::ApiError;
use super::flight::{Flight, FlightEnd, Viewer};
use super::metrics::Metrics;
use super::recording::Recording;
use super::{ProxyError, ProxyOptions, SessionCapture, SessionOptions, generate};
use crate::prompt::Message;
use crate::trajectory::{ConversationId, SessionKey, TokenId};

/// Longest wait for running generations to stop when a session closes.
const CLOSE_PATIENCE: Duration = Duration::from_secs(15);

/// A model call in no dialect.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelRequest {
    /// The dialect, as shards name it.
    pub(super) endpoint: &'static str,
    /// SHA-256 of the body; equal bodies are the same request.
    pub(super) digest: String,
    pub(super) messages: Vec<Message>,
    pub(super) tools: Option<Vec<Value>>,
    /// Whether the answer may call them.
    pub(super) calls_allowed: bool,
    pub(super) max_tokens: Option<u32>,
    pub(super) temperature: Option<f32>,
    pub(super) top_p: Option<f32>,
    pub(super) top_k: Option<i32>,
    /// Texts that end the answer.
    pub(super) stops: Vec<String>,
    /// What it takes of the room for bodies, as long as it is held.
    pub(super) share: Option<Arc<Share>>,
    /// A prompt that is no conversation: no template is applied to it.
    pub(super) raw: Option<RawPrompt>,
}

/// A prompt as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawPrompt {
    Text(String),
    Ids(Vec<TokenId>),
}

pub(super) struct Session {
    pub(super) key: SessionKey,
    pub(super) token: String,
    /// Whether it asks nobody for its token.
    pub(super) anonymous: bool,
    pub(super) opened_at: jiff::Timestamp,
    pub(super) options: SessionOptions,
    pub(super) proxy: Arc<ProxyOptions>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) log: Option<Arc<CallLog>>,
    pub(super) closed: CancellationToken,
    /// Fires when a call is refused for good: the agent should end now.
    pub(super) no_more_calls: CancellationToken,
    pub(super) counts: Counts,
    running: watch::Sender<usize>,
    state: Mutex<SessionState>,
}

/// What changes with every call.
#[derive(Default)]
pub(super) struct SessionState {
    pub(super) recording: Recording,
    /// By digest: running, or ended less than the grace time ago.
    pub(super) flights: HashMap<String, Arc<Flight>>,
    /// Waiting for their conversation's turn.
    pub(super) waiting: Vec<(ConversationId, Arc<Flight>)>,
    pub(super) gates: HashMap<ConversationId, Arc<Semaphore>>,
    pub(super) last_end: HashMap<ConversationId, Instant>,
    calls: u32,
    pub(super) model_seconds: f32,
    pub(super) queue_wait_seconds: f32,
    pub(super) tool_gaps: Vec<f32>,
}

/// Counters that need no lock.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) sampling_overrides: AtomicU32,
    pub(super) engine_errors: AtomicU32,
    pub(super) context_overflow: AtomicBool,
    pub(super) no_tool_calls: AtomicBool,
    pub(super) turn_cap_reached: AtomicBool,
}

impl Session {
    pub(super) fn open(
        key: SessionKey,
        (proxy, metrics): (Arc<ProxyOptions>, Arc<Metrics>),
        options: SessionOptions,
        anonymous: bool,
    ) -> Result<Arc<Self>, ProxyError> {
        let begins = Line::Session {
            schema_version: SCHEMA,
            task_id: options.task_id.clone(),
            episode_index: options.episode_index,
            at: jiff::Timestamp::now(),
            capture: Some(RowsOf {
                train: proxy.capture,
                builder: proxy.builder,
            }),
        };
        let log = options.call_log.as_deref().map(|path| CallLog::new(path, &begins));
        let log = log.transpose()?;
        // A name that anybody may think of has no file before something is recorded.
        if let Some(log) = log.as_ref().filter(|_| !anonymous) {
            log.begin()?;
        }
        Ok(Arc::new(Self {
            key,
            token: SessionKey::random().0,
            anonymous,
            opened_at: jiff::Timestamp::now(),
            options,
            proxy,
            metrics,
            log,
            closed: CancellationToken::new(),
            no_more_calls: CancellationToken::new(),
            counts: Counts::default(),
            running: watch::channel(0).0,
            state: Mutex::default(),
        }))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a generation for the request, or attaches to the identical one that runs or has just ended.
    pub(super) fn begin(self: &Arc<Self>, request: ModelRequest) -> Result<Viewer, ApiError> {
        let mut state = self.state();
        if self.closed.is_cancelled() {
            return Err(ApiError::closed());
        }
        let grace = self.proxy.retry_grace;
        state
            .flights
            .retain(|_, flight| flight.ended_for().is_none_or(|since| since < grace));
        if let Some(flight) = state.flights.get(&request.digest) {
            self.metrics.retries_attached.fetch_add(1, Ordering::Relaxed);
            return Ok(flight.watch(self));
        }
        if let Some(cap) = self.options.turn_cap
            && state.calls >= cap
        {
            self.counts.turn_cap_reached.store(true, Ordering::Relaxed);
            self.no_more_calls.cancel();
            return Err(ApiError::turn_cap(cap));
        }
        let flight = Flight::new(state.calls, self.closed.child_token());
        state.calls += 1;
        state.flights.insert(request.digest.clone(), Arc::clone(&flight));
        self.running.send_modify(|count| *count += 1);
        drop(state);
        let viewer = flight.watch(self);
        let running = Running {
            session: Arc::clone(self),
            flight,
        };
        let mut generation = Box::pin(async move {
            let Running { session, flight } = &running;
            let digest = request.digest.clone();
            let end = generate::run(session, flight, request).await;
            if let Some(time) = flight.first_after() {
                session.metrics.first_token_after(time);
            }
            if matches!(end, FlightEnd::Failed(_)) {
                // A failure is not an answer: the same request may try again.
                session.state().flights.remove(&digest);
            }
            flight.end(end);
            session.note_seen(flight);
        });
        // It is built here and now, and moves to a task of its own only where there is something to wait for.
        if generation.as_mut().now_or_never().is_none() {
            tokio::spawn(generation);
        }
        Ok(viewer)
    }

    /// Refuses further calls, ends the running ones, and hands out what was recorded, once its log is whole and on disk.
    /// May be tried again.
    pub(super) async fn close(&self) -> Result<SessionCapture, ProxyError> {
        {
            // Under the lock, so that no call begins behind it.
            let _state = self.state();
            self.closed.cancel();
        }
        let mut running = self.running.subscribe();
        if tokio::time::timeout(CLOSE_PATIENCE, running.wait_for(|&count| count == 0))
            .await
            .is_err()
        {
            tracing::error!(session = %self.key, "generations did not stop within {CLOSE_PATIENCE:?}; left out");
        }
        // Who still watches does not read on: the session is over.
        let flights: Vec<Arc<Flight>> = self.state().flights.values().cloned().collect();
        for flight in flights {
            let seen = flight.was_seen().or(flight.has_answered().then_some(false));
            self.note(&flight, seen);
        }
        if let Some(log) = self.log.clone() {
            log.durable().await?;
        }
        Ok(self.snapshot())
    }

    /// What has been recorded so far; the session goes on.
    pub(super) fn snapshot(&self) -> SessionCapture {
        self.capture_of(&self.state())
    }

    /// Notes, where it is decided, whether a client was there for the end of an answer.
    pub(super) fn note_seen(&self, flight: &Flight) {
        // What happens behind the close changes nothing that was handed out.
        if !self.closed.is_cancelled() {
            self.note(flight, None);
        }
    }

    fn note(&self, flight: &Flight, decided: Option<bool>) {
        let changed = {
            let mut state = self.state();
            // Under the lock: of two that decide at once, the later one knows more.
            let Some(seen) = decided.or_else(|| flight.was_seen()) else {
                return;
            };
            state.recording.note_seen(flight.call, seen).then_some(seen)
        };
        if let Some(seen) = changed {
            // Where this fails, the answer counts as seen when the log is read back; the failure is told.
            let _ = self.log(&Line::Seen {
                call: flight.call,
                seen,
            });
        }
    }

    /// Calls begun so far.
    pub(super) fn calls(&self) -> u32 {
        self.state().calls
    }

    /// Generations that wait or run.
    pub(super) fn running(&self) -> usize {
        *self.running.borrow()
    }

    /// Waits until no generation runs.
    pub(super) async fn idle(&self) {
        // The sender lives as long as `self`.
        let _ = self.running.subscribe().wait_for(|&count| count == 0).await;
    }

    fn capture_of(&self, state: &SessionState) -> SessionCapture {
        let mut capture = state.recording.capture(self.proxy.capture, self.proxy.builder);
        capture.model_seconds = state.model_seconds;
        capture.queue_wait_seconds = state.queue_wait_seconds;
        capture.tool_gaps.clone_from(&state.tool_gaps);
        capture.n_sampling_overrides = self.counts.sampling_overrides.load(Ordering::Relaxed);
        capture.n_engine_errors = self.counts.engine_errors.load(Ordering::Relaxed);
        capture.context_overflow = self.counts.context_overflow.load(Ordering::Relaxed);
        capture.no_tool_calls = self.counts.no_tool_calls.load(Ordering::Relaxed);
        capture.turn_cap_reached = self.counts.turn_cap_reached.load(Ordering::Relaxed);
        capture
    }

    /// Refuses a conversation whose last answers called no tool although they could, as many in sequence as the
    /// session allows.
    pub(super) fn still_calls_tools(&self, state: &SessionState, conversation: ConversationId) -> Result<(), ApiError> {
        let limit = self.options.max_consecutive_no_tool.unwrap_or(u32::MAX);
        if state.recording.answers_without_tool(conversation) < limit {
            return Ok(());
        }
        self.counts.no_tool_calls.store(true, Ordering::Relaxed);
        self.no_more_calls.cancel();
        Err(ApiError::no_tool_calls(limit))
    }

    /// Writes a line where this session has a log.
    pub(super) fn log(&self, line: &Line) -> Result<(), ApiError> {
        let Some(log) = &self.log else { return Ok(()) };
        log.append(line).map_err(|error| {
            tracing::error!(session = %self.key, %error, "call not logged");
            ApiError::internal("the call could not be logged")
        })
    }
}

/// Counts a running generation for as long as it lives, and ends it also if its task does not come that far.
struct Running {
    session: Arc<Session>,
    flight: Arc<Flight>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.flight
            .end(FlightEnd::Failed(ApiError::internal("the generation was lost")));
        self.session.running.send_modify(|count| *count -= 1);
    }
}
