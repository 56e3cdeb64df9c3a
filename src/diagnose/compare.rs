//! Rows against the call log that they were made of: every id, mask and log-prob, and which weights sampled what.

use crate::trajectory::{Segment, TokenId};

/// How far a log-prob may be from the logged one: it was written in decimal and read back.
const LOGPROB_SLACK: f32 = 1e-6;

/// What differs, one sentence a row at most.
pub(super) fn differences(rows: &[Segment], logged: &[Segment]) -> Vec<String> {
    let mut found: Vec<String> = rows
        .iter()
        .zip(logged)
        .enumerate()
        .filter_map(|(index, (row, logged))| Some(format!("segment {index}: {}", difference(row, logged)?)))
        .collect();
    if rows.len() != logged.len() {
        found.push(format!(
            "{} segments by the log, {} in the shards",
            logged.len(),
            rows.len()
        ));
    }
    found
}

fn difference(row: &Segment, logged: &Segment) -> Option<String> {
    ids("prompt", &row.prompt_ids, &logged.prompt_ids)
        .or_else(|| ids("response", &row.response_ids, &logged.response_ids))
        .or_else(|| {
            let at = first(&row.response_mask, &logged.response_mask, |left, right| left == right)?;
            Some(told("mask", at, &row.response_mask, &logged.response_mask))
        })
        .or_else(|| match (&row.response_logprobs, &logged.response_logprobs) {
            (Some(row), Some(logged)) => {
                let same = |left: &f32, right: &f32| (left - right).abs() <= LOGPROB_SLACK * right.abs().max(1.0);
                let at = first(row, logged, same)?;
                Some(told("log-prob", at, row, logged))
            }
            (None, None) => None,
            (row, _) => {
                let (with, without) = if row.is_some() {
                    ("shards", "log")
                } else {
                    ("log", "shards")
                };
                Some(format!("log-probs are in the {with}, and not in the {without}"))
            }
        })
        .or_else(|| {
            let differ = row.weight_versions != logged.weight_versions;
            differ.then(|| "other weights sampled it by the log".to_owned())
        })
        .or_else(|| {
            let differ = row.is_main_agent != logged.is_main_agent;
            differ.then(|| {
                format!(
                    "is_main_agent is {}, by the log {}",
                    row.is_main_agent, logged.is_main_agent
                )
            })
        })
}

fn ids(part: &str, row: &[TokenId], logged: &[TokenId]) -> Option<String> {
    let at = first(row, logged, |left, right| left == right)?;
    Some(told(&format!("{part} id"), at, row, logged))
}

/// Where two lists differ first, the end of the shorter one included.
fn first<T>(left: &[T], right: &[T], same: impl Fn(&T, &T) -> bool) -> Option<usize> {
    let shared = left.iter().zip(right).position(|(left, right)| !same(left, right));
    shared.or_else(|| (left.len() != right.len()).then(|| left.len().min(right.len())))
}

fn told<T: std::fmt::Display>(what: &str, at: usize, row: &[T], logged: &[T]) -> String {
    let shown = |list: &[T]| list.get(at).map_or_else(|| "none".to_owned(), T::to_string);
    format!("{what} at {at} is {}, by the log {}", shown(row), shown(logged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::{PolicyVersion, VersionSpan};

    fn segment() -> Segment {
        Segment {
            prompt_ids: vec![1, 2],
            response_ids: vec![3, 4, 5],
            response_mask: vec![1, 0, 1],
            response_logprobs: Some(vec![-0.5, 0.0, -3.25]),
            weight_versions: vec![VersionSpan {
                start: 0,
                end: 3,
                version: PolicyVersion::default(),
            }],
            is_main_agent: true,
            ..Segment::default()
        }
    }

    #[test]
    fn the_first_difference_of_each_row_is_told_with_its_place() {
        let changed = |change: &dyn Fn(&mut Segment)| {
            let mut row = segment();
            change(&mut row);
            differences(&[segment(), row], &[segment(), segment()])
        };
        let none: [String; 0] = [];
        assert_eq!(changed(&|_| {}), none);
        // What decimal does to it is no difference.
        let nearly = |row: &mut Segment| row.response_logprobs = Some(vec![-0.5, 0.0, -3.250_000_2]);
        assert_eq!(changed(&nearly), none);
        for (change, told) in [
            (
                &(|row: &mut Segment| row.prompt_ids[1] = 9) as &dyn Fn(&mut Segment),
                "segment 1: prompt id at 1 is 9, by the log 2",
            ),
            (
                &|row| row.response_ids[2] = 9,
                "segment 1: response id at 2 is 9, by the log 5",
            ),
            (
                &|row| row.response_ids.truncate(2),
                "segment 1: response id at 2 is none, by the log 5",
            ),
            (
                &|row| row.response_mask[1] = 1,
                "segment 1: mask at 1 is 1, by the log 0",
            ),
            (
                &|row| row.response_logprobs = Some(vec![-0.5, 0.0, -3.26]),
                "segment 1: log-prob at 2 is -3.26, by the log -3.25",
            ),
            (
                &|row| row.response_logprobs = None,
                "segment 1: log-probs are in the log, and not in the shards",
            ),
            (
                &|row| row.weight_versions.clear(),
                "segment 1: other weights sampled it by the log",
            ),
            (
                &|row| row.is_main_agent = false,
                "segment 1: is_main_agent is false, by the log true",
            ),
        ] {
            assert_eq!(changed(change), [told]);
        }
        assert_eq!(
            differences(&[], &[segment()]),
            ["1 segments by the log, 0 in the shards"]
        );
    }
}
