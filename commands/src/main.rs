//! The `lego` command.

use std::process::ExitCode;

use lego::sandbox::local::{INIT_COMMAND, init_main};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    // Before any runtime: the init of a sandbox must have one thread.
    if args.next().is_some_and(|first| first == INIT_COMMAND) {
        return init_main(&args.collect::<Vec<_>>());
    }
    ExitCode::SUCCESS
}
