//! `lego balance`: not built yet; its help is.

use crate::exit::Exit;
use crate::failure::Failure;

const EXAMPLES: &str = "\
Examples:
  lego balance --replica http://10.0.0.4:8000 --replica http://10.0.0.5:8000
  lego balance --status http://127.0.0.1:8080";

/// Spread sessions over engine replicas, each session staying on its own (not built yet)
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BalanceArgs {
    /// A replica; can be repeated
    #[arg(long, value_name = "URL")]
    replica: Vec<String>,
    /// File with one replica a line, or `-` for stdin
    #[arg(long, value_name = "FILE")]
    replicas: Option<std::path::PathBuf>,
    /// How a session finds its replica
    #[arg(long, value_name = "POLICY", default_value = "sticky",
          value_parser = ["sticky", "least-load", "consistent-hash", "prefix", "round-robin"])]
    policy: String,
    /// Which sessions may run
    #[arg(long, value_name = "SCHEDULER", default_value = "off", value_parser = ["off", "lease", "watermark"])]
    scheduler: String,
    /// Simulate with a profile or with shards instead of serving
    #[arg(long, value_name = "PROFILE|SHARDS")]
    simulate: Option<std::path::PathBuf>,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: String,
    /// Print the replicas of a running balancer
    #[arg(long, value_name = "URL")]
    status: Option<String>,
}

pub(crate) fn run(_: &BalanceArgs) -> Result<Exit, Failure> {
    Err(Failure::not_built("lego balance"))
}
