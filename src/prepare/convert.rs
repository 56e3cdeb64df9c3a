//! Records to Harbor task folders, one after the other, and what became of each.

use std::collections::HashMap;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use serde_json::{Map, Value};

use super::family::{Family, family};
use super::github::Exports;
use super::inline_folder::{files, manifest};
use super::options::ConvertOptions;
use super::read::{RawRecord, records};
use super::record::{Fault, InlineRecord, fault};
use super::repair::Checked;
use super::repo_cache::RepoCache;
use super::stage::{Stage, StagedFolder};
use super::swe::Repair;
use super::unique::{self, NotUnique};
use super::warnings::Warnings;
use super::{PrepareError, PrepareReport, PrepareRow, PrepareStatus, RejectedRow, Source};
use crate::task::{parse_task_toml, write_atomically};

/// Version of rejected.jsonl and prepare-report.json.
pub(super) const REPORT_VERSION: u32 = 1;

/// Converts the records of a source into task folders below `out`, and writes rejected.jsonl and
/// prepare-report.json there.
///
/// `on_row` hears of every record as it is done, and says whether there is to be another. A bad record is rejected with line
/// and reason and the rest goes on; a source that cannot be split into records is an error.
///
/// # Errors
/// [`PrepareError::Stopped`] where there was to be no other: the folders of what is done are in place then, and neither
/// rejected.jsonl nor prepare-report.json is written.
pub fn convert(
    source: Source,
    out: &Path,
    options: &ConvertOptions,
    on_row: &mut dyn FnMut(&PrepareRow) -> ControlFlow<()>,
) -> Result<PrepareReport, PrepareError> {
    let name = source.name();
    let report = PrepareReport {
        schema_version: REPORT_VERSION,
        source: name,
        ..PrepareReport::default()
    };
    let mut run = Conversion {
        out,
        options,
        stage: Stage::new(out)?,
        cache: options.repo_cache.as_deref().map(RepoCache::open).transpose()?,
        exports: Exports::default(),
        seen: HashMap::new(),
        rejected: Vec::new(),
        warnings: Warnings::default(),
        report,
    };
    let converted = run.all(source, on_row);
    let Conversion {
        stage,
        rejected,
        warnings,
        mut report,
        ..
    } = run;
    if matches!(converted, Ok(()) | Err(PrepareError::Stopped)) {
        stage.finish()?;
    }
    converted?;
    report.warnings = warnings.lines("records");
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
    out: &'a Path,
    options: &'a ConvertOptions,
    stage: Stage,
    cache: Option<RepoCache>,
    /// Issues and pull requests, which only all of them together tell.
    exports: Exports,
    seen: HashMap<String, usize>,
    rejected: Vec<u8>,
    /// About keys of task.toml.
    warnings: Warnings,
    report: PrepareReport,
}

