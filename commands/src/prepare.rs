//! `lego prepare`.

use std::path::PathBuf;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer};

const EXAMPLES: &str = "\
Examples:
  lego prepare issues.jsonl
  lego prepare issues.jsonl -o tasks --strict
  lego prepare issues.jsonl | jq -r 'select(.status==\"dropped\").reason' | sort | uniq -c
  lego prepare index tasks -o tasks.parquet";

/// Turn issues and datasets into task folders and an index
///
/// A record that cannot be used is listed with its line and reason in `rejected.jsonl`; the others go on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct PrepareArgs {
    #[command(subcommand)]
    only: Option<Only>,
    /// Records: JSONL, or `-` for stdin
    #[arg(value_name = "SOURCE", required = true)]
    sources: Vec<PathBuf>,
    /// Folder for the tasks
    #[arg(short, long, value_name = "DIR", default_value = "tasks")]
    out: PathBuf,
    /// Write over task folders that exist
    #[arg(long)]
    overwrite: bool,
    /// Exit with 1 if any record was rejected
    #[arg(long)]
    strict: bool,
    /// Print what would be written, as data, and stop
    #[arg(long)]
    dry_run: bool,
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
    /// Folder with task folders
    #[arg(value_name = "TASKS_DIR", required = true)]
    folders: Vec<PathBuf>,
    /// The index
    #[arg(short, long, value_name = "FILE", default_value = "tasks.parquet")]
    out: PathBuf,
    #[command(flatten)]
    format: FormatArg,
}

pub(crate) fn run(_: &Printer, _: PrepareArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego prepare"))
}
