//! The stages of `lego prepare` over the library.

use std::path::Path;

use lego::config::{ConfigFile, Loaded, Override};
use lego::pipeline::{MeasureJob, ValidateJob};
use lego::prepare::{
    ConvertOptions, IndexOptions, IndexReport, PrepareReport, PrepareRow, PrepareStatus, Source, StageRow, index_rows,
    read_validation, write_summary,
};
use lego::task::IndexRow;

use super::{stack_options, until_stopped, watch};
use crate::config_args::load_layers;
use crate::failure::Failure;
use crate::output::Printer;
use crate::preflight;
use crate::prepare::PrepareArgs;

/// Records to task folders.
pub(crate) fn convert(
    printer: &Printer,
    source: Source,
    out: &Path,
    options: &ConvertOptions,
) -> Result<(PrepareReport, Vec<PrepareRow>), Failure> {
    let bar = printer.progress("convert", None);
    let mut rows: Vec<PrepareRow> = Vec::new();
    let mut rejected = 0;
    let report = lego::prepare::convert(source, out, options, &mut |row: &PrepareRow| {
        rejected += usize::from(row.status == PrepareStatus::Rejected);
        rows.push(row.clone());
        bar.set(rows.len() as u64, format!("{rejected} rejected"));
    });
    bar.finish();
    let report = report?;
    for warning in &report.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    for (field, records) in &report.ignored_fields {
        printer.note(format_args!("warning: field `{field}` is not read ({records} records)"));
    }
    if report.records == 0 {
        return Err(Failure::nothing_selected(format!("no records in {}", report.source)));
    }
    Ok((report, rows))
}

/// The run config that the trials take; without a file, defaults.
fn config(args: &PrepareArgs, flags: Vec<Override>) -> Result<Loaded, Failure> {
    let trials = &args.trials;
    let file = match &trials.run {
        Some(path) => ConfigFile::Path(path.clone()),
        None => ConfigFile::Text {
            name: "defaults".to_owned(),
            text: String::new(),
        },
    };
    let own = [
        trials
            .backend
            .as_ref()
            .map(|name| Override::flag("--backend", "sandbox.backend", name)),
        trials
            .jobs
            .map(|jobs| Override::flag("--jobs", "sandbox.concurrency", jobs)),
    ];
    load_layers(file, &trials.set, own.into_iter().flatten().chain(flags).collect())
}

fn tasks(args: &PrepareArgs, select: &IndexOptions) -> Result<Vec<IndexRow>, Failure> {
    let mut report = IndexReport::default();
    let (rows, _) = index_rows(std::slice::from_ref(&args.out), select, &mut report)?;
    if rows.is_empty() {
        return Err(Failure::nothing_selected(format!("no tasks in {}", args.out.display())));
    }
    Ok(rows)
}

/// Tries every task without its solution and with it; true where it was told to stop.
pub(crate) fn validate(
    printer: &Printer,
    args: &PrepareArgs,
    funnel: &mut Vec<StageRow>,
    rows: &mut Vec<PrepareRow>,
) -> Result<bool, Failure> {
    let all = IndexOptions {
        keep_invalid: true,
        ..IndexOptions::default()
    };
    let tasks = tasks(args, &all)?;
    let total = tasks.len();
    let job = ValidateJob {
        loaded: config(args, Vec::new())?,
        tasks: args.out.clone(),
        rows: tasks,
        repeats: args.trials.repeats,
        stack: stack_options()?,
        stop: tokio_util::sync::CancellationToken::new(),
        observer: watch::watch(printer, args.format.format, false, 1),
    };
    let ended = until_stopped(printer, "trials that run", |stop| {
        lego::pipeline::validate(ValidateJob {
            stop: stop.finish,
            ..job
        })
    })?;
    let Some(ended) = ended else { return Ok(true) };
    let end = ended?;
    if end.interrupted {
        return Ok(true);
    }
    let reasons = end
        .invalid
        .iter()
        .map(|(class, count)| (class.name().to_owned(), *count));
    let unknown = (!end.unknown.is_empty()).then(|| ("infrastructure".to_owned(), end.unknown.len()));
    funnel.push(StageRow {
        stage: "validate".to_owned(),
        into: total,
        out: end.valid,
        dropped: total - end.valid,
        reasons: reasons.chain(unknown).collect(),
        notes: (end.known > 0)
            .then(|| ("known already".to_owned(), end.known))
            .into_iter()
            .collect(),
    });
    for id in &end.unknown {
        printer.note(format_args!(
            "{id}: its trials failed here; the same command tries it again"
        ));
    }
    for row in read_validation(&args.out)?.into_values() {
        if let Some(class) = row.class {
            printer.note(format_args!(
                "{}: {}: {}",
                row.instance_id,
                class.name().replace('_', " "),
                row.detail.unwrap_or_default().lines().next().unwrap_or_default()
            ));
            rows.push(PrepareRow {
                task: Some(row.instance_id),
                stage: "validate".to_owned(),
                status: PrepareStatus::Dropped,
                reason: Some(class.name().to_owned()),
                like: None,
            });
        }
    }
    Ok(false)
}

