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
mod tunnel;
mod wiring;

use std::process::ExitCode;

use lego::balance::gateway::use_small_pages;
use lego::sandbox::{INIT_COMMAND, init_main};

// What a model call leaves behind is many small pieces from many threads: faster here than with the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let first = args.next();
    // Before any runtime: the init of a sandbox must have one thread.
    if first.as_ref().is_some_and(|first| first == INIT_COMMAND) {
        return init_main(&args.collect::<Vec<_>>());
    }
    // Before the allocator has touched large ones.
    if first.is_some_and(|first| first == "balance") {
        use_small_pages();
    }
    cli::main()
}
