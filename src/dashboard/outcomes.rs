//! How trials ended, over the steps, and what that says: early against late, groups without signal, where time went.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use super::series::number;
use super::thinking;
use super::trials::{Trial, Trials};
use crate::metrics::{mean, quantile, trend};

/// Bars at most: steps are put together where there are more.
const MOST_BARS: usize = 120;

/// Of training trials, one entry a bar, and the comparison of its two ends.
pub(super) fn outcomes(trials: &Trials) -> Value {
    let list: Vec<&Trial> = trials.list.iter().filter(|trial| !trial.validation).collect();
    let (Some(first), Some(last)) = (
        list.iter().map(|trial| trial.step).min(),
        list.iter().map(|trial| trial.step).max(),
    ) else {
        return json!({"bars": [], "names": [], "total": 0});
    };
    let size = ((last - first) as usize + 1).div_ceil(MOST_BARS).max(1) as u32;
    let mut bars: BTreeMap<u32, Vec<&Trial>> = BTreeMap::new();
    for trial in &list {
        bars.entry((trial.step - first) / size).or_default().push(trial);
    }
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for trial in &list {
        *totals.entry(trial.label()).or_default() += 1;
    }
    let shown: Vec<Value> = bars
        .iter()
        .map(|(bar, trials)| {
            let from = first + bar * size;
            bar_json((from, (from + size - 1).min(last)), trials)
        })
        .collect();
    let quarter = (list.len() / 4).max(1);
    let mut ordered = list.clone();
    ordered.sort_by_key(|trial| trial.step);
    json!({
        "bars": shown,
        "names": totals,
        "total": list.len(),
        "bar_steps": size,
        "early": with_thinking(&ordered[..quarter], &trials.files),
        "late": with_thinking(&ordered[ordered.len() - quarter..], &trials.files),
        "shape": epochs(&ordered, &trials.files),
        "groups": groups(&ordered),
        "tests": trends(&bars, first, size),
    })
}

fn bar_json((from, to): (u32, u32), trials: &[&Trial]) -> Value {
    let (mut counts, mut reasons): (BTreeMap<&str, usize>, BTreeMap<&str, usize>) = Default::default();
    for trial in trials {
        *counts.entry(trial.label()).or_default() += 1;
        if !trial.dropped.is_empty() {
            *reasons.entry(&trial.dropped).or_default() += 1;
        }
    }
    json!({"from": from, "to": to, "n": trials.len(), "counts": counts, "dropped": reasons, "shape": shape(trials)})
}

fn shape(trials: &[&Trial]) -> Value {
    let of = |value: fn(&Trial) -> f64| {
        let values: Vec<f64> = trials
            .iter()
            .map(|trial| value(trial))
            .filter(|value| value.is_finite())
            .collect();
        values
    };
    let average = |value: fn(&Trial) -> f64| number(mean(&of(value)));
    let mut mix: BTreeMap<&str, f64> = BTreeMap::new();
    for trial in trials {
        *mix.entry(trial.label()).or_default() += 1.0 / trials.len() as f64;
    }
    let total = of(|trial| f64::from(trial.seconds.total));
    json!({
        "n": trials.len(),
        "mix": mix,
        "reward": average(|trial| f64::from(trial.reward)),
        "turns": average(|trial| f64::from(trial.turns)),
        "tools": average(|trial| f64::from(trial.tool_calls)),
        "tokens": average(|trial| f64::from(trial.tokens)),
        "trained": average(|trial| f64::from(trial.trained)),
        "tokens_per_turn": average(|trial| f64::from(trial.trained) / f64::from(trial.turns.max(1))),
        "setup_s": average(|trial| f64::from(trial.seconds.setup)),
        "model_s": average(|trial| f64::from(trial.seconds.model)),
        "tool_s": average(|trial| f64::from(trial.seconds.tool)),
        "verify_s": average(|trial| f64::from(trial.seconds.verify)),
        "total_p50_s": number(quantile(&total, 0.5)),
        "total_p95_s": number(quantile(&total, 0.95)),
        "kept": trials.iter().filter(|trial| trial.dropped.is_empty()).count(),
    })
}

