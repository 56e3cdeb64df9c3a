//! The stages of `lego prepare` over the library.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use lego::config::{ConfigFile, Loaded, Override};
use lego::pipeline::{MeasureJob, PipelineError, ValidateJob};
use lego::prepare::{
    ConvertOptions, IndexOptions, IndexReport, PrepareError, PrepareReport, PrepareRow, PrepareStatus, Source,
    StageRow, index_rows, read_validation, without_excluded, write_summary,
};
use lego::task::IndexRow;

use super::{stack_options, until_stopped, watch};
use crate::config_args::load_layers;
use crate::failure::Failure;
use crate::output::Printer;
use crate::preflight;
use crate::prepare::PrepareArgs;

/// Records to task folders; `None` where it was told to stop on the way.
pub(crate) fn convert(
    printer: &Printer,
    source: &Path,
    out: &Path,
    options: &ConvertOptions,
) -> Result<Option<(PrepareReport, Vec<PrepareRow>)>, Failure> {
    let bar = printer.progress("convert", None);
    let seen: Arc<Mutex<Vec<PrepareRow>>> = Arc::default();
    let (rows, drawn) = (Arc::clone(&seen), bar.clone());
    // Whether it came to an end in order, all folders in place.
    let orderly = Arc::new(AtomicBool::new(false));
    let ends_in_order = Arc::clone(&orderly);
    let (from, to, how) = (source.to_owned(), out.to_owned(), options.clone());
    let ended = until_stopped(printer, "the folders that are being written", |stop| async move {
        let work = tokio::task::spawn_blocking(move || {
            let mut rejected = 0;
            lego::prepare::convert(Source::of(&from), &to, &how, &mut |row: &PrepareRow| {
                let mut rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
                rejected += usize::from(row.status == PrepareStatus::Rejected);
                rows.push(row.clone());
                drawn.set(rows.len() as u64, format!("{rejected} rejected"));
                if stop.finish.is_cancelled() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            })
        });
        match work.await {
            Ok(Err(PrepareError::Stopped)) => {
                ends_in_order.store(true, Ordering::Release);
                Err(PipelineError::Stopped)
            }
            Ok(ended) => Ok(ended),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(PipelineError::Worker(error.to_string())),
        }
    });
    bar.finish();
    let rows = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let Some(ended) = ended? else {
        let of = |status| rows.iter().filter(|row| row.status == status).count();
        let lost = if orderly.load(Ordering::Acquire) {
            ""
        } else {
            " (those of the last seconds may be missing)"
        };
        printer.note(format_args!(
            "stopped after {} records of {}: {} task folders written to {}{lost}, {} there already, {} rejected; nothing is \
             indexed yet; the same command goes on with the rest",
            rows.len(),
            source.display(),
            of(PrepareStatus::Converted),
            out.display(),
            of(PrepareStatus::Existing),
            of(PrepareStatus::Rejected),
        ));
        return Ok(None);
    };
    let report = ended??;
    for warning in &report.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    for (field, records) in &report.ignored_fields {
        printer.note(format_args!("warning: field `{field}` is not read ({records} records)"));
    }
    if report.records == 0 {
        return Err(Failure::nothing_selected(format!("no records in {}", report.source)));
    }
    Ok(Some((report, rows)))
}

/// The run config that the trials take; without a file, defaults.
pub(super) fn config(args: &PrepareArgs, flags: Vec<Override>) -> Result<Loaded, Failure> {
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

/// The tasks of the folder, also those that were found to be none.
pub(super) fn all_tasks(args: &PrepareArgs) -> Result<Vec<IndexRow>, Failure> {
    let all = IndexOptions {
        keep_invalid: true,
        ..IndexOptions::default()
    };
    tasks(args, &all)
}

fn tasks(args: &PrepareArgs, select: &IndexOptions) -> Result<Vec<IndexRow>, Failure> {
    let mut report = IndexReport::default();
    let (rows, _) = index_rows(std::slice::from_ref(&args.out), select, &mut report)?;
    // What the index will not hold is not worth a trial.
    let rows = without_excluded(rows, select)?;
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
    let tasks = all_tasks(args)?;
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
    let told_by_build: Vec<String> = rows
        .iter()
        .filter(|row| row.stage == "build" && row.status == PrepareStatus::Dropped)
        .filter_map(|row| row.task.clone())
        .collect();
    for row in read_validation(&args.out)?.into_values() {
        if let Some(class) = row.class.filter(|_| !told_by_build.contains(&row.instance_id)) {
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
                image: None,
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
