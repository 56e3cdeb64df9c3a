//! `lego balance`: what a pool would do under a load. Serving is not built yet; its help is.

use std::path::PathBuf;

use lego::balance::simulate::{PROFILES, Policy, Profile, Report, Scenario, picture, simulate};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};

const EXAMPLES: &str = "\
Examples:
  lego balance --simulate moe30b --sessions 96 --policy sticky,cap,lease
  lego balance --simulate dense32b --replicas 4 --batch 64 --policy round-robin,sticky,cap,lease
  lego balance --simulate moe30b --sessions 120 --svg throughput.svg";

/// Points of a line in a picture.
const POINTS: usize = 10;

/// Say what a pool of engines would do under a load (serving is not built yet)
///
/// `--simulate` runs coding agents against a model of a pool, second by second: `sticky` holds none; `cap:48` lets 48 sessions of a replica work at a time, and `cap` finds the best number;
/// `lease` gives the place of a session that has been idle for 20 s to one that waits. A run counts 2,400 s after 600 s of warming up;
/// `--batch` counts the time until all of so many sessions have ended.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct BalanceArgs {
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
    /// Replicas of the engine
    #[arg(long, value_name = "N", default_value_t = 1, requires = "simulate",
          value_parser = clap::value_parser!(u16).range(1..=4096))]
    replicas: u16,
    /// Ways to serve it: sticky, round-robin, cap, cap:N, lease, lease:SECONDS
    #[arg(
        long,
        value_name = "POLICY,…",
        value_delimiter = ',',
        default_value = "sticky,cap,lease"
    )]
    policy: Vec<Policy>,
    /// Makes the sessions
    #[arg(long, value_name = "N", default_value_t = 42, requires = "simulate")]
    seed: u64,
    /// Draw the throughput against the number of sessions, up to --sessions, into this file
    #[arg(long, value_name = "FILE", requires = "simulate")]
    svg: Option<PathBuf>,
    /// A replica to serve; can be repeated (not built yet)
    #[arg(long, value_name = "URL", conflicts_with = "simulate")]
    replica: Vec<String>,
    /// Address to listen on (not built yet)
    #[arg(long, value_name = "ADDRESS", conflicts_with = "simulate")]
    listen: Option<String>,
    /// Print the replicas of a running balancer (not built yet)
    #[arg(long, value_name = "URL", conflicts_with = "simulate")]
    status: Option<String>,
    #[command(flatten)]
    format: FormatArg,
}

pub(crate) fn run(printer: &Printer, args: &BalanceArgs) -> Result<Exit, Failure> {
    let Some(name) = &args.simulate else {
        return Err(Failure::not_built("lego balance without --simulate"));
    };
    let profile = Profile::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        Failure::usage(format!("--simulate {name}: no such profile")).hint(format!("there are {}", known.join(", ")))
    })?;
    let sessions = args.batch.unwrap_or(args.sessions) as usize;
    let scenario = Scenario {
        replicas: args.replicas.into(),
        batch: args.batch.is_some(),
        seed: args.seed,
        ..Scenario::new(profile, sessions)
    };
    if let Some(path) = &args.svg {
        return draw(printer, args, &scenario, path);
    }
    let reports: Vec<Report> = args.policy.iter().map(|policy| simulate(&scenario, *policy)).collect();
    print(printer, args, &reports, "SESSIONS")?;
    Ok(Exit::Ok)
}

/// A column's header, and what stands in it.
type Column = (&'static str, fn(&Report) -> String);

const COLUMNS: [Column; 10] = [
    ("POLICY", |report| report.policy.clone()),
    ("SESSIONS", |report| report.sessions.to_string()),
    ("TOKENS/S", |report| format!("{:.0}", report.output_tokens_per_s)),
    ("HIT RATE", |report| format!("{:.3}", report.hit_rate)),
    ("AGAIN", |report| format!("{:.1}", report.recomputed_per_output)),
    ("MAX HOLD S", |report| format!("{:.0}", report.max_hold_s)),
    ("P50 S", |report| format!("{:.1}", report.turn_latency_s.p50)),
    ("P90 S", |report| format!("{:.1}", report.turn_latency_s.p90)),
    ("P99 S", |report| format!("{:.1}", report.turn_latency_s.p99)),
    ("MAKESPAN S", |report| {
        report
            .makespan_s
            .map_or_else(|| "-".to_owned(), |makespan| format!("{makespan:.0}"))
    }),
];

/// Writes the reports; a table has all columns but the one that says nothing here.
fn print(printer: &Printer, args: &BalanceArgs, reports: &[Report], without: &str) -> Result<(), Failure> {
    printer.rows(args.format.format, reports, |reports| {
        let shown = || COLUMNS.iter().filter(|(header, _)| *header != without);
        let header: Vec<&str> = shown().map(|(header, _)| *header).collect();
        let numbers: Vec<usize> = (1..header.len()).collect();
        let row = |report: &Report| shown().map(|(_, cell)| cell(report)).collect();
        table(&header, &numbers, reports.iter().map(row))
    })
}

fn draw(printer: &Printer, args: &BalanceArgs, scenario: &Scenario, path: &std::path::Path) -> Result<Exit, Failure> {
    let points = |policy: &Policy| -> Vec<Report> {
        let most = scenario.sessions;
        let mut sizes: Vec<usize> = (1..=POINTS).map(|point| (most * point).div_ceil(POINTS)).collect();
        sizes.dedup();
        let at = |sessions| simulate(&Scenario { sessions, ..*scenario }, *policy);
        sizes.into_iter().map(at).collect()
    };
    let series: Vec<(String, Vec<Report>)> = args
        .policy
        .iter()
        .map(|policy| (policy.to_string(), points(policy)))
        .collect();
    let title = format!(
        "{} × {}, seed {}",
        scenario.replicas, scenario.profile.name, scenario.seed
    );
    fs_err::write(path, picture(&series, &title))
        .map_err(|error| Failure::unavailable("the picture could not be written").source(error))?;
    let reports: Vec<Report> = series.into_iter().flat_map(|(_, reports)| reports).collect();
    print(printer, args, &reports, "MAKESPAN S")?;
    printer.note(format_args!("{}", path.display()));
    Ok(Exit::Ok)
}
