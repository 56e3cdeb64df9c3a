//! No scheduling: every turn is sent at once.

use std::collections::HashMap;

use super::{Scheduler, SchedulerStats, SessionId, Time, Turn};

/// Holds nothing.
#[derive(Debug, Default)]
pub struct Open {
    tokens: HashMap<SessionId, u64>,
    sum: u64,
    arrived: Vec<SessionId>,
    stats: SchedulerStats,
}

impl Open {
    fn set(&mut self, session: SessionId, tokens: u64) {
        let before = self.tokens.insert(session, tokens).unwrap_or(0);
        self.sum = self.sum - before + tokens;
    }
}

impl Scheduler for Open {
    fn arrive(&mut self, _now: Time, turn: Turn) {
        self.stats.direct += 1;
        self.set(turn.session, turn.prompt);
        self.arrived.push(turn.session);
    }

    fn ended(&mut self, _now: Time, session: SessionId, tokens: u64) {
        self.set(session, tokens);
    }

    fn withdraw(&mut self, session: SessionId) {
        self.arrived.retain(|arrived| *arrived != session);
    }

    fn release(&mut self, _now: Time, session: SessionId) {
        self.sum -= self.tokens.remove(&session).unwrap_or(0);
        self.arrived.retain(|arrived| *arrived != session);
    }

    fn ready(&mut self, _now: Time) -> Vec<SessionId> {
        std::mem::take(&mut self.arrived)
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }

    fn admitted(&self) -> u64 {
        self.sum
    }

    fn waiting(&self) -> usize {
        0
    }

    fn stats(&self) -> SchedulerStats {
        self.stats
    }
}
