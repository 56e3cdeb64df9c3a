//! `lego diagnose`: not built yet; its help is.

use std::path::PathBuf;

use clap::Subcommand;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::FormatArg;

const EXAMPLES: &str = "\
Examples:
  lego diagnose
  lego diagnose run runs/first --check
  lego diagnose explain token-budget";

/// Say what is wrong with a run, on evidence (not built yet)
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DiagnoseArgs {
    #[command(subcommand)]
    subject: Option<Subject>,
    /// Exit with 1 if a signature matched
    #[arg(long, global = true)]
    check: bool,
    /// Look at steps from this one on
    #[arg(long, global = true, value_name = "STEP")]
    since: Option<u64>,
    #[command(flatten)]
    format: FormatArg,
}

/// What is looked at.
#[derive(Debug, Subcommand)]
enum Subject {
    /// A run directory
    Run { dir: PathBuf },
    /// A folder of shards
    Shards { dir: PathBuf },
    /// The folder of one trial
    Trial { dir: PathBuf },
    /// What a check or signature means
    Explain { id: String },
    /// All signatures
    List,
}

pub(crate) fn run(_: &DiagnoseArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego diagnose"))
}
