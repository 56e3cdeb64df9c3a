//! What the page asks for, by name and parameters: the same answers for the server and for a page in one file.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::board::Board;
use super::run::Run;
use super::trials::{Trials, Wanted};
use super::{logs, outcomes, series, task_grid, tokens, trial, validation};
use crate::diagnose;

/// Keys of one answer at most.
const MOST_KEYS: usize = 400;
/// Trials of one page at most.
const MOST_ROWS: usize = 5000;

pub(super) type Parameters = HashMap<String, String>;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No such thing.
    NotFound(String),
    /// Asked wrongly.
    Wrong(String),
}

/// Answers a question.
pub(super) fn answer(board: &Board, name: &str, parameters: &Parameters) -> Result<Value, Refusal> {
    let get = |key: &str| parameters.get(key).map(String::as_str).unwrap_or_default();
    let wrong = |key: &str, what: &str| Refusal::Wrong(format!("`{key}`: expected {what}, found `{}`", get(key)));
    let number = |key: &str, otherwise: u64| match get(key) {
        "" => Ok(otherwise),
        text => text.parse::<u64>().map_err(|_| wrong(key, "a whole number")),
    };
    if name == "runs" {
        return Ok(board.runs_json());
    }
    let run = board
        .run(get("run"))
        .ok_or_else(|| Refusal::NotFound(format!("no run `{}`: it may have been moved or deleted", get("run"))))?;
    let trial_number = || number("i", u64::MAX).map(|index| index as usize);
    let no_trial = || Refusal::NotFound(format!("no trial {} in this run", get("i")));
    Ok(match name {
        "run" => run.detail(),
        "series" => {
            let keys: Vec<&str> = get("keys")
                .split('\n')
                .filter(|key| !key.is_empty())
                .take(MOST_KEYS)
                .collect();
            let range = (number("from", 0)?, number("to", u64::MAX)?);
            series_of(&run, &keys, number("points", 600)? as usize, range)
        }
        "trials" => {
            let wanted = Wanted {
                set: get("set").to_owned(),
                outcome: get("outcome").to_owned(),
                task: get("task").to_owned(),
                search: get("search").to_owned(),
                reward: get("reward").to_owned(),
                step: match get("step") {
                    "" => None,
                    _ => Some(number("step", 0)? as u32),
                },
                sort: get("sort").to_owned(),
                descending: get("desc") == "1",
                offset: number("offset", 0)? as usize,
                limit: (number("limit", 100)? as usize).min(MOST_ROWS),
            };
            of_trials(&run, |trials| trials.page(&wanted))
        }
        "trial" => trial::detail(&run, trial_number()?).ok_or_else(no_trial)?,
        "file" => trial::file(&run, trial_number()?, number("n", 0)? as usize).ok_or_else(no_trial)?,
        "tokens" => {
            let (segment, from) = (number("segment", 0)? as usize, number("from", 0)? as usize);
            let found = tokens::segments(&run, trial_number()?, segment, from).ok_or_else(no_trial)?;
            found.map_err(Refusal::NotFound)?
        }
        "spread" => tokens::spread(&run),
        "outcomes" => of_trials(&run, outcomes::outcomes),
        "tasks" => of_trials(&run, |trials| task_grid::grid(trials, get("set") == "val")),
        "validation" => of_trials(&run, validation::validation),
        "logs" => logs_of(
            &run,
            get("log"),
            number("after", u64::MAX).ok().filter(|after| *after != u64::MAX),
        )?,
        "diagnosis" => diagnosis(&run),
        _ => return Err(Refusal::NotFound(format!("nothing is called `{name}`"))),
    })
}

/// What the trials come to; `reading` tells how many shards that are, where it is not all of them yet.
fn of_trials(run: &Run, look: impl FnOnce(&Trials) -> Value) -> Value {
    let mut value = run.with_trials(look);
    if let Some((read, of)) = run.reading() {
        value["reading"] = json!({"read": read, "of": of});
    }
    value
}

fn series_of(run: &Run, keys: &[&str], points: usize, range: (u64, u64)) -> Value {
    run.with(|held| {
        let found: Map<String, Value> = keys
            .iter()
            .filter_map(|key| Some((*key, held.history.column(key)?)))
            .map(|(key, column)| {
                (
                    key.to_owned(),
                    series::thin(&held.history, column, points, range).to_json(),
                )
            })
            .collect();
        json!({"series": found})
    })
}

fn logs_of(run: &Arc<Run>, log: &str, after: Option<u64>) -> Result<Value, Refusal> {
    let all = run.logs();
    let names: Vec<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    let Some((name, path)) = all.iter().find(|(name, _)| name == log).or_else(|| all.first()) else {
        return Ok(json!({"logs": names, "text": "", "next": 0, "length": 0}));
    };
    let mut value =
        logs::read(path, after).map_err(|error| Refusal::NotFound(format!("{}: {error}", path.display())))?;
    value["logs"] = json!(names);
    value["log"] = json!(name);
    Ok(value)
}

fn diagnosis(run: &Run) -> Value {
    let report = run.with(|held| diagnose::judge(&held.history, run.dir().as_ref(), None));
    match report {
        Ok(report) => json!(report),
        Err(error) => json!({"error": error.to_string()}),
    }
}
