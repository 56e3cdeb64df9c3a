//! What a setting of `[async]` would come to: a discrete-event simulation of both sides over measured durations, which
//! drives the same gate and queue as a run.
//!
//! Both sides have their own machines here: that sampling slows updates down, or the other way round, is not in it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use schemars::JsonSchema;
use serde::Serialize;

use super::{GroupQueue, StalenessGate};

/// How long things take, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Durations {
    /// Of trials, in any order; they are gone through again and again.
    pub trials: Vec<f64>,
    /// Of an update.
    pub update: f64,
    /// Of a publication of weights.
    pub publish: f64,
}

/// A setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Setting {
    /// Groups of an update.
    pub required: u32,
    /// Trials of a group.
    pub group_size: u32,
    /// Trials at a time.
    pub concurrency: u32,
    /// `async.trigger_sync_step`
    pub trigger: u32,
    /// `async.staleness`; 0 with `trigger` 1 is as in turns.
    pub staleness: f64,
}

/// What it comes to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Forecast {
    /// `async.staleness`
    pub staleness: f64,
    /// `async.trigger_sync_step`
    pub trigger_sync_step: u32,
    /// Trials that end in an hour.
    pub episodes_per_hour: f64,
    /// Against `staleness` 0 with `trigger_sync_step` 1.
    pub speedup: f64,
    /// Share of its time that the trainer waits.
    pub trainer_idle: f64,
    /// Share of the slots for trials that stand empty.
    pub rollouter_idle: f64,
    /// Publications between the beginning of a group and its update, on average.
    pub lag_mean: f64,
    /// The most of them.
    pub lag_max: u64,
}

/// Updates that are simulated, and those at the beginning that do not count.
const UPDATES: u64 = 220;
const WARM_UP: u64 = 20;

/// The longest duration that is told apart, in seconds.
pub const LONGEST: f64 = 1e7;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A trial of this group ends.
    Trial(u64),
    Published,
}

/// A moment in microseconds, so that it has an order.
fn moment(seconds: f64) -> u64 {
    (seconds.clamp(0.0, LONGEST) * 1e6) as u64
}

/// What each setting comes to; the first row is what the others are compared with, and is not among the settings.
pub fn forecast(durations: &Durations, base: Setting, settings: &[(f64, u32)]) -> Vec<Forecast> {
    let turns = run(
        durations,
        Setting {
            trigger: 1,
            staleness: 0.0,
            ..base
        },
    );
    let others = settings.iter().map(|&(staleness, trigger)| {
        run(
            durations,
            Setting {
                trigger,
                staleness,
                ..base
            },
        )
    });
    let against = turns.episodes_per_hour;
    let compared = |forecast: Forecast| Forecast {
        speedup: forecast.episodes_per_hour / against,
        ..forecast
    };
    std::iter::once(turns).chain(others).map(compared).collect()
}

struct Group {
    left: u32,
    /// Publications before it began.
    begun: u64,
}

