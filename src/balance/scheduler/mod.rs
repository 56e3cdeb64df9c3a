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
mod watermark;
#[cfg(test)]
mod watermark_tests;

pub use cap::Cap;
pub use lease::{Lease, LeaseSettings};
pub use open::Open;
pub use watermark::{Watermark, WatermarkSettings};

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
pub trait Scheduler: Send + std::fmt::Debug {
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

    /// Sessions of whose waiting prompts it wants to be told by [`Self::cached`] how much the replica has cached, before
    /// [`Self::ready`] says more.
    fn asks(&self, _now: Time) -> Vec<SessionId> {
        Vec::new()
    }

    /// Such a share of the session's waiting prompt is cached, what others share with it included; `None`: the replica cannot
    /// say.
    fn cached(&mut self, _now: Time, _session: SessionId, _share: Option<f64>) {}

    /// When [`Self::ready`] may say more although nothing else happens; `None`: never.
    fn wake(&self, now: Time) -> Option<Time>;

    /// The cache holds so many tokens, beside what all sessions share. What runs is not cut.
    fn set_capacity(&mut self, _tokens: u64) {}

    /// The replica computes so many tokens of a prompt in a second.
    fn set_prefill_rate(&mut self, _tokens_per_second: f64) {}

    /// What the cache held is worth nothing any more: new weights.
    fn forget_cache(&mut self) {}

    /// Whether a session of so many tokens would be sent at once.
    fn has_room_for(&self, _tokens: u64) -> bool {
        true
    }

    /// Tokens of the sessions that have a place.
    fn admitted(&self) -> u64;

    /// Sessions that wait.
    fn waiting(&self) -> usize;

    /// What it has done.
    fn stats(&self) -> SchedulerStats;
}
