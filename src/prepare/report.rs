//! What a preparation did: rows as it goes, a report when it is done.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrepareStatus {
    /// A task folder was written.
    Converted,
    /// A folder of that name was there and was left alone.
    Existing,
    /// The record cannot become a task.
    Rejected,
}

/// One record of a preparation, for `--format json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrepareRow {
    /// The task's id, where the record has one.
    pub task: Option<String>,
    /// `convert`.
    pub stage: String,
    /// What became of it.
    pub status: PrepareStatus,
    /// Class of the fault, for `rejected`.
    pub reason: Option<String>,
}

/// A line of rejected.jsonl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RejectedRow {
    /// Version of the line.
    pub v: u32,
    /// Where the record begins in the source, from 1.
    pub line: usize,
    /// The task's id, where the record has one.
    pub instance_id: Option<String>,
    /// Class of the fault.
    pub reason: String,
    /// What was expected and what was found.
    pub detail: String,
}

/// prepare-report.json.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrepareReport {
    /// Version of this file.
    pub schema_version: u32,
    /// Where the records came from.
    pub source: String,
    /// Records read.
    pub records: usize,
    /// Task folders written.
    pub converted: usize,
    /// Folders that were there and were left alone.
    pub existing: usize,
    /// Records that cannot become tasks; each is in rejected.jsonl.
    pub rejected: usize,
    /// The same by class.
    pub rejected_by_reason: BTreeMap<String, usize>,
    /// The first of them, so that one look tells what is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_rejected: Option<RejectedRow>,
    /// Fields of records that are not read, and in how many records each is.
    pub ignored_fields: BTreeMap<String, usize>,
    /// Warnings about keys in `task` that task.toml does not have.
    pub warnings: Vec<String>,
}
