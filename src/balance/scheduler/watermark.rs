//! While a replica has room anyone goes; beyond a mark only those whose prompt it still has cached.
//!
//! A turn is let go where what runs or is reserved takes less of the cache than the mark, where its session has a reservation, or
//! where enough of its prompt is found in the cache and all of it fits, which reserves: its session's turns go at once until it
//! has been idle for the grace, or until what runs needs the room. Others are looked at again every few seconds, and are let go in any case once they have waited for too long. Nothing
//! here holds what is cached: it is asked for, by who drives this.

use std::collections::{BTreeSet, HashMap};

use super::{Scheduler, SchedulerStats, SessionId, Time, Turn};

/// Seconds between two looks for what is cached of a prompt that waits.
const LOOK: Time = 5.0;

/// How a [`Watermark`] decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WatermarkSettings {
    /// Tokens that the replica's cache holds, beside what all sessions share.
    pub capacity: u64,
    /// Share of them, taken by what runs or is reserved, below which anyone is let go.
    pub high: f64,
    /// Share of a prompt that must be cached beyond it.
    pub hit: f64,
    /// Seconds for which an idle session keeps its reservation.
    pub grace: Time,
    /// Seconds after which one that waits is let go whatever is cached.
    pub max_hold: Time,
}

#[derive(Debug)]
struct Session {
    prompt: u64,
    state: State,
    reserved: bool,
    /// Tokens that it takes now.
    takes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// A reservation lasts until then.
    Idle {
        until: Time,
    },
    Waits {
        since: Time,
        looked: Option<Time>,
        /// What was cached then is enough.
        hits: bool,
    },
    Runs,
}

/// See the module.
#[derive(Debug)]
pub struct Watermark {
    settings: WatermarkSettings,
    sessions: HashMap<SessionId, Session>,
    /// Those that wait, by the bits of the time since when: no time is negative.
    queue: BTreeSet<(u64, SessionId)>,
    /// Those that are idle with a reservation, by the bits of the time until which they have it.
    reserved: BTreeSet<(u64, SessionId)>,
    /// Tokens of what runs or is reserved.
    used: u64,
    stats: SchedulerStats,
    arrived: Vec<SessionId>,
}

impl Watermark {
    /// With nothing running.
    pub fn new(settings: WatermarkSettings) -> Self {
        Self {
            settings,
            sessions: HashMap::new(),
            queue: BTreeSet::new(),
            reserved: BTreeSet::new(),
            used: 0,
            stats: SchedulerStats::default(),
            arrived: Vec::new(),
        }
    }

    fn has_room(&self) -> bool {
        (self.used as f64) < self.settings.high * self.settings.capacity as f64
    }

    fn begin(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        match session.state {
            State::Waits { since, .. } => self.queue.remove(&(since.to_bits(), id)),
            State::Idle { until } => self.reserved.remove(&(until.to_bits(), id)),
            State::Runs => false,
        };
        session.state = State::Runs;
        self.used = self.used - session.takes + session.prompt;
        session.takes = session.prompt;
        // What runs has outgrown the room: those that have been idle for longest give theirs.
        while self.used > self.settings.capacity
            && let Some(&(_, id)) = self.reserved.first()
        {
            self.forfeit(id);
        }
    }

    /// It has no reservation any more, and is idle.
    fn forfeit(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && let State::Idle { until } = session.state
        {
            self.reserved.remove(&(until.to_bits(), id));
            session.reserved = false;
            self.used -= std::mem::take(&mut session.takes);
        }
    }

    /// Ends the reservations whose time is over.
    fn expire(&mut self, now: Time) {
        while let Some(&(until, id)) = self.reserved.first()
            && Time::from_bits(until) < now
        {
            self.forfeit(id);
        }
    }

    /// Whether one that waits may go now, and whether that reserves.
    fn may_go(&self, now: Time, id: SessionId) -> Option<bool> {
        let session = self.sessions.get(&id)?;
        let State::Waits { since, hits, .. } = session.state else {
            return None;
        };
        // What is cached is of no use to one that drives others out.
        if hits && self.used + session.prompt <= self.settings.capacity {
            return Some(true);
        }
        (self.has_room() || now >= since + self.settings.max_hold).then_some(false)
    }
}

