//! `lego diagnose`: what is wrong, on evidence. Of its subjects only `shards` is built.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use lego::diagnose::{ShardsReport, look_at_shards};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};

const EXAMPLES: &str = "\
Examples:
  lego diagnose shards runs/quickstart
  lego diagnose shards shards --format json";

/// Say what is wrong with a run, on evidence
///
/// `shards` reads every row, checks what must hold of it, and accounts for every token that was sampled: trained,
/// masked, dropped, of a side conversation, aborted or a duplicate. Where the accounts differ from what the engine
/// counted, or the call logs from the rows in any id, mask, log-prob or version of the weights, it exits with 1. A folder of `lego serve-proxy --capture` is checked against
/// its `calls`; sessions that were never finished are named. The other subjects are not built yet.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES, arg_required_else_help = true, subcommand_required = true)]
pub(crate) struct DiagnoseArgs {
    #[command(subcommand)]
    subject: Subject,
    /// Exit with 1 if a signature matched
    #[arg(long, global = true)]
    check: bool,
    /// Look at steps from this one on
    #[arg(long, global = true, value_name = "STEP")]
    since: Option<u64>,
}

/// What is looked at.
#[derive(Debug, Subcommand)]
enum Subject {
    /// A run directory (not built yet)
    Run { dir: PathBuf },
    /// A folder of shards, or the run directory that holds it
    Shards {
        dir: PathBuf,
        #[command(flatten)]
        format: FormatArg,
    },
    /// The folder of one trial (not built yet)
    Trial { dir: PathBuf },
    /// What a check or signature means (not built yet)
    Explain { id: String },
    /// All signatures (not built yet)
    List,
}

pub(crate) fn run(printer: &Printer, args: &DiagnoseArgs) -> Result<Exit, Failure> {
    match &args.subject {
        Subject::Shards { dir, format } => shards(printer, dir, *format),
        Subject::Run { .. } => Err(Failure::not_built("lego diagnose run")),
        Subject::Trial { .. } => Err(Failure::not_built("lego diagnose trial")),
        Subject::Explain { .. } => Err(Failure::not_built("lego diagnose explain")),
        Subject::List => Err(Failure::not_built("lego diagnose list")),
    }
}

fn shards(printer: &Printer, dir: &Path, format: FormatArg) -> Result<Exit, Failure> {
    let report = look_at_shards(dir).map_err(|error| Failure::usage(error.to_string()))?;
    if report.files == 0 && report.faults.is_empty() && report.accounts.is_none() {
        return Err(Failure::nothing_selected(format!("{} holds no shard", dir.display())));
    }
    for fault in &report.faults {
        printer.note(format_args!("error: {fault}"));
    }
    if report.more_faults > 0 {
        printer.note(format_args!("error: and {} more", report.more_faults));
    }
    if let Some(accounts) = &report.accounts {
        printer.rows(format.format, &accounts.rows(), |rows| {
            let rows = rows.iter().map(|row| vec![row.account.clone(), row.tokens.to_string()]);
            table(&["ACCOUNT", "TOKENS"], &[1], rows)
        })?;
    }
    printer.note(format_args!("{}", summary(&report)));
    Ok(if report.faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Negative
    })
}

fn summary(report: &ShardsReport) -> String {
    let ShardsReport {
        files,
        rows,
        episodes,
        trained,
        ..
    } = report;
    let accounted = match &report.accounts {
        Some(accounts) => format!(
            "the engine sampled {} tokens in {} sessions, {} are accounted for",
            accounts.sampled,
            accounts.sessions,
            accounts.ledger.total()
        ),
        None => "no call logs beside them: sampled tokens that are in no row cannot be seen".to_owned(),
    };
    let cut = match report.accounts.as_ref().map_or(0, |accounts| accounts.unfinished_calls) {
        0 => String::new(),
        calls => format!(" · {calls} calls were cut off, what they sampled is not known"),
    };
    let open = match report.accounts.as_ref().map(|accounts| &accounts.unfinished_sessions) {
        Some(names) if !names.is_empty() => format!(
            " · {} sessions were never finished and are in no row: {}",
            names.len(),
            names.join(", ")
        ),
        _ => String::new(),
    };
    format!("{files} files · {rows} rows · {episodes} episodes · {trained} tokens train · {accounted}{cut}{open}")
}
