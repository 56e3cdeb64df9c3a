//! One generation in flight, and everyone who watches it.
//!
//! The generation belongs to the session, not to a connection: clients attach and leave, and each sees the
//! answer from its beginning. When nobody has watched for the grace time, the generation is given up.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::Sleep;
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::session::Session;
use crate::inference::EngineUsage;
use crate::prompt::{AnswerEvent, Message};
use crate::trajectory::{FinishReason, TokenId};

/// A generation that clients can watch.
pub(super) struct Flight {
    /// The call's number in its session.
    pub(super) call: u32,
    began: Instant,
    state: Mutex<FlightState>,
    progress: Notify,
    viewers: watch::Sender<usize>,
    /// Ends it: the session closes, or a newer attempt takes its place.
    pub(super) cancel: CancellationToken,
}

/// What has come so far.
#[derive(Default)]
pub(super) struct FlightState {
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) ids: Vec<TokenId>,
    pub(super) logprobs: Vec<f32>,
    pub(super) events: Vec<AnswerEvent>,
    /// Whether a hosted API's filter ended it.
    pub(super) filtered: bool,
    /// The stop text that ended it.
    pub(super) stop_text: Option<String>,
    pub(super) preempted: bool,
    /// Whether a client was there for its end.
    seen: bool,
    pub(super) end: Option<FlightEnd>,
    first_at: Option<Instant>,
    ended_at: Option<Instant>,
}

impl FlightState {
    /// Whether anything of an answer has come.
    fn shows_something(&self) -> bool {
        !self.ids.is_empty() || !self.events.is_empty()
    }

    /// Whether anything has come, the end included.
    fn has_begun(&self) -> bool {
        self.end.is_some() || self.shows_something()
    }
}

/// How it ended.
#[derive(Debug, Clone)]
pub(super) enum FlightEnd {
    Answered {
        finish: FinishReason,
        message: Arc<Message>,
        usage: EngineUsage,
    },
    Failed(ApiError),
}

impl Flight {
    pub(super) fn new(call: u32, cancel: CancellationToken) -> Arc<Self> {
        Arc::new(Self {
            call,
            began: Instant::now(),
            state: Mutex::default(),
            progress: Notify::new(),
            viewers: watch::channel(0).0,
            cancel,
        })
    }

    pub(super) fn state(&self) -> MutexGuard<'_, FlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes everyone who watches.
    pub(super) fn update(&self, change: impl FnOnce(&mut FlightState)) {
        {
            let mut state = self.state();
            change(&mut state);
            if state.first_at.is_none() && state.shows_something() {
                state.first_at = Some(Instant::now());
            }
        }
        self.progress.notify_waiters();
    }

    pub(super) fn end(&self, end: FlightEnd) {
        self.update(|state| {
            state.end.get_or_insert(end);
            state.ended_at.get_or_insert_with(Instant::now);
        });
    }

    /// Takes this attempt out in favour of a newer one.
    pub(super) fn preempt(&self) {
        self.state().preempted = true;
        self.cancel.cancel();
    }

    /// The time to the first piece of the answer, if one came.
    pub(super) fn first_after(&self) -> Option<Duration> {
        let first = self.state().first_at?;
        Some(first.duration_since(self.began))
    }

    /// How long ago it ended.
    pub(super) fn ended_for(&self) -> Option<Duration> {
        self.state().ended_at.map(|at| at.elapsed())
    }

    /// Whether a client was there for the end of the answer; `None` as long as that is open: it runs, or somebody watches.
    /// What failed is no answer.
    pub(super) fn was_seen(&self) -> Option<bool> {
        let state = self.state();
        match &state.end {
            Some(FlightEnd::Answered { .. }) if state.seen => Some(true),
            Some(FlightEnd::Answered { .. }) if self.watched() == 0 => Some(false),
            _ => None,
        }
    }

    /// How many watch.
    pub(super) fn watched(&self) -> usize {
        *self.viewers.borrow()
    }

