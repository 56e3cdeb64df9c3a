//! Sessions, replicas and schedulers on one clock.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::engine::{Replica, Work};
use super::workload::Session;
use super::{Profile, Scenario};
use crate::balance::placement::{Candidate, Placement, ReplicaId, Wish};
use crate::balance::scheduler::{Scheduler, SchedulerStats, SessionId, Time, Turn};
use crate::config::PlacementPolicy;
use crate::trajectory::PolicyVersion;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Event {
    /// A session sends its next turn.
    Send(SessionId),
    /// A replica's step ends.
    Step(usize),
    /// A scheduler looks again.
    Wake(usize),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct At {
    time: Time,
    order: u64,
    event: Event,
}

impl Eq for At {}

impl Ord for At {
    fn cmp(&self, other: &Self) -> Ordering {
        // The heap gives its greatest: the earliest.
        other
            .time
            .total_cmp(&self.time)
            .then_with(|| other.order.cmp(&self.order))
    }
}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One session on its way.
struct Live {
    plan: Session,
    next: usize,
    replica: usize,
    sent: Time,
}

/// What came of a simulation.
#[derive(Debug, Clone, Default)]
pub(super) struct Outcome {
    /// Over the window that counts.
    pub(super) work: Work,
    pub(super) seconds: Time,
    /// Of all turns that ended in the window, from the wish to send to the last token.
    pub(super) latencies: Vec<f64>,
    pub(super) stats: SchedulerStats,
    /// When the last session of a batch ended.
    pub(super) makespan: Option<Time>,
}

/// Everything that happens in one simulation.
pub(super) struct Simulation<'a> {
    scenario: &'a Scenario,
    replicas: Vec<Replica>,
    steps: Vec<Vec<SessionId>>,
    schedulers: Vec<Box<dyn Scheduler>>,
    wakes: Vec<Option<Time>>,
    working: Vec<bool>,
    live: HashMap<SessionId, Live>,
    begun: u64,
    events: BinaryHeap<At>,
    order: u64,
    now: Time,
    policy: PlacementPolicy,
    placement: Placement,
    latencies: Vec<f64>,
}

impl<'a> Simulation<'a> {
    pub(super) fn new(
        scenario: &'a Scenario,
        policy: PlacementPolicy,
        mut scheduler: impl FnMut() -> Box<dyn Scheduler>,
    ) -> Self {
        let profile: Profile = scenario.profile;
        let count = scenario.replicas.max(1);
        Self {
            replicas: (0..count)
                .map(|_| Replica::new(profile, scenario.load.shared()))
                .collect(),
            steps: vec![Vec::new(); count],
            schedulers: (0..count).map(|_| scheduler()).collect(),
            wakes: vec![None; count],
            working: vec![false; count],
            live: HashMap::new(),
            begun: 0,
            events: BinaryHeap::new(),
            order: 0,
            now: 0.0,
            policy,
            placement: Placement::new(policy, scenario.seed),
            latencies: Vec::new(),
            scenario,
        }
    }

    fn at(&mut self, time: Time, event: Event) {
        self.order += 1;
        self.events.push(At {
            time,
            order: self.order,
            event,
        });
    }

    fn begin_session(&mut self) {
        let id = self.begun;
        self.begun += 1;
        let plan = self.scenario.load.session(self.scenario.seed, id);
        let replica = self.place(id, plan.turns.first().map_or(0, |turn| turn.prompt));
        self.live.insert(
            id,
            Live {
                plan,
                next: 0,
                replica,
                sent: self.now,
            },
        );
        self.at(self.now, Event::Send(id));
    }

    /// The replica of a turn.
    fn place(&mut self, session: SessionId, tokens: u64) -> usize {
        let rate = 1.0 / self.scenario.profile.prefill;
        let one = |(at, replica): (usize, &Replica)| Candidate {
            id: at as ReplicaId,
            hash: at as u64,
            tokens: 0,
            requests: 0,
            queued: replica.queued(),
            rate,
            opens: true,
            version: PolicyVersion::default(),
        };
        let among: Vec<Candidate> = self.replicas.iter().enumerate().map(one).collect();
        let name = session.to_string();
        let wish = Wish {
            session: Some(&name),
            tokens,
            blocks: &[],
        };
        self.placement.place(&wish, &among).map_or(0, |(id, _)| id as usize)
    }

