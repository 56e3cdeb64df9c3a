//! `lego dashboard`: not built yet; its help is.

use std::path::PathBuf;

use crate::exit::Exit;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  lego dashboard
  lego dashboard runs --export board.html --run first";

/// Show runs in a browser, live (not built yet)
///
/// The first line on stdout is the address. Until it is built, a run's TensorBoard events are in its `events/`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DashboardArgs {
    /// Folders with runs
    #[arg(value_name = "RUNS_DIR")]
    folders: Vec<PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8090")]
    listen: String,
    /// Open a browser
    #[arg(long)]
    open: bool,
    /// File with the token that a remote browser must know
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Path below which a reverse proxy shows it
    #[arg(long, value_name = "PATH")]
    base_path: Option<String>,
    /// Write one self-contained file instead of serving
    #[arg(long, value_name = "FILE.html")]
    export: Option<PathBuf>,
    /// The run to export
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Start an installed tunnel program and print its URL
    #[arg(long, value_name = "COMMAND")]
    tunnel: Option<String>,
}

pub(crate) fn run(_: &DashboardArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego dashboard")
        .hint("a run's `events/` opens in TensorBoard and its `metrics.jsonl` holds one object a step"))
}
