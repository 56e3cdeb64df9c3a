//! Sessions keep their place while they work, and for a while after; then whoever waits may have it.
//!
//! A turn of a session that has a place is sent at once. Others wait until they fit: until sessions end, or idle ones have
//! been idle for longer than the lease. What runs is never cut. One that has waited for `max_hold` takes the place of any
//! idle session, as long as what those must compute again stays within a share of the time.

use std::collections::{BTreeSet, HashMap};

use super::queue::{Queue, Waiter};
use super::{Scheduler, SchedulerStats, SessionId, Time, Turn};

/// Weight of the newest turn in the growth that is expected of the next.
const NEWEST: f64 = 0.2;

/// How a [`Lease`] decides.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LeaseSettings {
    /// Tokens that the replica's cache holds, beside what all sessions share.
    pub capacity: u64,
    /// Seconds for which an idle session keeps its place although others wait.
    pub lease: Time,
    /// Seconds after which one that waits may displace any idle session.
    pub max_hold: Time,
    /// Share of the time that computing displaced sessions again may take.
    pub tax: f64,
    /// Tokens of a prompt that the replica computes in a second.
    pub prefill_rate: f64,
}

#[derive(Debug)]
struct Session {
    age: u64,
    /// Tokens that it held at the end of its last turn; before its first end, those of its prompt.
    footprint: u64,
    /// Tokens that its turns add, as far as it has had any.
    growth: Option<f64>,
    state: State,
    /// Since when a turn of its waits.
    waits: Option<Time>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// It never had a place.
    New,
    /// It had one.
    Paused,
    /// A turn of its runs.
    Running { reserved: u64 },
    /// It has a place and no turn.
    Idle { since: Time },
}

/// See the module.
#[derive(Debug)]
pub struct Lease {
    settings: LeaseSettings,
    sessions: HashMap<SessionId, Session>,
    /// Those that are idle with a place, by the bits of the time since when: no time is negative.
    idle: BTreeSet<(u64, SessionId)>,
    queue: Queue,
    /// Tokens of all that have a place, with what is reserved for turns that run.
    used: u64,
    /// Growth of a turn, over all sessions.
    growth: f64,
    begun: u64,
    arrived: Vec<SessionId>,
    /// Seconds of computing that displaced sessions have cost.
    forced: Time,
    stats: SchedulerStats,
}

impl Lease {
    /// With nothing admitted.
    pub fn new(settings: LeaseSettings) -> Self {
        Self {
            settings,
            sessions: HashMap::new(),
            idle: BTreeSet::new(),
            queue: Queue::default(),
            used: 0,
            growth: 0.0,
            begun: 0,
            arrived: Vec::new(),
            forced: 0.0,
            stats: SchedulerStats::default(),
        }
    }

    fn growth_of(&self, session: &Session) -> u64 {
        session.growth.unwrap_or(self.growth).max(0.0) as u64
    }

    /// What its next turn needs in all.
    fn need(&self, session: &Session, prompt: u64) -> u64 {
        let grown = session.footprint + self.growth_of(session);
        // The prompt is known exactly; the answer to it is not.
        grown.max(prompt)
    }

    fn begin(&mut self, id: SessionId, held: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let before = match session.state {
            State::Running { reserved } => reserved,
            State::Idle { since } => {
                self.idle.remove(&(since.to_bits(), id));
                session.footprint
            }
            State::New | State::Paused => 0,
        };
        session.state = State::Running { reserved: held };
        session.waits = None;
        self.used = self.used - before + held;
    }

    /// Takes the place of an idle session.
    fn pause(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if let State::Idle { since } = session.state {
            self.idle.remove(&(since.to_bits(), id));
            self.used -= session.footprint;
            session.state = State::Paused;
            self.stats.paused += 1;
        }
    }

    /// One that runs has outgrown the room: the idle make place, whatever their lease.
    fn make_room(&mut self) {
        while self.used > self.settings.capacity
            && let Some(&(_, id)) = self.idle.first()
        {
            self.pause(id);
        }
    }

    /// The idle that have to leave so that so many tokens fit, of those idle since `before`; `None`: not enough.
    fn leavers(&self, need: u64, before: Time) -> Option<Vec<SessionId>> {
        let mut free = self.settings.capacity.saturating_sub(self.used);
        let mut leave = Vec::new();
        for &(since, id) in &self.idle {
            if free >= need || Time::from_bits(since) > before {
                break;
            }
            free += self.sessions.get(&id).map_or(0, |session| session.footprint);
            leave.push(id);
        }
        (free >= need).then_some(leave)
    }

    fn price(&self, sessions: &[SessionId]) -> Time {
        let tokens: u64 = sessions
            .iter()
            .filter_map(|id| self.sessions.get(id))
            .map(|session| session.footprint)
            .sum();
        tokens as f64 / self.settings.prefill_rate.max(1.0)
    }

