//! `lego generate` (hidden): shell completions and man pages on stdout.
//!
//! A test keeps the committed copies in `completions/` fresh with it.

use clap_complete::Shell;

use crate::cli;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;

/// Print a generated file
#[derive(Debug, clap::Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

/// What is printed.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// A completion script
    Completions {
        /// For which shell
        shell: Shell,
    },
    /// A man page
    Man {
        /// Of which subcommand; absent: of `lego` itself
        subcommand: Option<String>,
    },
}

pub(crate) fn run(printer: &Printer, args: &GenerateArgs) -> Result<Exit, Failure> {
    let mut command = cli::definition();
    // Generated into memory first: the generator panics where a pipe closes under it.
    let mut out = Vec::new();
    match &args.what {
        What::Completions { shell } => clap_complete::generate(*shell, &mut command, "lego", &mut out),
        What::Man { subcommand } => {
            command.build();
            let page = match subcommand {
                None => command,
                Some(name) => command
                    .find_subcommand(name)
                    .cloned()
                    .ok_or_else(|| Failure::usage(format!("no subcommand `{name}`")))?,
            };
            clap_mangen::Man::new(page).render(&mut out)?;
        }
    }
    printer.text(&String::from_utf8_lossy(&out))?;
    Ok(Exit::Ok)
}
