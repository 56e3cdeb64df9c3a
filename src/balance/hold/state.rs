//! What a hold knows: names of conversations, who waits, and what sessions share. No task and no clock of its own.

use std::collections::HashMap;

use tokio::sync::oneshot;

use super::{Ask, HoldFigures, HoldSettings, NotLetGo, Probe, USABLE};
use crate::balance::placement::PrefillRate;
use crate::balance::scheduler::{Scheduler, SchedulerStats, SessionId, Time, Turn};

/// Seconds between looks for conversations that nobody ended.
const SWEEP: Time = 30.0;

type Told = oneshot::Sender<Result<(), NotLetGo>>;

/// Names one wait of one conversation's turn.
pub(super) type Ticket = (SessionId, u64);

/// See the module.
#[derive(Debug)]
pub(super) struct State {
    replica: String,
    /// `None` as long as the capacity is not known.
    scheduler: Option<Box<dyn Scheduler>>,
    capacity: u64,
    prefill_rate: PrefillRate,
    ids: HashMap<Name, SessionId>,
    units: HashMap<SessionId, Unit>,
    /// Conversations of each session.
    sessions: HashMap<String, Vec<SessionId>>,
    next: SessionId,
    /// The conversation whose beginning others are compared with.
    first: Option<(SessionId, Vec<u64>)>,
    has_warned: bool,
    has_timer: bool,
    swept: Time,
}

/// A conversation, and which of its turns at the same time.
type Name = (String, u64, u32);

/// A conversation, or one of several turns of it at the same time.
#[derive(Debug)]
struct Unit {
    name: Name,
    /// Tokens that it shares with others, and that are counted once.
    shared: u64,
    turn: TurnState,
    /// Tokens of its last turn, as far as they are known.
    tokens: u64,
    /// Counts its waits.
    wait: u64,
    last: Time,
}

#[derive(Debug)]
enum TurnState {
    None,
    Waits {
        told: Told,
        digest: u64,
        probe: Option<Probe>,
    },
    Runs,
}

impl State {
    pub(super) fn new(replica: &str) -> Self {
        Self {
            replica: replica.to_owned(),
            scheduler: None,
            capacity: 0,
            prefill_rate: PrefillRate::default(),
            ids: HashMap::new(),
            units: HashMap::new(),
            sessions: HashMap::new(),
            next: 0,
            first: None,
            has_warned: false,
            has_timer: false,
            swept: 0.0,
        }
    }

    pub(super) fn set_capacity(&mut self, settings: &HoldSettings, tokens: u64) {
        let capacity = ((tokens as f64 * USABLE) as u64).max(1);
        if self.capacity == capacity {
            return;
        }
        self.capacity = capacity;
        match &mut self.scheduler {
            Some(scheduler) => scheduler.set_capacity(capacity),
            None => self.scheduler = Some(settings.scheduler(capacity)),
        }
    }

    /// A turn has come; `None`: nothing is held here.
    pub(super) fn arrive(
        &mut self,
        now: Time,
        ask: &Ask<'_>,
    ) -> Option<(Ticket, oneshot::Receiver<Result<(), NotLetGo>>)> {
        if self.scheduler.is_none() {
            if !std::mem::replace(&mut self.has_warned, true) {
                tracing::warn!(
                    replica = self.replica,
                    "nothing is held here: the replica does not say how many tokens its cache holds; name them in \
                     `balance.capacity`"
                );
            }
            return None;
        }
        let id = self.unit(ask);
        let (told, receiver) = oneshot::channel();
        let unit = self.units.get_mut(&id)?;
        unit.last = now;
        unit.wait += 1;
        unit.tokens = ask.tokens;
        let ticket = (id, unit.wait);
        unit.turn = TurnState::Waits {
            told,
            digest: ask.digest,
            probe: ask.probe.cloned(),
        };
        let prompt = ask.tokens.saturating_sub(unit.shared);
        self.scheduler.as_mut()?.arrive(now, Turn { session: id, prompt });
        self.let_go(now);
        Some((ticket, receiver))
    }