    /// Those that leave for the head of the queue, where it gets a place now.
    fn places(&mut self, now: Time, head: SessionId) -> Option<Vec<SessionId>> {
        let session = self.sessions.get(&head)?;
        let need = self.need(session, session.footprint);
        // What no replica could hold runs alone.
        let need = need.min(self.settings.capacity);
        let overdue = session.waits.is_some_and(|since| now - since >= self.settings.max_hold);
        if let Some(leave) = self.leavers(need, now - self.settings.lease) {
            return Some(leave);
        }
        if !overdue {
            return None;
        }
        let leave = self.leavers(need, now)?;
        let early: Vec<SessionId> = leave
            .iter()
            .copied()
            .filter(|id| {
                self.idle_since(*id)
                    .is_some_and(|since| now - since < self.settings.lease)
            })
            .collect();
        let price = self.price(&early);
        if self.forced + price > self.settings.tax * now {
            self.stats.short_of_budget += 1;
            return None;
        }
        self.forced += price;
        self.stats.displaced += early.len() as u64;
        Some(leave)
    }

    fn idle_since(&self, id: SessionId) -> Option<Time> {
        match self.sessions.get(&id)?.state {
            State::Idle { since } => Some(since),
            _ => None,
        }
    }

    fn waiter(id: SessionId, session: &Session, since: Time) -> Waiter {
        Waiter {
            session: id,
            age: session.age,
            is_new: session.state == State::New,
            since,
        }
    }
}

impl Scheduler for Lease {
    fn arrive(&mut self, now: Time, turn: Turn) {
        let id = turn.session;
        let age = self.begun;
        let session = self.sessions.entry(id).or_insert_with(|| Session {
            age,
            footprint: turn.prompt,
            growth: None,
            state: State::New,
            waits: None,
        });
        self.begun += u64::from(session.age == age);
        if matches!(session.state, State::New | State::Paused) {
            session.footprint = session.footprint.max(turn.prompt);
            if session.waits.is_none() {
                session.waits = Some(now);
                let waiter = Self::waiter(id, session, now);
                self.queue.push(waiter);
            }
            return;
        }
        let held = self
            .sessions
            .get(&id)
            .map_or(0, |session| self.need(session, turn.prompt));
        self.begin(id, held);
        self.stats.direct += 1;
        self.arrived.push(id);
        self.make_room();
    }

    fn ended(&mut self, now: Time, id: SessionId, tokens: u64) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let State::Running { reserved } = session.state else {
            return;
        };
        let grown = tokens as f64 - session.footprint as f64;
        if session.growth.is_some() {
            self.growth += NEWEST * (grown - self.growth);
        }
        session.growth = Some(session.growth.map_or(self.growth, |own| own + NEWEST * (grown - own)));
        session.footprint = tokens;
        session.state = State::Idle { since: now };
        self.idle.insert((now.to_bits(), id));
        self.used = self.used - reserved + tokens;
        self.make_room();
    }

    fn withdraw(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        if let Some(since) = session.waits.take() {
            let waiter = Self::waiter(id, session, since);
            self.queue.remove(waiter);
        }
    }

    fn release(&mut self, _now: Time, id: SessionId) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        if let Some(since) = session.waits {
            self.queue.remove(Self::waiter(id, &session, since));
        }
        match session.state {
            State::Running { reserved } => self.used -= reserved,
            State::Idle { since } => {
                self.idle.remove(&(since.to_bits(), id));
                self.used -= session.footprint;
            }
            State::New | State::Paused => {}
        }
        self.arrived.retain(|arrived| *arrived != id);
    }

    fn ready(&mut self, now: Time) -> Vec<SessionId> {
        let mut ready = std::mem::take(&mut self.arrived);
        // The head blocks the others, so that small sessions do not starve large ones.
        while let Some(head) = self.queue.head(now - self.settings.max_hold)
            && let Some(leave) = self.places(now, head)
        {
            for id in leave {
                self.pause(id);
            }
            let Some(session) = self.sessions.get(&head) else { break };
            let since = session.waits.unwrap_or(now);
            let held = self.need(session, session.footprint);
            self.queue.remove(Self::waiter(head, session, since));
            self.begin(head, held);
            if now > since {
                self.stats.held += 1;
                self.stats.longest_hold = self.stats.longest_hold.max(now - since);
            } else {
                self.stats.direct += 1;
            }
            ready.push(head);
        }
        ready
    }

    fn wake(&self, now: Time) -> Option<Time> {
        let (_, longest) = self.queue.longest()?;
        let leases = self
            .idle
            .iter()
            .map(|(since, _)| Time::from_bits(*since) + self.settings.lease);
        let lease = leases.into_iter().find(|at| *at > now);
        let overdue = longest + self.settings.max_hold;
        // An overdue one that the budget holds is looked at again when the budget has grown.
        let overdue = if overdue > now { overdue } else { now + 1.0 };
        Some(lease.map_or(overdue, |lease| lease.min(overdue)))
    }

    fn set_capacity(&mut self, tokens: u64) {
        self.settings.capacity = tokens;
        self.make_room();
    }

    fn set_prefill_rate(&mut self, tokens_per_second: f64) {
        self.settings.prefill_rate = tokens_per_second;
    }

    /// Those that are idle come back as any that lost their place, the oldest first.
    fn forget_cache(&mut self) {
        let paused = self.stats.paused;
        while let Some(&(_, id)) = self.idle.first() {
            self.pause(id);
        }
        self.stats.paused = paused;
    }

    fn has_room_for(&self, tokens: u64) -> bool {
        self.queue.len() == 0 && self.used + tokens <= self.settings.capacity
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
