//! Turns of requests held until their replica's scheduler lets them go: the way from `scheduler` to tasks and clocks.
//!
//! One hold stands before one replica. Whatever becomes of a request, its [`Place`] tells the scheduler when it ends.

mod probe;
mod settings;
mod state;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::Notify;

use super::scheduler::{SchedulerStats, SessionId};
pub use probe::Probe;
pub use settings::{HoldRule, HoldSettings};
use state::{State, Ticket};

/// Share of a cache that is given out: turns grow while they run.
pub const USABLE: f64 = 0.95;

/// A turn that was held so long may go on elsewhere, where its whole context fits.
const HOMESICK: Duration = Duration::from_secs(30);
/// Time between looks for such a place.
const LOOK_ELSEWHERE: Duration = Duration::from_secs(5);

/// A turn that wants to be sent.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Whose it is; its end releases all of its conversations.
    pub session: &'a str,
    /// Which of the session's conversations.
    pub conversation: u64,
    /// Tokens of its prompt.
    pub tokens: u64,
    /// The beginning of its prompt, as `placement::blocks_of` has it, by which what sessions share is found.
    pub blocks: &'a [u64],
    /// Tokens of one block.
    pub block_tokens: f64,
    /// Two of the same are attempts at the same turn: the newer takes the place of one that waits.
    pub digest: u64,
    /// Asks what is cached of it; `None`: nobody can say.
    pub probe: Option<&'a Probe>,
}

/// Why a turn was not let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotLetGo {
    /// Its replica is out.
    #[error("its replica was taken out")]
    Out,
    /// A newer attempt at it has come.
    #[error("a newer attempt of the same turn took its place")]
    Preempted,
    /// As long as a caller has to wait.
    #[error("the turn was held for {0:?}: other sessions take all of the cache")]
    TooLong(Duration),
}

/// What came of a wait.
#[derive(Debug)]
pub enum Entered<T> {
    /// The turn may be sent.
    Here(Place),
    /// Another replica has room for it; all that was known of the session here is forgotten.
    Elsewhere(T),
}

/// What a hold has done, and what is so now.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct HoldFigures {
    /// Tokens that are given out; 0: it is not known how many, and nothing is held.
    pub capacity: u64,
    /// Tokens of the sessions that have a place.
    pub admitted: u64,
    /// Turns that wait.
    pub waiting: usize,
    /// Conversations that are known.
    pub known: usize,
    /// What its scheduler has done.
    pub stats: SchedulerStats,
}

/// Holds the turns of one replica.
#[derive(Debug)]
pub struct Hold {
    settings: HoldSettings,
    /// When a place elsewhere is first looked for, and the time between looks.
    looks: (Duration, Duration),
    began: Instant,
    state: Mutex<State>,
    /// Something has changed that the timer may have to wake earlier for.
    changed: Notify,
}

impl Hold {
    /// Of the replica with this name.
    pub fn new(replica: &str, settings: HoldSettings) -> Arc<Self> {
        Self::with_looks(replica, settings, (HOMESICK, LOOK_ELSEWHERE))
    }