    /// The conversation of a turn. One that has a turn already is another one, but for a newer attempt at one that waits.
    fn unit(&mut self, ask: &Ask<'_>) -> SessionId {
        let mut name = (ask.session.to_owned(), ask.conversation, 0);
        while let Some(&id) = self.ids.get(&name) {
            let Some(unit) = self.units.get_mut(&id) else { break };
            match &unit.turn {
                TurnState::None => return id,
                TurnState::Waits { digest, .. } if *digest == ask.digest => {
                    if let TurnState::Waits { told, .. } = std::mem::replace(&mut unit.turn, TurnState::None) {
                        let _ = told.send(Err(NotLetGo::Preempted));
                    }
                    if let Some(scheduler) = &mut self.scheduler {
                        scheduler.withdraw(id);
                    }
                    return id;
                }
                TurnState::Waits { .. } | TurnState::Runs => name.2 += 1,
            }
        }
        let id = self.next;
        self.next += 1;
        let shared = self.shared(id, ask);
        self.ids.insert(name.clone(), id);
        self.sessions.entry(name.0.clone()).or_default().push(id);
        self.units.insert(
            id,
            Unit {
                name,
                shared,
                turn: TurnState::None,
                tokens: 0,
                wait: 0,
                last: 0.0,
            },
        );
        id
    }

    /// Tokens that a new conversation shares with the first one. That one counts them.
    fn shared(&mut self, id: SessionId, ask: &Ask<'_>) -> u64 {
        let Some((_, first)) = &self.first else {
            self.first = Some((id, ask.blocks.to_vec()));
            return 0;
        };
        let same = first.iter().zip(ask.blocks).take_while(|(one, other)| one == other);
        (same.count() as f64 * ask.block_tokens) as u64
    }

    /// Tells those that may go.
    pub(super) fn let_go(&mut self, now: Time) {
        let Some(scheduler) = &mut self.scheduler else {
            return;
        };
        for id in scheduler.ready(now) {
            let Some(unit) = self.units.get_mut(&id) else { continue };
            unit.last = now;
            if let TurnState::Waits { told, .. } = std::mem::replace(&mut unit.turn, TurnState::Runs) {
                // One who goes in this moment gives its place back in `withdraw`.
                let _ = told.send(Ok(()));
            }
        }
    }

    /// Whether someone waits and nobody keeps the time; from now on somebody does.
    pub(super) fn wants_timer(&mut self) -> bool {
        let waits = self.scheduler.as_ref().is_some_and(|scheduler| scheduler.waiting() > 0);
        waits && !std::mem::replace(&mut self.has_timer, true)
    }

    /// When time alone may let somebody go; `None`: nobody waits, and nobody keeps the time any more.
    pub(super) fn next_look(&mut self, now: Time) -> Option<Time> {
        let scheduler = self.scheduler.as_ref().filter(|scheduler| scheduler.waiting() > 0);
        let wake = scheduler.and_then(|scheduler| scheduler.wake(now));
        self.has_timer = wake.is_some();
        wake
    }

    /// Turns of which is to be known how much is cached.
    pub(super) fn asks(&self, now: Time) -> Vec<(Ticket, Option<Probe>)> {
        let asked = self.scheduler.iter().flat_map(|scheduler| scheduler.asks(now));
        let turn = |id: SessionId| {
            let unit = self.units.get(&id)?;
            match &unit.turn {
                TurnState::Waits { probe, .. } => Some(((id, unit.wait), probe.clone())),
                TurnState::None | TurnState::Runs => None,
            }
        };
        asked.filter_map(turn).collect()
    }