impl Conversion<'_> {
    /// Every record of the source, until `on_row` has enough.
    fn all(
        &mut self,
        source: Source,
        on_row: &mut dyn FnMut(&PrepareRow) -> ControlFlow<()>,
    ) -> Result<(), PrepareError> {
        let mut tell = |row: &PrepareRow| match on_row(row) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PrepareError::Stopped),
        };
        records(source, &mut |record| match self.take(&record)? {
            Some(row) => tell(&row),
            None => Ok(()),
        })?;
        for (line, id, repair) in std::mem::take(&mut self.exports).pairs() {
            self.report.records += 1;
            let outcome = match repair {
                Ok(repair) => self.write_repair(repair, line)?,
                Err(fault) => Err(fault),
            };
            tell(&self.row((line, None), id, outcome)?)?;
        }
        Ok(())
    }

    /// `None` where the record waits for others.
    fn take(&mut self, raw: &RawRecord) -> Result<Option<PrepareRow>, PrepareError> {
        let mut id = None;
        let outcome = match parse(raw) {
            Err(fault) => Err(fault),
            Ok(object) => {
                id = object.get("instance_id").and_then(Value::as_str).map(str::to_owned);
                match self.options.family.or_else(|| family(&object)) {
                    Some(Family::Github) => match self.exports.take(raw.line, object) {
                        Ok(()) => return Ok(None),
                        Err(fault) => Err(fault),
                    },
                    Some(Family::Nemotron) => match unwrapped(&object) {
                        Err(fault) => Err(fault),
                        Ok(inner) => {
                            id = inner.get("instance_id").and_then(Value::as_str).map(str::to_owned);
                            let of_inner =
                                family(&inner).filter(|family| !matches!(family, Family::Nemotron | Family::Github));
                            self.of_family(of_inner, inner, raw.line)?
                        }
                    },
                    known => self.of_family(known, object, raw.line)?,
                }
            }
        };
        self.report.records += 1;
        self.row((raw.line, raw.element), id, outcome).map(Some)
    }

    fn of_family(
        &mut self,
        family: Option<Family>,
        object: Map<String, Value>,
        line: usize,
    ) -> Result<Result<PrepareStatus, Fault>, PrepareError> {
        match family {
            None => {
                let fields = object
                    .keys()
                    .map(|key| format!("`{key}`"))
                    .collect::<Vec<_>>()
                    .join(", ");
                Ok(Err(fault(
                    "unknown_family",
                    format!("no known family of records has just the fields {fields}"),
                )))
            }
            Some(Family::Inline) => self.write(object, line),
            Some(family) => match Repair::of(family, object) {
                Err(fault) => Ok(Err(fault)),
                Ok((repair, ignored)) => {
                    self.ignore(ignored);
                    self.write_repair(repair, line)
                }
            },
        }
    }

    fn row(
        &mut self,
        place: (usize, Option<usize>),
        id: Option<String>,
        outcome: Result<PrepareStatus, Fault>,
    ) -> Result<PrepareRow, PrepareError> {
        let (status, reason) = match outcome {
            Ok(status) => (status, None),
            Err(fault) => {
                self.reject(place, id.clone(), &fault)?;
                (PrepareStatus::Rejected, Some(fault.reason.to_owned()))
            }
        };
        match status {
            PrepareStatus::Converted => self.report.converted += 1,
            PrepareStatus::Existing | PrepareStatus::Built => self.report.existing += 1,
            PrepareStatus::Rejected | PrepareStatus::Dropped => self.report.rejected += 1,
        }
        Ok(PrepareRow {
            task: id,
            stage: "convert".to_owned(),
            status,
            reason,
            like: None,
            image: None,
        })
    }

    fn ignore(&mut self, fields: Vec<String>) {
        for field in fields {
            *self.report.ignored_fields.entry(field).or_default() += 1;
        }
    }

    /// Writes the folder of a repair, unless it is at fault or the folder is there.
    fn write_repair(&mut self, repair: Repair, line: usize) -> Result<Result<PrepareStatus, Fault>, PrepareError> {
        if let Some(first) = self.seen.get(&repair.id) {
            let detail = format!("instance_id `{}` is that of line {first}", repair.id);
            return Ok(Err(fault("duplicate_id", detail)));
        }
        let id = repair.id.clone();
        if self.out.join(&id).exists() && !self.options.overwrite {
            self.seen.insert(id, line);
            return Ok(Ok(PrepareStatus::Existing));
        }
        let checked = match Checked::of(repair, self.options, self.cache.as_mut())? {
            Ok(checked) => checked,
            Err(fault) => return Ok(Err(fault)),
        };
        let folder = match checked.folder(self.options) {
            Ok(folder) => folder,
            Err(fault) => return Ok(Err(fault)),
        };
        self.seen.insert(id, line);
        self.stage.add(folder)?;
        Ok(Ok(PrepareStatus::Converted))
    }

    /// Writes one task folder, unless the record is at fault or the folder is there.
    fn write(&mut self, object: Map<String, Value>, line: usize) -> Result<Result<PrepareStatus, Fault>, PrepareError> {
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
                for warning in warnings {
                    self.warnings.add(&warning.message, || format!("line {line}, {id}"));
                }
            }
        }
        self.ignore(ignored);
        self.seen.insert(id.clone(), line);
        if self.out.join(&id).exists() && !self.options.overwrite {
            return Ok(Ok(PrepareStatus::Existing));
        }
        self.stage.add(StagedFolder {
            name: id,
            folders: &["environment/files", "tests"],
            files: files(record, manifest),
            checkout: None,
        })?;
        Ok(Ok(PrepareStatus::Converted))
    }

    fn reject(
        &mut self,
        (line, element): (usize, Option<usize>),
        instance_id: Option<String>,
        fault: &Fault,
    ) -> Result<(), PrepareError> {
        *self
            .report
            .rejected_by_reason
            .entry(fault.reason.to_owned())
            .or_default() += 1;
        let row = RejectedRow {
            v: REPORT_VERSION,
            line,
            element,
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

/// The record that stands in the request of a training environment.
fn unwrapped(object: &Map<String, Value>) -> Result<Map<String, Value>, Fault> {
    let places: [&[&str]; 5] = [
        &["instance_dict"],
        &["verifier_metadata", "instance_dict"],
        &["metadata", "instance_dict"],
        &["responses_create_params", "metadata", "instance_dict"],
        &["verifier_metadata"],
    ];
    for place in places {
        let mut found = object.get(place[0]);
        for key in &place[1..] {
            found = found.and_then(|value| value.get(key));
        }
        let inner = match found {
            Some(Value::String(text)) => serde_json::from_str(text)
                .map_err(|error| fault("invalid_json", format!("`{}` is no JSON: {error}", place.join("."))))?,
            Some(value) => value.clone(),
            None => continue,
        };
        if let Value::Object(inner) = inner {
            return Ok(inner);
        }
    }
    Err(fault(
        "missing_field",
        "no `instance_dict` holds the record that the request is about",
    ))
}

fn parse(raw: &RawRecord) -> Result<Map<String, Value>, Fault> {
    let text = std::str::from_utf8(&raw.bytes).map_err(|error| {
        fault(
            "not_utf8",
            format!("byte {} of line {} is not UTF-8", error.valid_up_to() + 1, raw.line),
        )
    })?;
    match unique::parse(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(fault(
            "not_an_object",
            format!("line {} is JSON, but no object", raw.line),
        )),
        Err(NotUnique { error, twice }) => {
            let said = error.to_string();
            let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
            let line = raw.line + error.line().saturating_sub(1);
            let (reason, what) = if twice {
                ("duplicate_key", "one key too many")
            } else {
                ("invalid_json", "invalid JSON")
            };
            Err(fault(
                reason,
                format!("{what} at line {line}, column {}: {said}", error.column()),
            ))
        }
    }
}