    fn with_looks(replica: &str, settings: HoldSettings, looks: (Duration, Duration)) -> Arc<Self> {
        let mut state = State::new(replica);
        if let Some(capacity) = settings.capacity {
            state.set_capacity(&settings, capacity);
        }
        Arc::new(Self {
            settings,
            looks,
            began: Instant::now(),
            state: Mutex::new(state),
            changed: Notify::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// The replica says that its cache holds so many tokens; 0: it does not say. A capacity that was set stays.
    pub fn set_capacity(&self, tokens: u64) {
        if self.settings.capacity.is_none() && tokens > 0 {
            self.state().set_capacity(&self.settings, tokens);
        }
    }

    /// Waits until the turn may be sent. Dropping the wait withdraws it.
    ///
    /// # Errors
    /// It will not be let go here.
    pub async fn enter(self: &Arc<Self>, ask: &Ask<'_>) -> Result<Place, NotLetGo> {
        let since = Instant::now();
        let (ticket, told, runs_timer) = {
            let mut state = self.state();
            let now = self.now();
            state.sweep(now, self.settings.idle_ttl.as_secs_f64());
            let Some((ticket, told)) = state.arrive(now, ask) else {
                return Ok(Place::free(ask.tokens));
            };
            (ticket, told, state.wants_timer())
        };
        let mut waiting = Waiting {
            hold: self,
            ticket,
            over: false,
        };
        if runs_timer {
            tokio::spawn(Arc::clone(self).keep_time());
        } else {
            self.changed.notify_waiters();
        }
        let answer = told.await.unwrap_or(Err(NotLetGo::Out));
        waiting.over = true;
        answer?;
        Ok(Place {
            hold: Some(Arc::clone(self)),
            id: ticket.0,
            tokens: ask.tokens,
            waited: since.elapsed(),
        })
    }

    /// As [`Self::enter`], but for no longer than a caller has to wait. A turn that has waited for long goes to a place
    /// that `elsewhere` finds.
    ///
    /// # Errors
    /// It will not be let go here.
    pub async fn enter_or_move<T>(
        self: &Arc<Self>,
        ask: &Ask<'_>,
        mut elsewhere: impl FnMut() -> Option<T>,
    ) -> Result<Entered<T>, NotLetGo> {
        let longest = self.settings.longest();
        let entered = tokio::time::timeout(longest, async {
            let enter = self.enter(ask);
            tokio::pin!(enter);
            let mut look = tokio::time::interval_at(tokio::time::Instant::now() + self.looks.0, self.looks.1);
            loop {
                tokio::select! {
                    biased;
                    entered = &mut enter => return entered.map(Entered::Here),
                    _ = look.tick() => if let Some(other) = elsewhere() {
                        return Ok(Entered::Elsewhere(other));
                    }
                }
            }
        });
        let entered = entered.await.map_err(|_| NotLetGo::TooLong(longest))??;
        if matches!(entered, Entered::Elsewhere(_)) {
            // All of its conversations go with it.
            self.release(ask.session);
        }
        Ok(entered)
    }

    /// Looks again when time alone lets turns go; ends when none waits.
    async fn keep_time(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let asks = self.state().asks(self.now());
            let answers = asks.into_iter().map(|(ticket, probe)| async move {
                let cached = match probe {
                    Some(probe) => probe.ask().await,
                    None => None,
                };
                (ticket, cached)
            });
            let answers = join_all(answers).await;
            let now = self.now();
            let wake = {
                let mut state = self.state();
                for (ticket, cached) in answers {
                    state.cached(now, ticket, cached);
                }
                state.let_go(now);
                match state.next_look(now) {
                    Some(wake) => wake,
                    None => return,
                }
            };
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs_f64((wake - now).max(0.001))) => {}
                () = changed => {}
            }
        }
    }

    /// The session has ended, however.
    pub fn release(&self, session: &str) {
        self.state().release(self.now(), session);
        self.changed.notify_waiters();
    }

    /// The replica is out: whoever waits goes elsewhere, and nothing is known of its sessions any more.
    pub fn clear(&self) {
        self.state().clear();
        self.changed.notify_waiters();
    }

    /// New weights: what the cache held is worth nothing.
    pub fn forget_cache(&self) {
        self.state().forget_cache(self.now());
        self.changed.notify_waiters();
    }

    /// So many tokens of a prompt, not cached, took so long to the first token of the answer.
    pub fn saw_prefill(&self, tokens: u64, time: Duration) {
        self.state().saw_prefill(tokens, time.as_secs_f64());
    }

    /// Whether a session of so many tokens would be sent at once.
    pub fn has_room_for(&self, tokens: u64) -> bool {
        self.state().has_room_for(tokens)
    }

    /// What it has done.
    pub fn figures(&self) -> HoldFigures {
        self.state().figures()
    }
}

/// Withdraws a turn whose caller has gone.
struct Waiting<'a> {
    hold: &'a Hold,
    ticket: Ticket,
    over: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.over {
            self.hold.state().withdraw(self.hold.now(), self.ticket);
            self.hold.changed.notify_waiters();
        }
    }
}

/// A turn's place, as long as it runs.
#[derive(Debug)]
pub struct Place {
    hold: Option<Arc<Hold>>,
    id: SessionId,
    tokens: u64,
    waited: Duration,
}

impl Place {
    /// Where nothing is held.
    pub fn free(tokens: u64) -> Self {
        Self {
            hold: None,
            id: 0,
            tokens,
            waited: Duration::ZERO,
        }
    }

    /// What the session holds by now, prompt and answer together.
    pub fn set_tokens(&mut self, tokens: u64) {
        self.tokens = tokens;
    }

    /// What was last set.
    pub fn tokens(&self) -> u64 {
        self.tokens
    }

    /// How long it was held.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(hold) = &self.hold {
            hold.state().ended(hold.now(), self.id, self.tokens);
            hold.changed.notify_waiters();
        }
    }
}