fn with_thinking(trials: &[&Trial], files: &[PathBuf]) -> Value {
    let mut value = shape(trials);
    value["thinking"] = thinking::share(trials, files).map_or(Value::Null, number);
    value
}

/// First and last pass over the tasks: the first and the last visit of each task that was visited twice.
fn epochs(ordered: &[&Trial], files: &[PathBuf]) -> Value {
    let mut visits: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for trial in ordered {
        visits.entry(&trial.task).or_insert((trial.step, trial.step)).1 = trial.step;
    }
    let part = |of: fn(&(u32, u32)) -> u32| -> Vec<&Trial> {
        ordered
            .iter()
            .filter(|trial| {
                visits
                    .get(&*trial.task)
                    .is_some_and(|visit| visit.0 < visit.1 && of(visit) == trial.step)
            })
            .copied()
            .collect()
    };
    let (first, last) = (part(|visit| visit.0), part(|visit| visit.1));
    if first.is_empty() {
        return Value::Null;
    }
    let tasks = visits.values().filter(|visit| visit.0 < visit.1).count();
    json!({"first": with_thinking(&first, files), "last": with_thinking(&last, files), "tasks": tasks})
}

/// Groups by what their members' rewards say.
fn groups(ordered: &[&Trial]) -> Value {
    let mut groups: BTreeMap<(u32, &str), Vec<f32>> = BTreeMap::new();
    for trial in ordered
        .iter()
        .filter(|trial| trial.dropped.is_empty() && !trial.reward.is_nan())
    {
        groups.entry((trial.step, &trial.task)).or_default().push(trial.reward);
    }
    let compared: Vec<&Vec<f32>> = groups.values().filter(|rewards| rewards.len() > 1).collect();
    let same = |rewards: &&&Vec<f32>| rewards.iter().all(|reward| (reward - rewards[0]).abs() < 1e-6);
    let equal: Vec<_> = compared.iter().filter(same).collect();
    json!({
        "groups": compared.len(),
        "same": equal.len(),
        "all_solved": equal.iter().filter(|rewards| rewards[0] >= 1.0).count(),
        "all_zero": equal.iter().filter(|rewards| rewards[0] <= 0.0).count(),
    })
}

/// Whether shares move over the steps: slope and t of the least-squares line; |t| < 2 is flat.
fn trends(bars: &BTreeMap<u32, Vec<&Trial>>, first: u32, size: u32) -> Value {
    let test = |name: &str, of: &dyn Fn(&[&Trial]) -> f64| {
        let points: Vec<(f64, f64)> = bars
            .iter()
            .map(|(bar, trials)| (f64::from(first + bar * size), of(trials)))
            .filter(|point| point.1.is_finite())
            .collect();
        let line = trend(&points);
        let t = line.map_or(f64::NAN, |line| line.t);
        let says = match t {
            t if t >= 2.0 => "up",
            t if t <= -2.0 => "down",
            _ => "flat",
        };
        json!({"name": name, "slope": line.map_or(Value::Null, |line| number(line.slope)),
               "t": if t.is_infinite() { json!(1e9 * t.signum()) } else { number(t) }, "says": says})
    };
    let average = |of: fn(&Trial) -> f64| {
        move |trials: &[&Trial]| {
            let values: Vec<f64> = trials
                .iter()
                .map(|trial| of(trial))
                .filter(|value| value.is_finite())
                .collect();
            mean(&values)
        }
    };
    json!([
        test("reward", &average(|trial| f64::from(trial.reward))),
        test("solved", &average(|trial| f64::from(u8::from(trial.solved())))),
        test("turns", &average(|trial| f64::from(trial.turns))),
        test("trained tokens", &average(|trial| f64::from(trial.trained))),
        test("seconds", &average(|trial| f64::from(trial.seconds.total))),
        test(
            "dropped",
            &average(|trial| f64::from(u8::from(!trial.dropped.is_empty())))
        ),
    ])
}
