//! The turns that wait for a place, in the order in which they get one.

use std::collections::BTreeSet;

use super::{SessionId, Time};

/// Returning sessions before new ones, each kind by age. Those that have waited too long come before all.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// By what has been waited for longest.
    since: BTreeSet<(Bits, SessionId)>,
    /// By kind and age.
    order: BTreeSet<(bool, u64, SessionId)>,
}

/// A time that sorts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Bits(u64);

impl Bits {
    /// Of no negative time, whose bits sort as they do.
    fn of(time: Time) -> Self {
        Self(time.max(0.0).to_bits())
    }

    fn time(self) -> Time {
        Time::from_bits(self.0)
    }
}

/// One that waits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Waiter {
    pub(super) session: SessionId,
    /// Place among all sessions in the order in which they began.
    pub(super) age: u64,
    pub(super) is_new: bool,
    pub(super) since: Time,
}

impl Queue {
    pub(super) fn push(&mut self, waiter: Waiter) {
        self.since.insert((Bits::of(waiter.since), waiter.session));
        self.order.insert((waiter.is_new, waiter.age, waiter.session));
    }

    pub(super) fn remove(&mut self, waiter: Waiter) {
        self.since.remove(&(Bits::of(waiter.since), waiter.session));
        self.order.remove(&(waiter.is_new, waiter.age, waiter.session));
    }

    /// Who is next, given since when one has waited too long.
    pub(super) fn head(&self, overdue: Time) -> Option<SessionId> {
        match self.longest() {
            Some((session, since)) if since <= overdue => Some(session),
            _ => self.order.first().map(|(_, _, session)| *session),
        }
    }

    /// Who has waited longest, and since when.
    pub(super) fn longest(&self) -> Option<(SessionId, Time)> {
        self.since.first().map(|(since, session)| (*session, since.time()))
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }
}
