//! What a pool would do under a load, before it is rented: discrete events, and the very code that
//! places and holds real turns.
//!
//! The model of a replica is in `engine.rs`, of the sessions in `workload.rs`, or they are read off shards (`recorded.rs`). No clock but the simulation's is read.

mod engine;
mod picture;
mod policy;
mod profile;
mod recorded;
mod report;
mod run;
#[cfg(test)]
mod tests;
mod workload;

pub use picture::picture;
pub use policy::{Policy, UnknownPolicy};
pub use profile::{PROFILES, Profile};
pub use recorded::{Recorded, RecordedError};
pub use report::{Latency, Report};
pub use workload::{Load, Spread, Workload};

use std::time::Duration;

use super::hold::{HoldRule, HoldSettings, USABLE};
use super::scheduler::{Cap, Open, Scheduler};
use crate::config::PlacementPolicy;
use run::{Outcome, Simulation};

/// What `[balance]` has where it says nothing.
const MAX_HOLD: Duration = Duration::from_mins(10);
const TAX: f64 = 0.05;
const IDLE_TTL: Duration = Duration::from_mins(30);
const WATERMARK: HoldRule = HoldRule::Watermark {
    high: 0.85,
    hit: 0.8,
    grace: Duration::from_mins(1),
};

/// What is simulated.
#[derive(Debug, Clone, PartialEq)]
pub struct Scenario {
    /// Model and accelerator of each replica.
    pub profile: Profile,
    /// Replicas.
    pub replicas: usize,
    /// Sessions at a time, each followed by another; of a batch, all there are.
    pub sessions: usize,
    /// Whether these sessions are all, and the time to their end counts.
    pub batch: bool,
    /// What sessions do.
    pub load: Load,
    /// Makes the sessions.
    pub seed: u64,
    /// Seconds that do not count.
    pub warm_up: f64,
    /// Seconds that count after them.
    pub window: f64,
}

impl Scenario {
    /// One replica, for 2,400 seconds after 600 of warming up.
    pub fn new(profile: Profile, sessions: usize) -> Self {
        Self {
            profile,
            replicas: 1,
            sessions,
            batch: false,
            load: Load::Drawn(Workload::AGENTS),
            seed: 42,
            warm_up: 600.0,
            window: 2_400.0,
        }
    }
}

/// Serves a load by a policy.
pub fn simulate(scenario: &Scenario, policy: Policy) -> Report {
    let outcome = match policy {
        Policy::BestCap => {
            let (best, outcome) = best_cap(scenario);
            return Report::of(format!("cap:{best}"), scenario.sessions, &outcome);
        }
        Policy::Sticky => open(scenario, PlacementPolicy::Sticky),
        Policy::Priced => open(scenario, PlacementPolicy::Priced),
        Policy::RoundRobin => open(scenario, PlacementPolicy::RoundRobin),
        Policy::Cap(most) => capped(scenario, most),
        Policy::Lease { lease } => held(
            scenario,
            HoldRule::Lease {
                lease: Duration::from_secs_f64(lease),
                tax: TAX,
            },
        ),
        Policy::Watermark => held(scenario, WATERMARK),
    };
    Report::of(policy.to_string(), scenario.sessions, &outcome)
}

fn open(scenario: &Scenario, placement: PlacementPolicy) -> Outcome {
    Simulation::new(scenario, placement, || Box::new(Open::default())).run()
}

fn capped(scenario: &Scenario, most: usize) -> Outcome {
    let scheduler = || -> Box<dyn Scheduler> { Box::new(Cap::new(most)) };
    Simulation::new(scenario, PlacementPolicy::Sticky, scheduler).run()
}

/// Sticky, and turns held as the very hold of a server would.
fn held(scenario: &Scenario, rule: HoldRule) -> Outcome {
    let profile = scenario.profile;
    let settings = HoldSettings {
        rule,
        capacity: None,
        max_hold: MAX_HOLD,
        idle_ttl: IDLE_TTL,
    };
    let capacity = (profile.capacity as f64 * USABLE) as u64;
    let scheduler = || -> Box<dyn Scheduler> {
        let mut scheduler = settings.scheduler(capacity.saturating_sub(scenario.load.shared()));
        scheduler.set_prefill_rate(1.0 / profile.prefill);
        scheduler
    };
    Simulation::new(scenario, PlacementPolicy::Sticky, scheduler).run()
}

/// The cap with the most tokens a second, or the shortest batch. The gain rises with the cap until sessions evict each
/// other, and falls from there.
fn best_cap(scenario: &Scenario) -> (usize, Outcome) {
    let most = scenario.sessions.div_ceil(scenario.replicas.max(1)).max(1);
    let worth = |outcome: &Outcome| match outcome.makespan {
        Some(makespan) => -makespan,
        None => outcome.work.sampled as f64,
    };
    let try_out = |most: usize| (most, capped(scenario, most));
    let mut step = most.div_ceil(8).max(1);
    let mut best = (step..=most)
        .step_by(step)
        .map(try_out)
        .reduce(|best, one| if worth(&one.1) > worth(&best.1) { one } else { best })
        .unwrap_or_else(|| try_out(most));
    while step > 1 {
        step = step.div_ceil(2);
        for near in [best.0.saturating_sub(step), best.0 + step] {
            if near == 0 || near > most {
                continue;
            }
            let one = try_out(near);
            if worth(&one.1) > worth(&best.1) {
                best = one;
            }
        }
        if step == 1 {
            break;
        }
    }
    best
}
