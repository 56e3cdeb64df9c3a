//! Solve rate of each task at each of its visits: never and always solved, improved, regressed.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::trials::Trials;

/// Tasks of one answer at most.
const MOST_TASKS: usize = 1500;
/// Visits of a task that are shown at most; the first and the newest stay.
const MOST_VISITS: usize = 24;
/// By how much a solve rate must move to be told.
const MOVED: f64 = 0.25;

#[derive(Default)]
struct Visit {
    graded: usize,
    solved: usize,
    reward: f64,
    trials: usize,
}

/// The tasks of training, or of validation.
pub(super) fn grid(trials: &Trials, validation: bool) -> Value {
    let mut tasks: BTreeMap<&str, (&str, BTreeMap<u32, Visit>)> = BTreeMap::new();
    for trial in trials.list.iter().filter(|trial| trial.validation == validation) {
        let task = tasks.entry(&trial.task).or_insert((&trial.source, BTreeMap::new()));
        let visit = task.1.entry(trial.step).or_default();
        visit.trials += 1;
        if !trial.reward.is_nan() {
            visit.graded += 1;
            visit.solved += usize::from(trial.solved());
            visit.reward += f64::from(trial.reward);
        }
    }
    let total = tasks.len();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut most_visits = 0;
    let mut rows = Vec::new();
    for (task, (source, visits)) in &tasks {
        let says = class(visits);
        *counts.entry(says).or_default() += 1;
        most_visits = most_visits.max(visits.len());
        if rows.len() < MOST_TASKS {
            rows.push(
                json!({"task": task, "source": source, "says": says, "visits": cells(visits), "all": visits.len()}),
            );
        }
    }
    json!({"total": total, "rows": rows, "counts": counts, "visits": most_visits.min(MOST_VISITS), "shown": rows.len()})
}

fn rate(visit: &Visit) -> Option<f64> {
    (visit.graded > 0).then(|| visit.solved as f64 / visit.graded as f64)
}

fn class(visits: &BTreeMap<u32, Visit>) -> &'static str {
    let rates: Vec<f64> = visits.values().filter_map(rate).collect();
    match (rates.first(), rates.last()) {
        (Some(first), Some(last)) => match () {
            () if rates.iter().all(|rate| *rate == 0.0) => "never solved",
            () if rates.iter().all(|rate| *rate >= 1.0) => "always solved",
            () if last - first >= MOVED => "improved",
            () if first - last >= MOVED => "regressed",
            () => "mixed",
        },
        _ => "not graded",
    }
}

fn cells(visits: &BTreeMap<u32, Visit>) -> Vec<Value> {
    let skip = visits.len().saturating_sub(MOST_VISITS);
    let cell = |(step, visit): (&u32, &Visit)| {
        json!({"step": step, "n": visit.trials, "graded": visit.graded, "solved": visit.solved,
               "rate": rate(visit), "reward": (visit.graded > 0).then(|| visit.reward / visit.graded as f64)})
    };
    let mut shown: Vec<Value> = visits.iter().take(1).map(cell).collect();
    shown.extend(visits.iter().skip(1 + skip).map(cell));
    shown
}
