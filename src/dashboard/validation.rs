//! Scores of validation, event by event, and over the cohort: the tasks that are in at least half of the events.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::series::number;
use super::trials::{Trial, Trials};
use crate::metrics::{mean, standard_error};

/// A cohort of fewer of the tasks than this is flagged.
const COVERAGE: f64 = 0.5;

/// One entry an event and set.
pub(super) fn validation(trials: &Trials) -> Value {
    let mut sets: BTreeMap<&str, BTreeMap<u32, Vec<&Trial>>> = BTreeMap::new();
    for trial in trials.list.iter().filter(|trial| trial.validation) {
        let set = trial.source.split('/').next().unwrap_or_default();
        sets.entry(set).or_default().entry(trial.step).or_default().push(trial);
    }
    let sets: Vec<Value> = sets.iter().map(|(set, events)| set_json(set, events)).collect();
    json!({"sets": sets})
}

fn set_json(set: &str, events: &BTreeMap<u32, Vec<&Trial>>) -> Value {
    let mut present: BTreeMap<&str, usize> = BTreeMap::new();
    for trials in events.values() {
        let graded: BTreeSet<&str> = trials
            .iter()
            .filter(|trial| !trial.reward.is_nan())
            .map(|trial| &*trial.task)
            .collect();
        for task in graded {
            *present.entry(task).or_default() += 1;
        }
    }
    let cohort: BTreeSet<&str> = present
        .iter()
        .filter(|(_, events_with)| **events_with * 2 >= events.len())
        .map(|(task, _)| *task)
        .collect();
    let rows: Vec<Value> = events
        .iter()
        .map(|(step, trials)| event(*step, trials, &cohort))
        .collect();
    json!({"set": set, "tasks": present.len(), "cohort": cohort.len(), "events": rows})
}

fn event(step: u32, trials: &[&Trial], cohort: &BTreeSet<&str>) -> Value {
    let sampled = rates(trials, |trial| !trial.greedy);
    let greedy = rates(trials, |trial| trial.greedy);
    let inside: Vec<f64> = sampled
        .iter()
        .filter(|(task, _)| cohort.contains(*task))
        .map(|(_, rate)| *rate)
        .collect();
    let all: Vec<f64> = sampled.values().copied().collect();
    let covered = if cohort.is_empty() {
        0.0
    } else {
        inside.len() as f64 / cohort.len() as f64
    };
    let landed = trials.iter().filter(|trial| !trial.reward.is_nan()).count();
    json!({
        "step": step,
        "score": number(mean(&all)),
        "se": number(standard_error(&all)),
        "cohort_score": number(mean(&inside)),
        "greedy": number(mean(&greedy.values().copied().collect::<Vec<_>>())),
        "tasks": all.len(),
        "trials": trials.len(),
        "landed": landed,
        "coverage": covered,
        "thin": covered < COVERAGE,
    })
}

/// Solve rate of each task.
fn rates<'a>(trials: &[&'a Trial], which: impl Fn(&Trial) -> bool) -> BTreeMap<&'a str, f64> {
    let mut sums: BTreeMap<&str, (f64, f64)> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| which(trial) && !trial.reward.is_nan()) {
        let sum = sums.entry(&trial.task).or_default();
        sum.0 += f64::from(u8::from(trial.solved()));
        sum.1 += 1.0;
    }
    sums.into_iter()
        .map(|(task, (solved, all))| (task, solved / all))
        .collect()
}
