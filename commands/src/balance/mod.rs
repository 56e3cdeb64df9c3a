//! `lego balance`: a server in front of engines, its state, and what a pool would do under a load.

mod serve;
mod simulate;
mod status;

use std::path::PathBuf;

use lego::balance::gateway::Discovery;
use lego::config::HumanDuration;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer};

const EXAMPLES: &str = "\
Examples:
  lego balance --replica http://gpu-1:8000 --replica http://gpu-2:8000 --listen 0.0.0.0:8080
  lego balance run.toml --scheduler lease
  lego balance --status http://127.0.0.1:8080 --watch
  lego balance --simulate moe30b --sessions 96 --policy sticky,cap,lease
  lego balance --simulate dense32b --replicas 4 --batch 64 --policy round-robin,sticky,cap,lease
  lego balance --simulate moe30b --sessions 120 --svg throughput.svg
  lego balance --simulate moe30b --shards runs/one/rollouts --sessions 96";

/// Serve several engines as one, each session where its cache is; or say what such a pool would do under a load
///
/// The first line on stdout is the address. Requests are handed on as they came, answers too. A session is the first of: /sess/NAME in the
/// path, a header (x-session-id and others), `session_id`, `prompt_cache_key` or `user` in the body, or what its conversation
/// began with. A replica that stops answering is noticed within 3 s; what it had not begun to answer is answered by another. GET
/// /replicas, /sessions and /metrics tell what is so; POST and DELETE /replicas {"url": …} add and drain, DELETE
/// /sessions/NAME ends a session.
///
/// `--scheduler lease` holds a session's turn until its tokens fit into its replica's cache beside those of the others.
///
/// `--simulate` runs coding agents against a model of a pool, second by second: `sticky` holds none; `cap:48` lets 48 sessions of a replica work at a time, and `cap` finds the best number;
/// `lease` gives the place of a session that has been idle for 20 s to one that waits; `watermark` sends, past 85% of the cache, what is still cached. A run counts 2,400 s after 600 s of warming up;
/// `--batch` counts the time until all of so many sessions have ended. `--shards` plays the turns of recorded episodes, with the time
/// that their tools took.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BalanceArgs {
    /// Run config whose `engine.endpoints` and `[balance]` are served
    #[arg(value_name = "RUN.TOML", conflicts_with_all = ["simulate", "status"])]
    config: Option<PathBuf>,
    /// A replica to serve; can be repeated
    #[arg(long, value_name = "URL", conflicts_with_all = ["simulate", "status"])]
    replica: Vec<String>,
    /// With --simulate, how many replicas; else a file that names the replicas to serve, one a line, or `-` for stdin
    #[arg(long, value_name = "N|FILE|-", conflicts_with = "status")]
    replicas: Option<String>,
    /// Replicas by their labels in a Kubernetes, as they come and go, such as kubernetes:app=vllm or
    /// kubernetes:NAMESPACE/app=vllm@8000
    #[arg(long, value_name = "kubernetes:SELECTOR", conflicts_with_all = ["simulate", "status"])]
    discover: Option<Discovery>,
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["simulate", "status"])]
    listen: Option<String>,
    /// Which replica serves a turn: sticky, priced, prefix, least-load, round-robin, consistent-hash (`balance.policy`). With --simulate,
    /// ways to compare: sticky, priced, round-robin, cap, cap:N, lease, lease:SECONDS, watermark
    #[arg(long, value_name = "POLICY,…", value_delimiter = ',', conflicts_with = "status")]
    policy: Vec<String>,
    /// When a turn is sent: off, lease (`balance.scheduler`)
    #[arg(long, value_name = "off|lease", conflicts_with_all = ["simulate", "status"])]
    scheduler: Option<String>,
    /// How long an idle session keeps its place although others wait (`balance.lease`)
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["simulate", "status"])]
    lease: Option<HumanDuration>,
    /// How long a turn is held before it may take any idle session's place (`balance.max_hold`)
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["simulate", "status"])]
    max_hold: Option<HumanDuration>,
    /// Tokens that one replica's cache holds, where its metrics do not tell (`balance.capacity`)
    #[arg(long, value_name = "TOKENS", conflicts_with_all = ["simulate", "status"])]
    capacity: Option<u64>,
    /// Header that names a session, before those that are known
    #[arg(long, value_name = "NAME", conflicts_with_all = ["simulate", "status"])]
    session_header: Option<String>,
    /// Path that replicas are asked for whether they are well
    #[arg(long, value_name = "PATH", default_value = "/health", conflicts_with_all = ["simulate", "status"])]
    health_path: String,
    /// Longest wait for the first byte of an answer
    #[arg(long, value_name = "DURATION", default_value = "30m", conflicts_with_all = ["simulate", "status"])]
    first_byte: HumanDuration,
    /// Longest wait for the next byte of a stream
    #[arg(long, value_name = "DURATION", default_value = "5m", conflicts_with_all = ["simulate", "status"])]
    idle: HumanDuration,
    /// Requests at a time; more are told to come again
    #[arg(long, value_name = "N", default_value_t = 8192, conflicts_with_all = ["simulate", "status"],
          value_parser = clap::value_parser!(u32).range(1..))]
    most_requests: u32,
    /// Answer with the headers x-lego-replica and x-lego-reason
    #[arg(long, conflicts_with_all = ["simulate", "status"])]
    tell_reason: bool,
    /// Ask replicas for /sess/NAME/… where clients do: those that are `lego serve-proxy` themselves
    #[arg(long, conflicts_with_all = ["simulate", "status"])]
    keep_path: bool,
    /// Certificates (PEM) of authorities that sign those of https replicas, beside the system's own (`engine.ca_file`)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["simulate", "status"])]
    ca_file: Option<PathBuf>,
    /// Opens the routes that change something; without one they answer this machine alone
    #[arg(long, value_name = "TOKEN", env = "LEGO_ADMIN_TOKEN", hide_env_values = true)]
    admin_token: Option<String>,
    /// Print the replicas of a running balancer
    #[arg(long, value_name = "URL", conflicts_with = "simulate")]
    status: Option<String>,
    /// Print them every two seconds
    #[arg(long, requires = "status")]
    watch: bool,
    /// Model and accelerator to simulate: moe30b, dense32b
    #[arg(long, value_name = "PROFILE")]
    simulate: Option<String>,
    /// Sessions at a time, each followed by another
    #[arg(long, value_name = "N", default_value_t = 96, requires = "simulate",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    sessions: u32,
    /// Sessions in all: the time to the end of the last counts
    #[arg(long, value_name = "N", conflicts_with_all = ["sessions", "svg"], requires = "simulate",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    batch: Option<u32>,
    /// Play the sessions of these shards, such as RUN/rollouts, instead of drawn ones
    #[arg(long, value_name = "PATH", requires = "simulate")]
    shards: Option<PathBuf>,
    /// Makes the sessions, or their order
    #[arg(long, value_name = "N", default_value_t = 42, requires = "simulate")]
    seed: u64,
    /// Draw the throughput against the number of sessions, up to --sessions, into this file
    #[arg(long, value_name = "FILE", requires = "simulate")]
    svg: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArg,
}

pub(crate) fn run(printer: &Printer, args: &BalanceArgs) -> Result<Exit, Failure> {
    match (&args.simulate, &args.status) {
        (Some(profile), _) => simulate::run(printer, args, profile),
        (None, Some(url)) => status::run(printer, args, url),
        (None, None) => serve::run(printer, args),
    }
}
