//! The `lego` command.

mod balance;
mod cli;
mod config_args;
mod dashboard;
mod diagnose;
mod exit;
mod failure;
mod generate;
mod logging;
mod output;
mod preflight;
mod prepare;
mod rollout;
mod serve_proxy;
mod signals;
mod train;
mod wiring;

fn main() -> std::process::ExitCode {
    cli::main()
}
