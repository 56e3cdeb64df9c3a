//! What a preparation did: rows as it goes, a report when it is done.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PrepareError;
use crate::task::write_atomically;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PrepareStatus {
    /// A task folder was written.
    Converted,
    /// A folder of that name was there and was left alone; of `build`: its image was there.
    Existing,
    /// The record cannot become a task.
    Rejected,
    /// Its image was pulled, built or pushed.
    Built,
    /// A stage behind found that the task is none.
    Dropped,
}

/// A stage: what went in, what came out, and why the rest did not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StageRow {
    /// Its name.
    pub stage: String,
    /// Records or tasks that went in.
    #[serde(rename = "in")]
    pub into: usize,
    /// Tasks that came out.
    pub out: usize,
    /// The others.
    pub dropped: usize,
    /// The same by reason.
    pub reasons: BTreeMap<String, usize>,
    /// What else is worth knowing of those that came out, such as how many were there already.
    pub notes: BTreeMap<String, usize>,
}

impl StageRow {
    /// Reasons with their counts, the most frequent first, for people.
    pub fn why(&self) -> String {
        let mut reasons: Vec<(&String, &usize)> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let said = |(reason, count): (&String, &usize)| format!("{} {count}", reason.replace('_', " "));
        let notes = self.notes.iter().map(|(note, count)| format!("({note} {count})"));
        reasons
            .into_iter()
            .map(said)
            .chain(notes)
            .collect::<Vec<_>>()
            .join(" · ")
    }
}

impl PrepareReport {
    /// As a stage.
    pub fn stage(&self) -> StageRow {
        StageRow {
            stage: "convert".to_owned(),
            into: self.records,
            out: self.converted + self.existing,
            dropped: self.rejected,
            reasons: self.rejected_by_reason.clone(),
            notes: noted("there already", self.existing),
        }
    }
}

/// A note, where there is anything to note.
pub(super) fn noted(note: &str, count: usize) -> BTreeMap<String, usize> {
    (count > 0).then(|| (note.to_owned(), count)).into_iter().collect()
}

/// Writes the stages of a preparation as funnel.json; those that ran in an earlier call stay. Gives all of them, in order.
pub fn write_funnel(folder: &Path, stages: &[StageRow]) -> Result<Vec<StageRow>, PrepareError> {
    const ORDER: [&str; 5] = ["convert", "build", "validate", "filter", "index"];
    let path = folder.join("funnel.json");
    let earlier: Vec<StageRow> = match fs_err::read(&path) {
        Ok(text) => serde_json::from_slice(&text).unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let ran = |name: &str| stages.iter().any(|stage| stage.stage == name);
    // What was converted anew has not been through the stages behind it.
    let begun_anew = ran(ORDER[0]);
    let mut all: Vec<StageRow> = earlier
        .into_iter()
        .filter(|stage| !begun_anew && !ran(&stage.stage))
        .chain(stages.iter().cloned())
        .collect();
    all.sort_by_key(|stage| ORDER.iter().position(|name| *name == stage.stage));
    let text = serde_json::to_string_pretty(&all).map_err(std::io::Error::from)?;
    write_atomically(&path, |file| {
        Ok::<_, PrepareError>(std::io::Write::write_all(file, format!("{text}\n").as_bytes())?)
    })?;
    Ok(all)
}

/// One record of a preparation, for `--format json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrepareRow {
    /// The task's id, where the record has one.
    pub task: Option<String>,
    /// `convert`, `build`, `validate` or `index`.
    pub stage: String,
    /// What became of it.
    pub status: PrepareStatus,
    /// Class of the fault, for `rejected` and `dropped`.
    pub reason: Option<String>,
    /// The task of another index that a dropped one resembles.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// Its image, for `build`: by digest where it was pushed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// A line of rejected.jsonl.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RejectedRow {
    /// Version of the line.
    pub v: u32,
    /// Where the record begins in the source, from 1.
    pub line: usize,
    /// Which element of a JSON array it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub element: Option<usize>,
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