impl Scheduler for Watermark {
    fn arrive(&mut self, now: Time, turn: Turn) {
        let id = turn.session;
        self.expire(now);
        let has_room = self.queue.is_empty() && self.has_room();
        let session = self.sessions.entry(id).or_insert(Session {
            prompt: 0,
            state: State::Idle { until: now },
            reserved: false,
            takes: 0,
        });
        if !matches!(session.state, State::Idle { .. }) {
            return;
        }
        session.prompt = turn.prompt;
        if has_room || session.reserved {
            self.begin(id);
            self.stats.direct += 1;
            self.arrived.push(id);
            return;
        }
        session.state = State::Waits {
            since: now,
            looked: None,
            hits: false,
        };
        self.queue.insert((now.to_bits(), id));
    }

    fn ended(&mut self, now: Time, id: SessionId, tokens: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if session.state != State::Runs {
            return;
        }
        let until = now + self.settings.grace;
        let takes = if session.reserved { tokens } else { 0 };
        session.state = State::Idle { until };
        self.used = self.used - session.takes + takes;
        session.takes = takes;
        if session.reserved {
            self.reserved.insert((until.to_bits(), id));
        }
    }

    fn withdraw(&mut self, id: SessionId) {
        if let Some(session) = self.sessions.get_mut(&id)
            && let State::Waits { since, .. } = session.state
        {
            session.state = State::Idle { until: since };
            self.queue.remove(&(since.to_bits(), id));
        }
    }

    fn release(&mut self, _now: Time, id: SessionId) {
        self.withdraw(id);
        self.forfeit(id);
        self.used -= self.sessions.remove(&id).map_or(0, |session| session.takes);
        self.arrived.retain(|arrived| *arrived != id);
    }

    fn ready(&mut self, now: Time) -> Vec<SessionId> {
        self.expire(now);
        let mut ready = std::mem::take(&mut self.arrived);
        // Whoever has waited longest first; one whose prompt is cached does not wait for those whose is not.
        let waiting: Vec<SessionId> = self.queue.iter().map(|(_, id)| *id).collect();
        for id in waiting {
            let Some(reserves) = self.may_go(now, id) else { continue };
            let Some(session) = self.sessions.get_mut(&id) else {
                continue;
            };
            session.reserved |= reserves;
            if let State::Waits { since, .. } = session.state
                && now > since
            {
                self.stats.held += 1;
                self.stats.longest_hold = self.stats.longest_hold.max(now - since);
            } else {
                self.stats.direct += 1;
            }
            self.begin(id);
            ready.push(id);
        }
        ready
    }

    fn asks(&self, now: Time) -> Vec<SessionId> {
        let due = |id: &SessionId| match self.sessions.get(id)?.state {
            State::Waits { looked, .. } => Some(looked.is_none_or(|looked| now >= looked + LOOK)),
            _ => None,
        };
        let waiting = self.queue.iter().map(|(_, id)| *id);
        waiting.filter(|id| due(id).unwrap_or(false)).collect()
    }

    fn cached(&mut self, now: Time, id: SessionId, share: Option<f64>) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if let State::Waits { looked, hits, .. } = &mut session.state {
            *looked = Some(now);
            // Where nobody can say, nobody is held for it.
            *hits = share.is_none_or(|share| share >= self.settings.hit);
        }
    }

    fn wake(&self, now: Time) -> Option<Time> {
        let (since, _) = self.queue.first()?;
        let overdue = Time::from_bits(*since) + self.settings.max_hold;
        let look = |id: &SessionId| match self.sessions.get(id)?.state {
            State::Waits { looked, .. } => Some(looked.map_or(now, |looked| looked + LOOK)),
            _ => None,
        };
        let looks = self.queue.iter().filter_map(|(_, id)| look(id));
        // A moment behind its end a reservation is over.
        let ends = self
            .reserved
            .first()
            .map(|(until, _)| Time::from_bits(*until).next_up());
        Some(looks.chain(ends).fold(overdue, Time::min).max(now))
    }

    fn set_capacity(&mut self, tokens: u64) {
        self.settings.capacity = tokens;
    }

    fn forget_cache(&mut self) {
        while let Some(&(_, id)) = self.reserved.first() {
            self.forfeit(id);
        }
        for session in self.sessions.values_mut() {
            if let State::Waits { hits, .. } = &mut session.state {
                *hits = false;
            }
        }
    }

    fn has_room_for(&self, _tokens: u64) -> bool {
        self.queue.is_empty() && self.has_room()
    }

    fn admitted(&self) -> u64 {
        self.used
    }

    fn waiting(&self) -> usize {
        self.queue.len()
    }

    fn stats(&self) -> SchedulerStats {
        self.stats
    }
}
