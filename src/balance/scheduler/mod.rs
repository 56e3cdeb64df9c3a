//! When a session may send its next turn to its replica.
//!
//! Every turn sends the whole conversation again. Once the contexts of the live sessions pass what a replica's cache
//! holds, each session loses its prefix while it waits for a tool, and every turn is computed from nothing. A scheduler
//! holds turns back so that those which run find their prefix. It is a state machine over events and an explicit clock:
//! a server and a simulation drive the same code. It sends nothing, and knows nothing of requests but their sizes.

mod cap;
mod lease;
mod open;
mod queue;
#[cfg(test)]
mod tests;

pub use cap::Cap;
pub use lease::{Lease, LeaseSettings};
pub use open::Open;

/// Seconds since some start.
pub type Time = f64;

/// Names a session within one scheduler.
pub type SessionId = u64;

/// A turn that a session wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Whose it is.
    pub session: SessionId,
    /// Tokens of its prompt that no other session shares.
    pub prompt: u64,
}

/// What a scheduler has done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct SchedulerStats {
    /// Turns that were sent at once.
    pub direct: u64,
    /// Turns that were held.
    pub held: u64,
    /// Longest hold that has ended, in seconds.
    pub longest_hold: Time,
    /// Sessions that lost their place while they were idle.
    pub paused: u64,
    /// Of those, before their lease was over, for one that had waited too long.
    pub displaced: u64,
    /// Times that such a one had to wait on because the budget for it was spent.
    pub short_of_budget: u64,
}

/// Decides when turns are sent to one replica.
pub trait Scheduler: Send {
    /// A session wants to send a turn. [`Self::ready`] says when it may.
    fn arrive(&mut self, now: Time, turn: Turn);

    /// A turn has ended; the session now holds so many tokens that no other shares.
    fn ended(&mut self, now: Time, session: SessionId, tokens: u64);

    /// The turn that waits is not wanted any more; the session may send another.
    fn withdraw(&mut self, session: SessionId);

    /// The session sends no more. Also where a turn of its runs or waits.
    fn release(&mut self, now: Time, session: SessionId);

    /// Sessions whose waiting turn may be sent now, in order.
    fn ready(&mut self, now: Time) -> Vec<SessionId>;

    /// When [`Self::ready`] may say more although nothing else happens; `None`: never.
    fn wake(&self, now: Time) -> Option<Time>;

    /// Tokens of the sessions that have a place.
    fn admitted(&self) -> u64;

    /// Sessions that wait.
    fn waiting(&self) -> usize;

    /// What it has done.
    fn stats(&self) -> SchedulerStats;
}
