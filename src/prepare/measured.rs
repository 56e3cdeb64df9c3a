//! How often a policy solves the tasks: kept beside them, and as a table for others.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PrepareError;
use super::validation::{read_lines, write_lines};
use crate::task::{IndexRow, TaskIndex, write_atomically};

/// Version of attempts.jsonl.
const VERSION: u32 = 1;
const FILE: &str = "attempts.jsonl";

/// A line of attempts.jsonl: trials of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Measured {
    /// Version of the line.
    pub v: u32,
    /// The task.
    pub instance_id: String,
    /// Which task folder it is about: that of this content.
    pub task_checksum: String,
    /// Who tried.
    pub policy: String,
    /// Trials with a valid reward.
    pub attempts: usize,
    /// Those with a reward of at least 1.
    pub solved: usize,
    /// Trials without a valid reward; they are in no rate.
    pub failed: usize,
}

impl Measured {
    /// Of these rewards, `None` for a trial without one.
    pub fn of(instance_id: &str, task_checksum: &str, policy: &str, rewards: &[Option<f32>]) -> Self {
        let valid: Vec<f32> = rewards.iter().copied().flatten().collect();
        Self {
            v: VERSION,
            instance_id: instance_id.to_owned(),
            task_checksum: task_checksum.to_owned(),
            policy: policy.to_owned(),
            attempts: valid.len(),
            solved: valid.iter().filter(|reward| **reward >= 1.0).count(),
            failed: rewards.len() - valid.len(),
        }
    }

    /// Share of valid trials that solved it.
    pub fn pass_rate(&self) -> Option<f64> {
        (self.attempts > 0).then(|| self.solved as f64 / self.attempts as f64)
    }
}

/// What is known of the tasks in a folder, by id.
pub fn read_measured(folder: &Path) -> Result<BTreeMap<String, Measured>, PrepareError> {
    read_lines(&folder.join(FILE), |row: &Measured| row.instance_id.clone())
}

/// Writes attempts.jsonl.
pub fn write_measured(folder: &Path, rows: &BTreeMap<String, Measured>) -> Result<(), PrepareError> {
    write_lines(&folder.join(FILE), rows.values())
}

/// Writes summary.parquet and summary.csv: every task with its rates, those that are left out too.
pub fn write_summary(folder: &Path, rows: &[IndexRow]) -> Result<(), PrepareError> {
    TaskIndex::write(&folder.join("summary.parquet"), rows)?;
    let mut text =
        "instance_id,data_source,split,pass_rate,n_attempts,n_solved,nop_reward,oracle_reward,verify_sec,flaky\n"
            .to_owned();
    for row in rows {
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
        let whole = |value: Option<i32>| value.map_or_else(String::new, |value| value.to_string());
        let _ = writeln!(
            text,
            "{},{},{},{},{},{},{},{},{},{}",
            cell(&row.instance_id),
            cell(&row.data_source),
            cell(row.split.as_deref().unwrap_or_default()),
            number(row.pass_rate),
            whole(row.n_attempts),
            whole(row.n_solved),
            number(row.nop_reward),
            number(row.oracle_reward),
            number(row.verify_sec),
            row.flaky.map_or_else(String::new, |flaky| flaky.to_string()),
        );
    }
    write_atomically(&folder.join("summary.csv"), |file| {
        Ok::<_, PrepareError>(std::io::Write::write_all(file, text.as_bytes())?)
    })
}

/// A cell of a CSV (RFC 4180).
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_without_a_reward_are_in_no_rate() {
        let row = Measured::of("a", "s", "p", &[Some(1.0), Some(0.0), None, Some(0.5)]);
        assert_eq!((row.attempts, row.solved, row.failed), (3, 1, 1));
        assert_eq!(row.pass_rate(), Some(1.0 / 3.0));
        assert_eq!(Measured::of("a", "s", "p", &[None]).pass_rate(), None);
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(cell("a-b"), "a-b");
        assert_eq!(cell("a,\"b\""), "\"a,\"\"b\"\"\"");
    }
}
