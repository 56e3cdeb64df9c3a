//! `lego prepare`.

use std::path::PathBuf;

use lego::prepare::{ConvertOptions, IndexReport, PrepareError, PrepareReport, PrepareRow, Source, convert, index};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};

const EXAMPLES: &str = "\
Examples:
  lego prepare issues.jsonl
  lego prepare issues.jsonl -o data/tasks --index data/train.parquet --strict
  lego prepare issues.jsonl | jq -r 'select(.status==\"rejected\").reason' | sort | uniq -c
  lego prepare index tasks -o tasks.parquet";

/// Turn issues and datasets into task folders and an index
///
/// Reads records with their files inline. One that cannot be used is listed with its line and reason in
/// `rejected.jsonl` and the others go on. Folders that are there stay as they are.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PrepareArgs {
    #[command(subcommand)]
    only: Option<Only>,
    /// Records: JSON lines, a JSON array, or `-` for stdin
    #[arg(value_name = "SOURCE", required = true)]
    source: Option<PathBuf>,
    /// Folder for the tasks
    #[arg(short, long, value_name = "DIR", default_value = "tasks")]
    out: PathBuf,
    /// The index of all tasks in the folder; absent: `index.parquet` in it
    #[arg(long, value_name = "FILE")]
    index: Option<PathBuf>,
    /// Write over task folders that exist
    #[arg(long)]
    overwrite: bool,
    /// Exit with 1 if any record was rejected
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    format: FormatArg,
}

/// One stage alone.
#[derive(Debug, clap::Subcommand)]
enum Only {
    Index(IndexArgs),
}

/// Write an index of task folders
#[derive(Debug, clap::Args)]
struct IndexArgs {
    /// Task folders, or folders of them
    #[arg(value_name = "TASKS_DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The index
    #[arg(short, long, value_name = "FILE", default_value = "tasks.parquet")]
    out: PathBuf,
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Self {
        Self::usage(error.to_string())
    }
}

pub(crate) fn run(printer: &Printer, args: PrepareArgs) -> Result<Exit, Failure> {
    if let Some(Only::Index(only)) = args.only {
        return run_index(printer, &only);
    }
    let Some(source) = args.source else {
        return Err(Failure::usage("no source is named"));
    };
    if source.is_dir() {
        return Err(
            Failure::usage(format!("{} is a folder, and records are a file", source.display())).hint(format!(
                "`lego prepare index {}` indexes task folders",
                source.display()
            )),
        );
    }
    let mut rows = Vec::new();
    let options = ConvertOptions {
        overwrite: args.overwrite,
    };
    let report = convert(Source::of(&source), &args.out, options, &mut |row: &PrepareRow| {
        rows.push(row.clone());
    })?;
    for warning in &report.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    for (field, records) in &report.ignored_fields {
        printer.note(format_args!("warning: field `{field}` is not read ({records} records)"));
    }
    if report.records == 0 {
        return Err(Failure::nothing_selected(format!("no records in {}", report.source)));
    }
    let path = args.index.unwrap_or_else(|| args.out.join("index.parquet"));
    let indexed = index(std::slice::from_ref(&args.out), &path)?;
    printer.rows(args.format.format, &rows, |_| for_people(&report))?;
    say_broken(printer, &indexed);
    printer.note(format_args!(
        "{} tasks -> {}  (index {})",
        indexed.tasks,
        args.out.display(),
        path.display()
    ));
    let why = args.out.join("rejected.jsonl");
    if indexed.tasks == 0 {
        let (rejected, source) = (report.rejected, &report.source);
        return Err(
            Failure::nothing_selected(format!("none of the {rejected} records in {source} can become a task"))
                .hint(format!("{} says why", why.display())),
        );
    }
    if report.rejected > 0 {
        printer.note(format_args!(
            "{} records rejected, with line and reason in {}",
            report.rejected,
            why.display()
        ));
    }
    Ok(if args.strict && report.rejected > 0 {
        Exit::Negative
    } else {
        Exit::Ok
    })
}

fn run_index(printer: &Printer, args: &IndexArgs) -> Result<Exit, Failure> {
    let report = index(&args.folders, &args.out)?;
    for warning in &report.warnings {
        printer.note(format_args!("warning: {warning}"));
    }
    say_broken(printer, &report);
    if report.tasks == 0 {
        return Err(Failure::nothing_selected("no task folders there")
            .hint("a task folder holds task.toml, instruction.md and tests/test.sh"));
    }
    printer.note(format_args!(
        "{} tasks, {} other folders -> {}",
        report.tasks,
        report.skipped.len(),
        args.out.display()
    ));
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

/// One row: what went in, what came out, and why the rest did not.
fn for_people(report: &PrepareReport) -> String {
    let why: Vec<_> = report
        .rejected_by_reason
        .iter()
        .map(|(reason, count)| format!("{} {count}", reason.replace('_', " ")))
        .collect();
    let counts = [report.records, report.converted, report.existing, report.rejected].map(|count| count.to_string());
    let row = std::iter::once("convert".to_owned())
        .chain(counts)
        .chain([why.join(" · ")])
        .collect();
    table(
        &["STAGE", "IN", "OUT", "EXISTING", "REJECTED", "WHY"],
        &[1, 2, 3, 4],
        [row],
    )
}