fn run(durations: &Durations, setting: Setting) -> Forecast {
    let mut gate = StalenessGate::new(setting.required, setting.trigger, setting.staleness);
    let mut queue: GroupQueue<u64> = GroupQueue::new(gate.capacity() as usize);
    let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
    let mut waiting: VecDeque<u64> = VecDeque::new();
    let mut events: BinaryHeap<Reverse<(u64, Event)>> = BinaryHeap::new();
    let (mut now, mut running, mut next_group, mut next_trial) = (0u64, 0u32, 0u64, 0usize);
    let (mut updates, mut publications, mut busy) = (0u64, 0u64, false);
    let (mut lags, mut lag_max, mut counted) = (0u64, 0u64, 0u64);
    let (mut since, mut trainer_idle, mut slots_idle, mut ended) = (0u64, 0u64, 0f64, 0u64);
    while updates < UPDATES {
        while running < setting.concurrency {
            if waiting.is_empty() && gate.is_open() && !queue.is_full() {
                gate.begin();
                let group = Group {
                    left: setting.group_size,
                    begun: publications,
                };
                groups.insert(next_group, group);
                waiting.extend(std::iter::repeat_n(next_group, setting.group_size as usize));
                next_group += 1;
            }
            let Some(group) = waiting.pop_front() else { break };
            let seconds = durations.trials[next_trial % durations.trials.len()];
            next_trial += 1;
            running += 1;
            events.push(Reverse((now + moment(seconds), Event::Trial(group))));
        }
        if !busy && queue.len() >= setting.required as usize {
            busy = true;
            updates += 1;
            if updates == WARM_UP {
                (since, trainer_idle, slots_idle, ended) = (now, 0, 0.0, 0);
            }
            let taken = queue.take(setting.required as usize);
            for group in taken {
                let begun = groups.remove(&group).map_or(publications, |group| group.begun);
                if updates >= WARM_UP {
                    let lag = publications - begun;
                    lags += lag;
                    lag_max = lag_max.max(lag);
                    counted += 1;
                }
            }
            let publishes = updates.is_multiple_of(setting.trigger.into());
            let seconds = durations.update + if publishes { durations.publish } else { 0.0 };
            events.push(Reverse((now + moment(seconds), Event::Published)));
        }
        let Some(Reverse((at, event))) = events.pop() else {
            break;
        };
        let passed = at - now;
        trainer_idle += if busy { 0 } else { passed };
        slots_idle += passed as f64 * f64::from(setting.concurrency - running);
        now = at;
        match event {
            Event::Trial(group) => {
                running -= 1;
                ended += 1;
                if let Some(open) = groups.get_mut(&group) {
                    open.left -= 1;
                    if open.left == 0
                        && let Some(oldest) = queue.push(group)
                    {
                        groups.remove(&oldest);
                        gate.dropped(1);
                    }
                }
            }
            Event::Published => {
                busy = false;
                gate.consumed(setting.required.into());
                if updates.is_multiple_of(setting.trigger.into()) {
                    publications += 1;
                    gate.published();
                }
            }
        }
    }
    let passed = (now - since).max(1) as f64;
    Forecast {
        staleness: setting.staleness,
        trigger_sync_step: setting.trigger,
        episodes_per_hour: ended as f64 / passed * 3600e6,
        speedup: 1.0,
        trainer_idle: trainer_idle as f64 / passed,
        rollouter_idle: slots_idle / passed / f64::from(setting.concurrency),
        lag_mean: lags as f64 / counted.max(1) as f64,
        lag_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Setting = Setting {
        required: 4,
        group_size: 8,
        concurrency: 32,
        trigger: 1,
        staleness: 0.0,
    };

    #[test]
    fn sides_that_take_as_long_as_each_other_go_twice_as_fast_side_by_side() {
        let durations = Durations {
            trials: vec![10.0],
            update: 10.0,
            publish: 0.0,
        };
        let rows = forecast(&durations, BASE, &[(1.0, 1), (0.0, 2)]);
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.02, "{found} {expected}");
        // 32 trials in 20 s.
        close(rows[0].episodes_per_hour / 3600.0, 1.6);
        close(rows[0].trainer_idle, 0.5);
        close(rows[0].rollouter_idle, 0.5);
        assert_eq!((rows[0].lag_max, rows[0].speedup), (0, 1.0));
        close(rows[1].speedup, 2.0);
        close(rows[1].trainer_idle, 0.0);
        assert_eq!(rows[1].lag_max, 1);
        // Two updates a publication: the second batch is sampled beside the first update, and nothing beside the second.
        close(rows[2].speedup, 4.0 / 3.0);
    }

    #[test]
    fn one_long_trial_holds_up_its_group_alone() {
        let mut trials = vec![1.0; 63];
        trials.push(40.0);
        let durations = Durations {
            trials,
            update: 1.0,
            publish: 0.0,
        };
        let rows = forecast(&durations, BASE, &[(8.0, 1)]);
        assert!(rows[1].speedup > 5.0, "{rows:?}");
        assert!(
            rows[1].lag_max > 9,
            "the group that was held up is older than the bound of the others: {rows:?}"
        );
    }
}
