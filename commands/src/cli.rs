//! The command line as a whole: global flags, the subcommands in the order of the pipeline, and the way
//! from a result to an exit code.

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{ColorWhen, Printer};
use crate::{balance, dashboard, diagnose, generate, logging, preflight, prepare, rollout, serve_proxy, train};

const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    it ran and the answer is no
  2    wrong flags, wrong run.toml, unreadable input
  3    something that is needed cannot be reached
  4    nothing selected
  101  a bug
  130  interrupted; the same command continues";

/// Trains coding agents with online reinforcement learning on real software-engineering tasks
///
/// Each subcommand is one stage: data on stdout, talk on stderr, `-` for stdin, Parquet and plain files between them.
#[derive(Debug, Parser)]
#[command(name = "lego", version, arg_required_else_help = true, subcommand_required = true)]
#[command(after_long_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Flags that every subcommand takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// When to colour
    #[arg(
        long,
        global = true,
        value_enum,
        default_value = "auto",
        value_name = "auto|always|never"
    )]
    #[arg(env = lego::config::env::COLOR, hide_env_values = true, hide_possible_values = true)]
    pub(crate) color: ColorWhen,
    /// Say nothing but errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Log more; -vv more still
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Draw no progress bars
    #[arg(long, global = true)]
    pub(crate) no_progress: bool,
    /// How log lines are written
    #[arg(long, global = true, value_enum, default_value = "text", value_name = "text|json")]
    #[arg(hide_possible_values = true)]
    pub(crate) log_format: logging::LogFormat,
}

/// The stages.
#[derive(Debug, Subcommand)]
#[expect(clippy::large_enum_variant, reason = "one is made, from the command line")]
enum Command {
    Prepare(prepare::PrepareArgs),
    Preflight(preflight::PreflightArgs),
    ServeProxy(serve_proxy::ServeProxyArgs),
    Balance(Box<balance::BalanceArgs>),
    Rollout(rollout::RolloutArgs),
    Train(train::TrainArgs),
    Dashboard(dashboard::DashboardArgs),
    Diagnose(diagnose::DiagnoseArgs),
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
}

/// The command line's definition, for completions and man pages.
pub(crate) fn definition() -> clap::Command {
    Cli::command()
}

/// Parses, runs, reports.
pub(crate) fn main() -> ExitCode {
    logging::install_panic_hook();
    let parsed = definition()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => return crate::output::clap_exit(&error).into(),
    };
    let printer = Printer::new(&cli.global);
    logging::start(&cli.global, &printer);
    let exit = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&printer, cli.command))) {
        Ok(Ok(exit)) => exit,
        Ok(Err(failure)) => {
            printer.failure(&failure);
            failure.exit()
        }
        // The hook has spoken.
        Err(_) => Exit::Bug,
    };
    exit.into()
}

fn run(printer: &Printer, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Prepare(args) => prepare::run(printer, args),
        Command::Preflight(args) => preflight::run(printer, &args),
        Command::ServeProxy(args) => serve_proxy::run(printer, args),
        Command::Balance(args) => balance::run(printer, &args),
        Command::Rollout(args) => rollout::run(printer, args),
        Command::Train(args) => train::run(printer, args),
        Command::Dashboard(args) => dashboard::run(printer, &args),
        Command::Diagnose(args) => diagnose::run(printer, &args),
        Command::Generate(args) => generate::run(printer, &args),
    }
}
