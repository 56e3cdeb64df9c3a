//! The end of a session over HTTP: its calls are refused at once, and it is kept until what it recorded is durable.
//!
//! A finish may be asked for again: until it succeeds it is tried again, and afterwards its answer is given again. What
//! could not be written waits in memory, so many sessions at most: beyond, a session stays open instead.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

use super::admin::{self, Admin, FinishedSession};
use super::error::ApiError;
use super::session::Session;
use super::{Inner, Proxy, REMEMBERED};

/// Finished sessions that could not be written and wait. No other is finished before one of them could be.
const MOST_UNWRITTEN: usize = 128;

/// How far a session's end has come.
enum Stage {
    /// Its capture is not there yet.
    Ending(Arc<Session>),
    /// Closed, and not durable yet.
    Closed(Arc<FinishedSession>),
    /// Durable, with what was answered.
    Done(Value),
}

/// One session's end. The lock is held while it goes on, so that who asks at the same time gets its answer.
type Finish = Arc<tokio::sync::Mutex<Stage>>;

/// The ends of sessions, those of the last few thousand that succeeded included.
#[derive(Default)]
pub(super) struct Finishes(Mutex<Known>);

#[derive(Default)]
struct Known {
    by_key: HashMap<String, Finish>,
    /// Those that are done, the oldest first.
    done: VecDeque<String>,
    /// Those whose last try failed, the oldest first.
    failed: VecDeque<String>,
}

impl Finishes {
    /// The oldest of those that wait, where there are so many that this one, which has not begun, must wait for it; and
    /// how many they are.
    fn in_the_way(&self, key: &str) -> Option<(String, usize)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = known.failed.len() >= MOST_UNWRITTEN && !known.by_key.contains_key(key);
        let oldest = known.failed.front().filter(|_| full)?;
        Some((oldest.clone(), known.failed.len()))
    }

    fn failed(&self, key: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Another try may have succeeded since.
        let known_of = |list: &VecDeque<String>| list.iter().any(|other| other == key);
        if !known_of(&known.failed) && !known_of(&known.done) {
            known.failed.push_back(key.to_owned());
        }
    }

    /// Those whose last try failed.
    fn waiting(&self) -> Vec<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.failed.iter().cloned().collect()
    }

    /// The end of a session that `open` finds, or that has begun before.
    fn of(&self, key: &str, open: impl FnOnce() -> Result<Arc<Session>, ApiError>) -> Result<Finish, ApiError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(finish) = known.by_key.get(key) {
            return Ok(Arc::clone(finish));
        }
        let finish = Finish::new(Stage::Ending(open()?).into());
        known.by_key.insert(key.to_owned(), Arc::clone(&finish));
        Ok(finish)
    }

    fn remember(&self, key: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.failed.retain(|other| other != key);
        known.done.push_back(key.to_owned());
        if known.done.len() > REMEMBERED
            && let Some(oldest) = known.done.pop_front()
        {
            known.by_key.remove(&oldest);
        }
    }

    /// Sessions whose end has begun and that are not durable.
    pub(super) fn unwritten(&self) -> usize {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.by_key.len() - known.done.len()
    }
}

/// Closes a session and makes it durable; what it is told of is the same each time. A reward that comes with a later
/// try counts, where an earlier one failed.
pub(super) async fn finish(
    inner: &Arc<Inner>,
    admin: &Admin,
    key: &str,
    reward: Option<f32>,
) -> Result<Value, ApiError> {
    if let Some((oldest, waiting)) = inner.finishes.in_the_way(key) {
        let written = try_once(inner, admin, &oldest, None).await;
        written.map_err(|error| {
            let message = format!(
                "{waiting} finished sessions could not be written, and no other is finished before one of them is: {}",
                error.message
            );
            ApiError::unavailable(message, Some(Duration::from_secs(10)))
        })?;
    }
    try_once(inner, admin, key, reward).await
}

/// Tries all that could not be written once more, within this time; tells how many still are not, and why.
pub(super) async fn write_waiting(inner: &Arc<Inner>, admin: &Admin, patience: Duration) -> Option<(usize, String)> {
    let mut reason = format!("it took more than {} s", patience.as_secs());
    let all = async {
        for key in inner.finishes.waiting() {
            if let Err(error) = try_once(inner, admin, &key, None).await {
                reason = error.message;
            }
        }
    };
    // What was not tried counts as what failed.
    let _ = tokio::time::timeout(patience, all).await;
    let unwritten = inner.finishes.unwritten();
    (unwritten > 0).then_some((unwritten, reason))
}

/// One try at a session's end.
async fn try_once(inner: &Arc<Inner>, admin: &Admin, key: &str, reward: Option<f32>) -> Result<Value, ApiError> {
    let finish = inner
        .finishes
        .of(key, || inner.session(key).map_err(|_| admin::no_session(key)))?;
    let ended = end(inner, admin, &finish, reward).await;
    if ended.is_err() {
        inner.finishes.failed(key);
    }
    ended
}

async fn end(inner: &Arc<Inner>, admin: &Admin, finish: &Finish, reward: Option<f32>) -> Result<Value, ApiError> {
    let mut stage = finish.lock().await;
    if let Stage::Ending(session) = &*stage {
        let proxy = Proxy(Arc::clone(inner));
        proxy.retire(&session.key);
        let capture = proxy.close(session).await.map_err(|error| kept(&error))?;
        *stage = Stage::Closed(Arc::new(FinishedSession {
            key: session.key.clone(),
            options: session.options.clone(),
            opened_at: session.opened_at,
            ended_at: jiff::Timestamp::now(),
            reward: None,
            capture,
        }));
    }
    let finished = match &mut *stage {
        Stage::Done(answer) => return Ok(answer.clone()),
        Stage::Closed(finished) => {
            let own = Arc::make_mut(finished);
            own.reward = reward.or(own.reward);
            Arc::clone(finished)
        }
        Stage::Ending(_) => return Err(ApiError::internal("the session did not close")),
    };
    let answer = admin::summary(&finished);
    let (on_finish, key) = (Arc::clone(&admin.on_finish), finished.key.clone());
    tokio::task::spawn_blocking(move || on_finish(&finished))
        .await
        .map_err(|error| kept(&error))?
        .map_err(|error| kept(&error))?;
    *stage = Stage::Done(answer.clone());
    inner.finishes.remember(&key.0);
    Ok(answer)
}

/// What to do about a session that could not be made durable.
fn kept(error: &dyn std::fmt::Display) -> ApiError {
    ApiError::internal(format!(
        "{error}; the session takes no more calls and what it recorded is kept: finish it again"
    ))
}
