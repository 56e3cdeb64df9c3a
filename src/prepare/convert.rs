//! Inline records to Harbor task folders.

use std::collections::HashMap;
use std::io::Write as _;
use std::path::Path;

use serde_json::{Map, Value};

use super::family::{Family, family};
use super::read::{RawRecord, records};
use super::record::{Fault, InlineRecord, fault};
use super::stage::{Stage, StagedFile, StagedFolder};
use super::{PrepareError, PrepareReport, PrepareRow, PrepareStatus, RejectedRow, Source};
use crate::task::{parse_task_toml, write_atomically};

/// Version of rejected.jsonl and prepare-report.json.
pub(super) const REPORT_VERSION: u32 = 1;
const BASE_IMAGE: &str = "debian:trixie-slim";
const DEFAULT_SOURCE: &str = "inline";

/// How records are converted.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConvertOptions {
    /// Whether folders that are there are written again.
    pub overwrite: bool,
}

/// Converts the records of a source into task folders below `out`, and writes rejected.jsonl and
/// prepare-report.json there.
///
/// `on_row` hears of every record as it is done. A bad record is rejected with line and reason and the rest
/// goes on; a family that is not converted yet, or a source that cannot be split into records, is an error.
pub fn convert(
    source: Source,
    out: &Path,
    options: ConvertOptions,
    on_row: &mut dyn FnMut(&PrepareRow),
) -> Result<PrepareReport, PrepareError> {
    let name = source.name();
    let report = PrepareReport {
        schema_version: REPORT_VERSION,
        source: name.clone(),
        ..PrepareReport::default()
    };
    let mut run = Conversion {
        name,
        out,
        options,
        stage: Stage::new(out)?,
        seen: HashMap::new(),
        rejected: Vec::new(),
        report,
    };
    records(source, &mut |record| {
        on_row(&run.take(&record)?);
        Ok(())
    })?;
    let Conversion {
        stage,
        rejected,
        report,
        ..
    } = run;
    stage.finish()?;
    write_atomically(&out.join("rejected.jsonl"), |file| {
        Ok::<_, PrepareError>(file.write_all(&rejected)?)
    })?;
    let text = serde_json::to_string_pretty(&report).map_err(std::io::Error::from)?;
    write_atomically(&out.join("prepare-report.json"), |file| {
        Ok::<_, PrepareError>(file.write_all(format!("{text}\n").as_bytes())?)
    })?;
    Ok(report)
}

struct Conversion<'a> {
    name: String,
    out: &'a Path,
    options: ConvertOptions,
    stage: Stage,
    seen: HashMap<String, usize>,
    rejected: Vec<u8>,
    report: PrepareReport,
}

impl Conversion<'_> {
    fn take(&mut self, raw: &RawRecord) -> Result<PrepareRow, PrepareError> {
        self.report.records += 1;
        let (id, outcome) = match parse(raw) {
            Err(fault) => (None, Err(fault)),
            Ok(object) => {
                if let Family::Other(family) = family(&object) {
                    return Err(PrepareError::Unsupported {
                        name: self.name.clone(),
                        line: raw.line,
                        family,
                    });
                }
                let id = object.get("instance_id").and_then(Value::as_str).map(str::to_owned);
                (id, self.write(object, raw.line)?)
            }
        };
        let (status, reason) = match outcome {
            Ok(status) => (status, None),
            Err(fault) => {
                self.reject(raw.line, id.clone(), &fault)?;
                (PrepareStatus::Rejected, Some(fault.reason.to_owned()))
            }
        };
        match status {
            PrepareStatus::Converted => self.report.converted += 1,
            PrepareStatus::Existing => self.report.existing += 1,
            PrepareStatus::Rejected => self.report.rejected += 1,
        }
        Ok(PrepareRow {
            task: id,
            stage: "convert".to_owned(),
            status,
            reason,
        })
    }

    /// Writes one task folder, unless the record is at fault or the folder is there.
    fn write(&mut self, object: Map<String, Value>, line: usize) -> Result<Result<PrepareStatus, Fault>, PrepareError> {
        if family(&object) == Family::Unknown {
            let fields = object
                .keys()
                .map(|key| format!("`{key}`"))
                .collect::<Vec<_>>()
                .join(", ");
            return Ok(Err(fault(
                "unknown_family",
                format!("no known family of records has just the fields {fields}"),
            )));
        }
        let (record, ignored) = match InlineRecord::of(object) {
            Ok(checked) => checked,
            Err(fault) => return Ok(Err(fault)),
        };
        if let Some(first) = self.seen.get(&record.instance_id) {
            let detail = format!("instance_id `{}` is that of line {first}", record.instance_id);
            return Ok(Err(fault("duplicate_id", detail)));
        }
        let manifest = match manifest(&record) {
            Ok(text) => text,
            Err(fault) => return Ok(Err(fault)),
        };
        let id = record.instance_id.clone();
        match parse_task_toml(Path::new(&id), &manifest) {
            Err(error) => {
                return Ok(Err(fault(
                    "wrong_task_key",
                    format!("`task` makes no task.toml: {error}"),
                )));
            }
            // Line numbers are those of the file we write, which help nobody with the record.
            Ok((_, warnings)) => {
                let lines = warnings
                    .iter()
                    .map(|warning| format!("line {line}, {id}: {}", warning.message));
                self.report.warnings.extend(lines);
            }
        }
        for field in ignored {
            *self.report.ignored_fields.entry(field).or_default() += 1;
        }
        self.seen.insert(id.clone(), line);
        if self.out.join(&id).exists() && !self.options.overwrite {
            return Ok(Ok(PrepareStatus::Existing));
        }
        self.stage.add(StagedFolder {
            name: id,
            folders: &["environment/files", "tests"],
            files: files(record, manifest),
        })?;
        Ok(Ok(PrepareStatus::Converted))
    }

    fn reject(&mut self, line: usize, instance_id: Option<String>, fault: &Fault) -> Result<(), PrepareError> {
        *self
            .report
            .rejected_by_reason
            .entry(fault.reason.to_owned())
            .or_default() += 1;
        let row = RejectedRow {
            v: REPORT_VERSION,
            line,
            instance_id,
            reason: fault.reason.to_owned(),
            detail: fault.detail.clone(),
        };
        serde_json::to_writer(&mut self.rejected, &row).map_err(std::io::Error::from)?;
        self.rejected.push(b'\n');
        self.report.first_rejected.get_or_insert(row);
        Ok(())
    }
}

