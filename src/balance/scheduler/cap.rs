//! So many sessions at a time, each from its first turn to its end.

use std::collections::{HashMap, HashSet, VecDeque};

use super::{Scheduler, SchedulerStats, SessionId, Time, Turn};

/// Admits at most so many sessions. Right only where the number is: a third too many loses most of the gain.
#[derive(Debug)]
pub struct Cap {
    most: usize,
    inside: HashSet<SessionId>,
    tokens: HashMap<SessionId, u64>,
    queue: VecDeque<(SessionId, Time)>,
    arrived: Vec<SessionId>,
    stats: SchedulerStats,
}

impl Cap {
    /// At most so many, at least one.
    pub fn new(most: usize) -> Self {
        Self {
            most: most.max(1),
            inside: HashSet::new(),
            tokens: HashMap::new(),
            queue: VecDeque::new(),
            arrived: Vec::new(),
            stats: SchedulerStats::default(),
        }
    }
}

impl Scheduler for Cap {
    fn arrive(&mut self, now: Time, turn: Turn) {
        self.tokens.insert(turn.session, turn.prompt);
        if self.inside.contains(&turn.session) || (self.inside.len() < self.most && self.queue.is_empty()) {
            self.inside.insert(turn.session);
            self.stats.direct += 1;
            self.arrived.push(turn.session);
        } else {
            self.queue.push_back((turn.session, now));
        }
    }

    fn ended(&mut self, _now: Time, session: SessionId, tokens: u64) {
        self.tokens.insert(session, tokens);
    }

    fn withdraw(&mut self, session: SessionId) {
        self.queue.retain(|(waiting, _)| *waiting != session);
        self.arrived.retain(|arrived| *arrived != session);
    }

    fn release(&mut self, _now: Time, session: SessionId) {
        self.inside.remove(&session);
        self.tokens.remove(&session);
        self.queue.retain(|(waiting, _)| *waiting != session);
        self.arrived.retain(|arrived| *arrived != session);
    }

    fn ready(&mut self, now: Time) -> Vec<SessionId> {
        let mut ready = std::mem::take(&mut self.arrived);
        while self.inside.len() < self.most
            && let Some((session, since)) = self.queue.pop_front()
        {
            self.inside.insert(session);
            self.stats.held += 1;
            self.stats.longest_hold = self.stats.longest_hold.max(now - since);
            ready.push(session);
        }
        ready
    }

    fn wake(&self, _now: Time) -> Option<Time> {
        None
    }

    fn admitted(&self) -> u64 {
        let tokens = |session: &SessionId| self.tokens.get(session).copied().unwrap_or(0);
        self.inside.iter().map(tokens).sum()
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> SchedulerStats {
        self.stats
    }
}