    /// So many tokens are cached of a turn; `None`: nobody can say.
    pub(super) fn cached(&mut self, now: Time, (id, wait): Ticket, tokens: Option<u64>) {
        let (Some(unit), Some(scheduler)) = (self.units.get(&id), &mut self.scheduler) else {
            return;
        };
        if unit.wait != wait || !matches!(unit.turn, TurnState::Waits { .. }) {
            return;
        }
        if tokens.is_none() && !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(
                replica = self.replica,
                "nothing is held here: the replica does not say what it has cached"
            );
        }
        let share = |tokens: u64| tokens as f64 / unit.tokens.max(1) as f64;
        scheduler.cached(now, id, tokens.map(share));
    }

    /// Whoever waited for this turn has gone.
    pub(super) fn withdraw(&mut self, now: Time, (id, wait): Ticket) {
        let Some(unit) = self.units.get_mut(&id) else { return };
        // Else a newer attempt has taken its place.
        if unit.wait != wait {
            return;
        }
        if matches!(unit.turn, TurnState::Runs) {
            let tokens = unit.tokens;
            return self.ended(now, id, tokens);
        }
        unit.turn = TurnState::None;
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.withdraw(id);
        }
        self.let_go(now);
    }

    /// A turn has ended with so many tokens in all.
    pub(super) fn ended(&mut self, now: Time, id: SessionId, tokens: u64) {
        let (Some(unit), Some(scheduler)) = (self.units.get_mut(&id), &mut self.scheduler) else {
            return;
        };
        unit.turn = TurnState::None;
        unit.tokens = tokens;
        unit.last = now;
        scheduler.ended(now, id, tokens.saturating_sub(unit.shared));
        self.let_go(now);
    }

    /// All conversations of the session have ended.
    pub(super) fn release(&mut self, now: Time, session: &str) {
        for id in self.sessions.get(session).cloned().unwrap_or_default() {
            self.drop_unit(now, id);
        }
        self.let_go(now);
    }

    fn drop_unit(&mut self, now: Time, id: SessionId) {
        let Some(unit) = self.units.remove(&id) else { return };
        self.ids.remove(&unit.name);
        if let Some(all) = self.sessions.get_mut(&unit.name.0) {
            all.retain(|other| *other != id);
            if all.is_empty() {
                self.sessions.remove(&unit.name.0);
            }
        }
        if self.first.as_ref().is_some_and(|(first, _)| *first == id) {
            self.first = None;
        }
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.release(now, id);
        }
    }

    /// Releases what nobody has ended and nobody has used for so long.
    pub(super) fn sweep(&mut self, now: Time, ttl: Time) {
        if now - self.swept < SWEEP.min(ttl) {
            return;
        }
        self.swept = now;
        let old = |unit: &Unit| matches!(unit.turn, TurnState::None) && now - unit.last > ttl;
        let old: Vec<SessionId> = self
            .units
            .iter()
            .filter(|(_, unit)| old(unit))
            .map(|(id, _)| *id)
            .collect();
        for id in old {
            self.drop_unit(now, id);
        }
        self.let_go(now);
    }

    pub(super) fn clear(&mut self) {
        for (id, unit) in self.units.drain() {
            if let TurnState::Waits { told, .. } = unit.turn {
                let _ = told.send(Err(NotLetGo::Out));
            }
            if let Some(scheduler) = &mut self.scheduler {
                scheduler.release(0.0, id);
            }
        }
        self.ids.clear();
        self.sessions.clear();
        self.first = None;
    }

    pub(super) fn forget_cache(&mut self, now: Time) {
        if let Some(scheduler) = &mut self.scheduler {
            scheduler.forget_cache();
        }
        self.let_go(now);
    }

    pub(super) fn saw_prefill(&mut self, tokens: u64, seconds: Time) {
        if let (Some(rate), Some(scheduler)) = (self.prefill_rate.saw(tokens, seconds), &mut self.scheduler) {
            scheduler.set_prefill_rate(rate);
        }
    }

    pub(super) fn has_room_for(&self, tokens: u64) -> bool {
        self.scheduler
            .as_deref()
            .is_none_or(|scheduler| scheduler.has_room_for(tokens))
    }

    pub(super) fn figures(&self) -> HoldFigures {
        let scheduler = self.scheduler.as_deref();
        HoldFigures {
            capacity: self.capacity,
            admitted: scheduler.map_or(0, Scheduler::admitted),
            waiting: scheduler.map_or(0, Scheduler::waiting),
            known: self.units.len(),
            stats: scheduler.map_or_else(SchedulerStats::default, Scheduler::stats),
        }
    }
}