    /// Whether it ended with an answer.
    pub(super) fn has_answered(&self) -> bool {
        matches!(self.state().end, Some(FlightEnd::Answered { .. }))
    }

    /// Waits until nobody has watched for the grace time.
    pub(super) async fn abandoned(&self, grace: Duration) {
        let mut viewers = self.viewers.subscribe();
        loop {
            // The sender lives as long as `self`, so these cannot fail.
            let _ = viewers.wait_for(|&count| count == 0).await;
            tokio::select! {
                () = tokio::time::sleep(grace) => return,
                _ = viewers.wait_for(|&count| count > 0) => {}
            }
        }
    }

    /// Watches it from the beginning.
    pub(super) fn watch(self: &Arc<Self>, session: &Arc<Session>) -> Viewer {
        self.viewers.send_modify(|count| *count += 1);
        Viewer {
            session: Arc::clone(session),
            flight: Arc::clone(self),
            events: 0,
            tokens: 0,
            late: None,
        }
    }
}

/// One client's view.
pub(super) struct Viewer {
    session: Arc<Session>,
    flight: Arc<Flight>,
    events: usize,
    tokens: usize,
    /// Ends the wait for something new.
    late: Option<Pin<Box<Sleep>>>,
}

/// What is new since the last look.
#[derive(Default)]
pub(super) struct News {
    pub(super) events: Vec<AnswerEvent>,
    pub(super) ids: Vec<TokenId>,
    pub(super) logprobs: Vec<f32>,
    pub(super) end: Option<FlightEnd>,
}

impl News {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.ids.is_empty() && self.end.is_none()
    }
}

impl Viewer {
    /// Waits until this gives something: asked now, and each time that something has changed.
    async fn until<T>(flight: &Flight, mut found: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(flight.progress.notified());
            // Before the look: what changes behind it wakes.
            changed.as_mut().enable();
            if let Some(found) = found() {
                return found;
            }
            changed.await;
        }
    }

    /// Waits for the first piece or the end, at most this long.
    pub(super) async fn started(&mut self, patience: Duration) -> Option<ApiError> {
        let flight = &self.flight;
        let begun = Self::until(flight, || flight.state().has_begun().then_some(()));
        let _ = tokio::time::timeout(patience, begun).await;
        match &flight.state().end {
            Some(FlightEnd::Failed(error)) => Some(error.clone()),
            _ => None,
        }
    }

    /// Waits for the end. What comes after an answer is `Failed` or `Answered`.
    pub(super) async fn finished(&mut self) -> FlightEnd {
        Self::until(&self.flight, || self.flight.state().end.clone()).await
    }

    /// Waits until there is something new, at most this long; `None` if there is not.
    pub(super) async fn next(&mut self, patience: Duration) -> Option<News> {
        let flight = Arc::clone(&self.flight);
        // Putting it off is cheaper than a new one for every token.
        let mut late = self
            .late
            .take()
            .unwrap_or_else(|| Box::pin(tokio::time::sleep(patience)));
        late.as_mut().reset(tokio::time::Instant::now() + patience);
        let news = {
            let next = Self::until(&flight, || Some(self.take()).filter(|news| !news.is_empty()));
            tokio::select! {
                biased;
                news = next => Some(news),
                () = late.as_mut() => None,
            }
        };
        self.late = Some(late);
        news
    }

    fn take(&mut self) -> News {
        let state = self.flight.state();
        let news = News {
            events: state.events[self.events..].to_vec(),
            ids: state.ids[self.tokens..].to_vec(),
            logprobs: state.logprobs.get(self.tokens..).unwrap_or_default().to_vec(),
            end: state.end.clone(),
        };
        self.events = state.events.len();
        self.tokens = state.ids.len();
        news
    }

    pub(super) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// The answer's end is on its way to the client.
    pub(super) fn saw_the_end(&self) {
        self.flight.state().seen = true;
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.flight.viewers.send_modify(|count| *count -= 1);
        self.session.note_seen(&self.flight);
    }
}
