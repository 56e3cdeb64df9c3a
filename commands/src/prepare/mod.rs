//! `lego prepare`.

mod args;

use lego::prepare::{Combine, IndexReport, PrepareError, StageRow, index};

pub(crate) use args::PrepareArgs;
use args::{CombineArg, IndexArgs, Only, StageName};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::wiring;

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Self {
        Self::usage(error.to_string())
    }
}

pub(crate) fn run(printer: &Printer, args: PrepareArgs) -> Result<Exit, Failure> {
    if let Some(Only::Index(only)) = args.only {
        return run_index(printer, &only);
    }
    if args.build.push.is_some() && !args.has(StageName::Build) {
        return Err(Failure::usage("--push is given, and `--stage` has no `build`"));
    }
    let options = args.convert_options()?;
    let mut select = args.select.options(Combine::Union)?;
    let mut funnel: Vec<StageRow> = Vec::new();
    let mut rows = Vec::new();
    let mut rejected = 0;
    match &args.source {
        Some(source) if args.has(StageName::Convert) => {
            if source.is_dir() {
                let why = format!("{} is a folder, and records are a file", source.display());
                let index = format!("`lego prepare index {}` indexes task folders", source.display());
                return Err(Failure::usage(why).hint(index));
            }
            let Some((report, done)) = wiring::convert(printer, source, &args.out, &options)? else {
                return Ok(Exit::Interrupted);
            };
            rejected = report.rejected;
            funnel.push(report.stage());
            rows = done;
        }
        None if args.has(StageName::Convert) && args.stages.len() == 2 && !args.out.is_dir() => {
            return Err(
                Failure::usage("no source is named").hint("`lego prepare issues.jsonl` reads records from a file")
            );
        }
        Some(_) => return Err(Failure::usage("a source is named, and `--stage` has no `convert`")),
        None if args.has(StageName::Convert) => {
            return Err(Failure::usage("no source is named")
                .hint("leave `convert` out of --stage to go on with a folder of tasks"));
        }
        None => {}
    }
    let path = args.index.clone().unwrap_or_else(|| args.out.join("index.parquet"));
    let filter = select.filter.take();
    let folder = std::slice::from_ref(&args.out);
    let mut stopped = false;
    if args.has(StageName::Build) {
        stopped = wiring::build(printer, &args, &mut funnel, &mut rows)?;
    }
    if args.has(StageName::Validate) && !stopped {
        stopped = wiring::validate(printer, &args, &mut funnel, &mut rows)?;
    }
    if args.has(StageName::Filter) && !stopped {
        stopped = wiring::measure(printer, &args, &select, &mut funnel)?;
    }
    select.filter = filter;
    let indexed = index(folder, &path, &select)?;
    for warning in &indexed.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    funnel.push(indexed.stage());
    rows.extend(indexed.left_out.iter().cloned());
    let funnel = lego::prepare::write_funnel(&args.out, &funnel)?;
    printer.rows(args.format.format, &rows, |_| for_people(&funnel))?;
    say_broken(printer, &indexed);
    printer.note(format_args!(
        "{} tasks -> {}  (index {})",
        indexed.tasks,
        args.out.display(),
        path.display()
    ));
    if stopped {
        printer.note(format_args!("interrupted; the same command goes on"));
        return Ok(Exit::Interrupted);
    }
    let why = args.out.join("rejected.jsonl");
    if indexed.tasks == 0 {
        let records = funnel.first().map_or(0, |stage| stage.into);
        return Err(
            Failure::nothing_selected(format!("none of {records} in {} is left", args.out.display()))
                .hint(format!("{} and invalid.jsonl say why", why.display())),
        );
    }
    if rejected > 0 {
        printer.note(format_args!(
            "{rejected} records rejected, with line and reason in {}",
            why.display()
        ));
    }
    let dropped = funnel
        .iter()
        .filter(|stage| stage.stage != "index")
        .any(|stage| stage.dropped > 0);
    Ok(if args.strict && dropped {
        Exit::Negative
    } else {
        Exit::Ok
    })
}

fn run_index(printer: &Printer, args: &IndexArgs) -> Result<Exit, Failure> {
    let combine = match args.combine {
        CombineArg::Union => Combine::Union,
        CombineArg::Intersection => Combine::Intersection,
    };
    let report = index(&args.folders, &args.out, &args.select.options(combine)?)?;
    for warning in &report.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    say_broken(printer, &report);
    if report.seen == 0 {
        return Err(Failure::nothing_selected("no task folders there")
            .hint("a task folder holds task.toml, instruction.md and tests/test.sh"));
    }
    if report.tasks == 0 {
        return Err(Failure::nothing_selected(format!(
            "none of {} tasks is left: {}",
            report.seen,
            report.stage().why()
        )));
    }
    printer.note(format_args!(
        "{} tasks, {} other folders -> {}",
        report.tasks,
        report.skipped.len(),
        args.out.display()
    ));
    if !report.dropped.is_empty() {
        printer.note(format_args!("left out: {}", report.stage().why()));
    }
    for (split, tasks) in &report.splits {
        printer.note(format_args!("split {split}: {tasks} tasks"));
    }
    Ok(if report.broken.is_empty() {
        Exit::Ok
    } else {
        Exit::Negative
    })
}

fn say_broken(printer: &Printer, report: &IndexReport) {
    for broken in &report.broken {
        printer.note(format_args!("left out: {broken}"));
    }
}

/// A row a stage: what went in, what came out, and why the rest did not.
fn for_people(funnel: &[StageRow]) -> String {
    let rows = funnel.iter().map(|stage| {
        let counts = [stage.into, stage.out, stage.dropped].map(|count| count.to_string());
        std::iter::once(stage.stage.clone())
            .chain(counts)
            .chain([stage.why()])
            .collect()
    });
    table(&["STAGE", "IN", "OUT", "DROPPED", "WHY"], &[1, 2, 3], rows)
}
