//! `lego serve-proxy`: not built yet; its help is.

use std::path::PathBuf;

use crate::exit::Exit;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  eval \"$(lego serve-proxy --upstream http://127.0.0.1:8000 --print-env)\"
  lego serve-proxy --upstream http://127.0.0.1:8000 --capture shards";

/// Serve an OpenAI and Anthropic API in front of an engine and record exact tokens (not built yet)
///
/// The first line on stdout is the address. `lego train` and `lego rollout` start their own proxy.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct ServeProxyArgs {
    /// Run config
    #[arg(value_name = "RUN.TOML")]
    file: Option<PathBuf>,
    /// Engine to send to; can be repeated
    #[arg(long, value_name = "URL")]
    upstream: Vec<String>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// Write finished sessions as shards into this folder
    #[arg(long, value_name = "DIR")]
    capture: Option<PathBuf>,
    /// Folder with `tokenizer.json` and `tokenizer_config.json`
    #[arg(long, value_name = "DIR")]
    tokenizer: Option<PathBuf>,
    /// Print the variables that point a client at it, and stay in the background
    #[arg(long)]
    print_env: bool,
}

pub(crate) fn run(_: &ServeProxyArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego serve-proxy").hint("`lego rollout` serves its agents through a proxy of its own"))
}