    /// Runs to the end of the window, or of the batch.
    pub(super) fn run(mut self) -> Outcome {
        for _ in 0..self.scenario.sessions {
            self.begin_session();
        }
        let (warm, end) = if self.scenario.batch {
            (0.0, f64::INFINITY)
        } else {
            (self.scenario.warm_up, self.scenario.warm_up + self.scenario.window)
        };
        let mut before: Option<(Work, usize)> = (warm <= 0.0).then(|| (Work::default(), 0));
        while let Some(At { time, event, .. }) = self.events.pop() {
            if before.is_none() && time >= warm {
                before = Some((self.work(), self.latencies.len()));
            }
            if time > end {
                self.now = end;
                break;
            }
            self.now = time;
            match event {
                Event::Send(session) => self.send(session),
                Event::Step(at) => self.step_ended(at),
                Event::Wake(at) => {
                    if self.wakes[at].is_some_and(|due| due <= time) {
                        self.wakes[at] = None;
                        self.dispatch(at);
                    }
                }
            }
            if self.scenario.batch && self.live.is_empty() {
                break;
            }
        }
        let (work, from) = before.unwrap_or_default();
        let stats = self.schedulers.iter().map(|scheduler| scheduler.stats());
        let stats = stats.fold(SchedulerStats::default(), |all, one| SchedulerStats {
            direct: all.direct + one.direct,
            held: all.held + one.held,
            longest_hold: all.longest_hold.max(one.longest_hold),
            paused: all.paused + one.paused,
            displaced: all.displaced + one.displaced,
            short_of_budget: all.short_of_budget + one.short_of_budget,
        });
        Outcome {
            work: difference(self.work(), work),
            seconds: self.now - warm,
            latencies: self.latencies.split_off(from),
            stats,
            makespan: self.scenario.batch.then_some(self.now),
        }
    }

    fn work(&self) -> Work {
        let all = self.replicas.iter().map(|replica| replica.work);
        all.fold(Work::default(), |sum, one| Work {
            sampled: sum.sampled + one.sampled,
            prompts: sum.prompts + one.prompts,
            cached: sum.cached + one.cached,
            again: sum.again + one.again,
            preempted: sum.preempted + one.preempted,
            busy: sum.busy + one.busy,
        })
    }

    fn send(&mut self, session: SessionId) {
        let moved = match self.live.get(&session) {
            Some(live) if matches!(self.policy, PlacementPolicy::RoundRobin | PlacementPolicy::Priced) => {
                let tokens = live.plan.turns[live.next].prompt;
                Some(self.place(session, tokens))
            }
            _ => None,
        };
        let Some(live) = self.live.get_mut(&session) else {
            return;
        };
        live.sent = self.now;
        if let Some(replica) = moved
            && replica != live.replica
        {
            self.schedulers[live.replica].release(self.now, session);
            live.replica = replica;
        }
        let (at, prompt) = (live.replica, live.plan.turns[live.next].prompt);
        self.schedulers[at].arrive(self.now, Turn { session, prompt });
        self.dispatch(at);
    }

    /// Sends what the scheduler lets go.
    fn dispatch(&mut self, at: usize) {
        for session in self.schedulers[at].asks(self.now) {
            let Some(live) = self.live.get(&session) else { continue };
            let shared = self.scenario.load.shared();
            let cached = (shared + self.replicas[at].cached(session)) as f64;
            let share = cached / (shared + live.plan.turns[live.next].prompt) as f64;
            self.schedulers[at].cached(self.now, session, Some(share));
        }
        for session in self.schedulers[at].ready(self.now) {
            if let Some(live) = self.live.get(&session) {
                let turn = live.plan.turns[live.next];
                self.replicas[at].submit(session, turn);
            }
        }
        if let Some(wake) = self.schedulers[at].wake(self.now)
            && self.wakes[at].is_none_or(|due| wake < due)
        {
            self.wakes[at] = Some(wake);
            self.at(wake, Event::Wake(at));
        }
        self.work_on(at);
    }

    fn work_on(&mut self, at: usize) {
        if self.working[at] || self.replicas[at].is_idle() {
            return;
        }
        let (seconds, ended) = self.replicas[at].step();
        self.working[at] = true;
        self.steps[at] = ended;
        self.at(self.now + seconds, Event::Step(at));
    }

    fn step_ended(&mut self, at: usize) {
        self.working[at] = false;
        for session in std::mem::take(&mut self.steps[at]) {
            self.turn_ended(at, session);
        }
        self.dispatch(at);
    }

    fn turn_ended(&mut self, at: usize, session: SessionId) {
        let now = self.now;
        let Some(live) = self.live.get_mut(&session) else {
            return;
        };
        let turn = live.plan.turns[live.next];
        self.latencies.push(now - live.sent);
        live.next += 1;
        self.schedulers[at].ended(now, session, turn.prompt + turn.answer);
        self.placement.ended(&session.to_string(), turn.prompt + turn.answer);
        if live.next < live.plan.turns.len() {
            self.at(now + turn.gap, Event::Send(session));
            return;
        }
        self.live.remove(&session);
        self.placement.end(&session.to_string());
        for (scheduler, replica) in self.schedulers.iter_mut().zip(&mut self.replicas) {
            scheduler.release(now, session);
            replica.forget(session);
        }
        if !self.scenario.batch {
            self.begin_session();
        }
    }
}

fn difference(all: Work, before: Work) -> Work {
    Work {
        sampled: all.sampled - before.sampled,
        prompts: all.prompts - before.prompts,
        cached: all.cached - before.cached,
        again: all.again - before.again,
        preempted: all.preempted - before.preempted,
        busy: all.busy - before.busy,
    }
}
