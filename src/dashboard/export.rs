//! The page in one file, with the answers to what can be asked of it: it opens without a server, anywhere.

use serde_json::{Map, Value, json};

use super::api::{Parameters, answer};
use super::assets;
use super::board::Board;
use super::error::DashboardError;

/// Points of a series.
const POINTS: &str = "400";
/// Trials that are listed, and of those, how many are kept in full: the newest and the first.
pub const LISTED_TRIALS: usize = 2000;
/// See `LISTED_TRIALS`.
pub const WHOLE_TRIALS: usize = 48;
/// Bytes of trials in full.
const MOST_BYTES: usize = 24 << 20;

/// Writes the page of some runs; all, where none is named.
///
/// # Errors
/// Where a named run is not there.
pub fn export(board: &Board, wanted: &[String]) -> Result<String, DashboardError> {
    let mut ids = Vec::new();
    for name in wanted {
        let Some(run) = board.run(name) else {
            let known: Vec<String> = board.list().iter().map(|run| run.found.name.clone()).collect();
            return Err(DashboardError::NoRun {
                wanted: name.clone(),
                known: if known.is_empty() {
                    "none".to_owned()
                } else {
                    known.join(", ")
                },
            });
        };
        ids.push(run.found.id.clone());
    }
    let mut runs = board.runs_json();
    if let Some(list) = runs["runs"].as_array_mut() {
        if ids.is_empty() {
            ids = list
                .iter()
                .filter_map(|run| run["id"].as_str().map(str::to_owned))
                .collect();
        }
        list.retain(|run| {
            run["id"]
                .as_str()
                .is_some_and(|id| ids.iter().any(|wanted| wanted == id))
        });
    }
    let mut answers = Map::new();
    answers.insert("runs?".to_owned(), runs);
    for id in &ids {
        add_run(board, id, &mut answers);
    }
    let data = json!({
        "answers": answers,
        "made": jiff::Timestamp::now().to_string(),
        "trials": {"listed": LISTED_TRIALS, "whole": WHOLE_TRIALS},
    });
    Ok(assets::single_page(&data.to_string()))
}

/// Adds an answer under what the page asks for it; what cannot be answered is not there.
fn add(board: &Board, answers: &mut Map<String, Value>, name: &str, parameters: &[(&str, &str)]) -> Option<Value> {
    let asked: Parameters = parameters
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    let value = answer(board, name, &asked).ok()?;
    let mut sorted: Vec<_> = parameters.iter().filter(|(key, _)| *key != "points").collect();
    sorted.sort();
    let query: Vec<String> = sorted.iter().map(|(key, value)| format!("{key}={value}")).collect();
    answers.insert(format!("{name}?{}", query.join("&")), value.clone());
    Some(value)
}

fn add_run(board: &Board, id: &str, answers: &mut Map<String, Value>) {
    let detail = add(board, answers, "run", &[("run", id)]);
    for name in ["outcomes", "validation", "diagnosis", "spread"] {
        add(board, answers, name, &[("run", id)]);
    }
    for set in ["train", "val"] {
        add(board, answers, "tasks", &[("run", id), ("set", set)]);
    }
    add(board, answers, "logs", &[("run", id)]);
    for key in detail.iter().filter_map(|detail| detail["keys"].as_array()).flatten() {
        if let Some(key) = key["key"].as_str() {
            add(
                board,
                answers,
                "series",
                &[("run", id), ("keys", key), ("points", POINTS)],
            );
        }
    }
    let most = LISTED_TRIALS.to_string();
    let page = add(
        board,
        answers,
        "trials",
        &[("run", id), ("desc", "1"), ("sort", "step"), ("limit", &most)],
    );
    let rows: Vec<u64> = page
        .iter()
        .filter_map(|page| page["rows"].as_array())
        .flatten()
        .filter_map(|row| row["i"].as_u64())
        .collect();
    let half = WHOLE_TRIALS / 2;
    let whole = rows.iter().take(half).chain(rows.iter().skip(half).rev().take(half));
    let mut bytes = 0;
    for index in whole {
        let index = index.to_string();
        for (name, more) in [("trial", None), ("tokens", Some([("segment", "0"), ("from", "0")]))] {
            let mut parameters = vec![("run", id), ("i", index.as_str())];
            parameters.extend(more.into_iter().flatten());
            bytes += add(board, answers, name, &parameters).map_or(0, |value| value.to_string().len());
        }
        if bytes > MOST_BYTES {
            break;
        }
    }
}