fn parse(raw: &RawRecord) -> Result<Map<String, Value>, Fault> {
    let text = std::str::from_utf8(&raw.bytes).map_err(|error| {
        fault(
            "not_utf8",
            format!("byte {} of line {} is not UTF-8", error.valid_up_to() + 1, raw.line),
        )
    })?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(fault(
            "not_an_object",
            format!("line {} is JSON, but no object", raw.line),
        )),
        Err(error) => {
            let reason = error.to_string();
            let reason = reason.split(" at line ").next().unwrap_or_default();
            let line = raw.line + error.line().saturating_sub(1);
            Err(fault(
                "invalid_json",
                format!("invalid JSON at line {line}, column {}: {reason}", error.column()),
            ))
        }
    }
}

/// task.toml of a record: its `task`, over what every task gets.
fn manifest(record: &InlineRecord) -> Result<String, Fault> {
    let wrong = |error: &dyn std::fmt::Display| fault("wrong_task_key", format!("`task` makes no task.toml: {error}"));
    let source = record.data_source.as_deref().unwrap_or(DEFAULT_SOURCE);
    let mut metadata = toml::Table::from_iter([("data_source".to_owned(), source.into())]);
    if let Some(split) = &record.split {
        metadata.insert("split".to_owned(), split.as_str().into());
    }
    let mut table = toml::Table::from_iter([
        ("schema_version".to_owned(), "1.4".into()),
        (
            "task".to_owned(),
            toml::Table::from_iter([("name".to_owned(), format!("lego/{}", record.instance_id).into())]).into(),
        ),
        ("metadata".to_owned(), metadata.into()),
    ]);
    let mut given = record.task.clone();
    without_nulls(&mut given);
    // The Dockerfile that brings the files starts from the image.
    if let Some(environment) = given.get_mut("environment").and_then(Value::as_object_mut) {
        environment.remove("docker_image");
    }
    merge(&mut table, toml::Table::try_from(given).map_err(|error| wrong(&error))?);
    toml::to_string(&table).map_err(|error| wrong(&error))
}

fn without_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    object
        .values_mut()
        .filter_map(Value::as_object_mut)
        .for_each(without_nulls);
}

/// Tables merge, everything else replaces.
fn merge(base: &mut toml::Table, over: toml::Table) {
    for (key, value) in over {
        match (base.get_mut(&key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(over)) => merge(inner, over),
            (_, value) => {
                base.insert(key, value);
            }
        }
    }
}

fn files(record: InlineRecord, manifest: String) -> Vec<StagedFile> {
    let environment = |key: &str| {
        record
            .task
            .get("environment")
            .and_then(|table| table.get(key))
            .and_then(Value::as_str)
    };
    let (image, workdir) = (
        environment("docker_image").unwrap_or(BASE_IMAGE),
        environment("workdir").unwrap_or("/app"),
    );
    let workdir = workdir.trim_end_matches('/');
    let dockerfile = format!("FROM {image}\nCOPY files/ {workdir}/\nWORKDIR {workdir}\n");
    let plain = |path: &str, content: String| StagedFile {
        path: path.to_owned(),
        content,
        executable: false,
    };
    let script = |path: &str, content: String| StagedFile {
        path: path.to_owned(),
        content,
        executable: true,
    };
    let mut files = vec![
        plain("task.toml", manifest),
        plain("instruction.md", format!("{}\n", record.problem_statement.trim_end())),
        plain("environment/Dockerfile", dockerfile),
        script("tests/test.sh", record.test),
    ];
    files.extend(record.solution.map(|solution| script("solution/solve.sh", solution)));
    for (folder, contents) in [("environment/files", record.files), ("tests", record.test_files)] {
        files.extend(contents.into_iter().map(|(path, content)| StagedFile {
            path: format!("{folder}/{path}"),
            executable: content.starts_with("#!"),
            content,
        }));
    }
    files
}
