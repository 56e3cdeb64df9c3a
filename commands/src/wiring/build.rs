//! `--stage build` of `lego prepare` over the library.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use lego::pipeline::{BuildJob, BuiltTask, ImageState};
use lego::prepare::{InvalidClass, PrepareRow, PrepareStatus, StageRow, read_validation};

use super::prepare::{all_tasks, config};
use super::{stack_options, until_stopped};
use crate::failure::Failure;
use crate::output::{Printer, Progress};
use crate::prepare::PrepareArgs;

/// Tasks at a time where `--jobs` is absent: a build takes more of a machine than a trial does.
const JOBS: usize = 4;

/// Makes the images of all tasks, and pushes them where that is asked for; true where it was told to stop.
pub(crate) fn build(
    printer: &Printer,
    args: &PrepareArgs,
    funnel: &mut Vec<StageRow>,
    rows: &mut Vec<PrepareRow>,
) -> Result<bool, Failure> {
    let tasks = all_tasks(args)?;
    let total = tasks.len();
    let bar = printer.progress("build", Some(total as u64));
    let (watched, told) = (bar.clone(), printer.clone());
    let seen = Mutex::new(Seen::default());
    let job = BuildJob {
        loaded: config(args, Vec::new())?,
        tasks: args.out.clone(),
        rows: tasks,
        jobs: args.trials.jobs.map_or(JOBS, |jobs| jobs as usize),
        push: args.build.push.clone(),
        stack: stack_options()?,
        stop: tokio_util::sync::CancellationToken::new(),
        observer: Arc::new(move |task| {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.task(&told, &watched, task);
        }),
    };
    let ended = until_stopped(printer, "images that are being made", |stop| {
        lego::pipeline::build(BuildJob {
            stop: stop.finish,
            ..job
        })
    });
    bar.finish();
    let Some(ended) = ended? else { return Ok(true) };
    let end = ended?;
    rows.extend(end.tasks.iter().map(row));
    if end.interrupted {
        return Ok(true);
    }
    let count = |of: &dyn Fn(&BuiltTask) -> bool| end.tasks.iter().filter(|task| of(task)).count();
    let missing = count(&|task| matches!(task.state, ImageState::Missing(_)));
    let notes = [
        ("there already", count(&|task| task.state == ImageState::There)),
        ("pushed", count(&|task| task.pushed && task.state == ImageState::Made)),
    ];
    let noted = |counts: &[(&str, usize)]| -> BTreeMap<String, usize> {
        let some = counts.iter().filter(|(_, count)| *count > 0);
        some.map(|(what, count)| ((*what).to_owned(), *count)).collect()
    };
    funnel.push(StageRow {
        stage: "build".to_owned(),
        into: total,
        out: total - missing,
        dropped: missing,
        reasons: noted(&[(InvalidClass::EnvironmentDoesNotBuild.name(), missing)]),
        notes: noted(&notes),
    });
    say_contradictions(printer, args, &end.tasks)?;
    Ok(false)
}

/// Says which tasks have run in trials although their images cannot be made: what trials said stays.
fn say_contradictions(printer: &Printer, args: &PrepareArgs, tasks: &[BuiltTask]) -> Result<(), Failure> {
    let known = read_validation(&args.out)?;
    for task in tasks {
        let missing = matches!(task.state, ImageState::Missing(_));
        if missing && known.get(&task.instance_id).is_some_and(|row| row.class.is_none()) {
            printer.note(format_args!(
                "warning: {}: validation ran it, so it stays a task, and its image cannot be made here now",
                task.instance_id
            ));
        }
    }
    Ok(())
}

/// How far it is.
#[derive(Default)]
struct Seen {
    ended: u64,
    there: u64,
    missing: u64,
}

impl Seen {
    fn task(&mut self, printer: &Printer, bar: &Progress, task: &BuiltTask) {
        self.ended += 1;
        match &task.state {
            ImageState::There => self.there += 1,
            ImageState::Made => {}
            ImageState::Missing(unbuilt) => {
                self.missing += 1;
                printer.note(format_args!(
                    "{}: {}: {}",
                    task.instance_id,
                    InvalidClass::EnvironmentDoesNotBuild.name().replace('_', " "),
                    unbuilt.detail.lines().next().unwrap_or_default()
                ));
            }
        }
        bar.set(
            self.ended,
            format!("{} there already · {} do not build", self.there, self.missing),
        );
    }
}

fn row(task: &BuiltTask) -> PrepareRow {
    let status = match task.state {
        ImageState::Made => PrepareStatus::Built,
        ImageState::There => PrepareStatus::Existing,
        ImageState::Missing(_) => PrepareStatus::Dropped,
    };
    let class = InvalidClass::EnvironmentDoesNotBuild.name();
    PrepareRow {
        task: Some(task.instance_id.clone()),
        stage: "build".to_owned(),
        status,
        reason: (status == PrepareStatus::Dropped).then(|| class.to_owned()),
        like: None,
        image: task.image.clone(),
    }
}