/// Has the policy try every task; true where it was told to stop.
pub(crate) fn measure(
    printer: &Printer,
    args: &PrepareArgs,
    select: &IndexOptions,
    funnel: &mut Vec<StageRow>,
) -> Result<bool, Failure> {
    let mut flags = vec![Override::flag("--attempts", "rollout.group_size", args.trials.attempts)];
    if let Some(policy) = &args.trials.policy {
        if policy.contains("://") {
            flags.push(Override::flag("--policy", "engine.kind", "openai"));
            flags.push(Override::flag(
                "--policy",
                "engine.endpoints",
                format!("[{}]", toml::Value::from(policy.as_str())),
            ));
        } else if policy.starts_with(lego::hub::PREFIX) {
            flags.push(Override::flag("--policy", "policy.model", policy));
        } else {
            let absolute = std::path::absolute(policy).map_err(|error| Failure::usage("no such path").source(error))?;
            flags.push(Override::flag("--policy", "policy.model", absolute.display()));
        }
    }
    let mut loaded = config(args, flags)?;
    if !super::fetch_models(printer, &mut loaded, false)? {
        return Ok(true);
    }
    if preflight::refuses(printer, &loaded, preflight::Purpose::Rollout { tasks_given: true }) {
        return Err(Failure::negative("the trials of `filter` cannot run as they are set"));
    }
    let tasks = tasks(args, select)?;
    let total = tasks.len();
    let policy = format!(
        "{} {} {} {} t={}",
        loaded.config.scaffold.name,
        loaded.config.policy.model.display(),
        loaded.config.engine.endpoints.join(" "),
        loaded.config.engine.served_model,
        loaded.config.rollout.temperature
    );
    let job = MeasureJob {
        loaded,
        policy,
        tasks: args.out.clone(),
        rows: tasks,
        stack: stack_options()?,
        stop: tokio_util::sync::CancellationToken::new(),
        observer: watch::watch(printer, args.format.format, false, 1),
    };
    let ended = until_stopped(printer, "trials that run", |stop| {
        lego::pipeline::measure(MeasureJob {
            stop: stop.finish,
            ..job
        })
    })?;
    let Some(ended) = ended else { return Ok(true) };
    let end = ended?;
    if end.interrupted {
        return Ok(true);
    }
    let mut report = IndexReport::default();
    let (rows, _) = index_rows(std::slice::from_ref(&args.out), select, &mut report)?;
    write_summary(&args.out, &rows)?;
    funnel.push(StageRow {
        stage: "filter".to_owned(),
        into: total,
        out: total - end.without_reward,
        dropped: end.without_reward,
        reasons: (end.without_reward > 0)
            .then(|| ("no_reward".to_owned(), end.without_reward))
            .into_iter()
            .collect(),
        notes: (end.known > 0)
            .then(|| ("tried already".to_owned(), end.known))
            .into_iter()
            .collect(),
    });
    Ok(false)
}
