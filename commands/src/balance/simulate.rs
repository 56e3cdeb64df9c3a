//! `lego balance --simulate`: what a pool would do under a load.

use std::sync::Arc;

use lego::balance::simulate::{
    Load, PROFILES, Policy, Profile, Recorded, RecordedError, Report, Scenario, Workload, picture, simulate,
};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Printer, table};

use super::BalanceArgs;

/// Points of a line in a picture.
const POINTS: usize = 10;

/// Ways that are compared where none is named.
const POLICIES: [&str; 3] = ["sticky", "cap", "lease"];

pub(super) fn run(printer: &Printer, args: &BalanceArgs, name: &str) -> Result<Exit, Failure> {
    let policies = policies(args)?;
    let profile = Profile::by_name(name).ok_or_else(|| {
        let known: Vec<&str> = PROFILES.iter().map(|profile| profile.name).collect();
        Failure::usage(format!("--simulate {name}: no such profile")).hint(format!("there are {}", known.join(", ")))
    })?;
    let replicas = match args.replicas.as_deref() {
        None => 1,
        Some(text) => match text.parse::<usize>() {
            Ok(count @ 1..=4096) => count,
            _ => {
                return Err(Failure::usage(format!(
                    "--replicas {text}: with --simulate, expected how many, from 1 to 4096"
                )));
            }
        },
    };
    let sessions = args.batch.unwrap_or(args.sessions) as usize;
    let scenario = Scenario {
        replicas,
        batch: args.batch.is_some(),
        seed: args.seed,
        load: load(printer, args, &profile)?,
        ..Scenario::new(profile, sessions)
    };
    if let Some(path) = &args.svg {
        return draw(printer, args, &policies, &scenario, path);
    }
    let reports: Vec<Report> = policies.iter().map(|policy| simulate(&scenario, *policy)).collect();
    print(printer, args, &reports, "SESSIONS")?;
    Ok(Exit::Ok)
}

/// The sessions that are played.
fn load(printer: &Printer, args: &BalanceArgs, profile: &Profile) -> Result<Load, Failure> {
    let Some(place) = &args.shards else {
        return Ok(Load::Drawn(Workload::AGENTS));
    };
    let recorded = Recorded::open(place, args.seed).map_err(|error| match error {
        RecordedError::Empty { .. } => Failure::usage("--shards").source(error),
        RecordedError::Shards(_) => Failure::unavailable("--shards").source(error),
    })?;
    let left_out = match recorded.left_out() {
        0 => String::new(),
        count => format!("; {count} conversations of sub-agents are left out"),
    };
    printer.note(format_args!(
        "{} sessions that begin with the same {} tokens{left_out}",
        recorded.count(),
        recorded.shared()
    ));
    let load = Load::Recorded(Arc::new(recorded));
    if load.longest() > profile.capacity {
        return Err(Failure::usage(format!(
            "--shards {}: a conversation in them has {} tokens, and the cache of {} holds {}",
            place.display(),
            load.longest(),
            profile.name,
            profile.capacity
        )));
    }
    Ok(load)
}

fn policies(args: &BalanceArgs) -> Result<Vec<Policy>, Failure> {
    let named = args.policy.iter().map(String::as_str);
    let chosen: Vec<&str> = if args.policy.is_empty() {
        POLICIES.to_vec()
    } else {
        named.collect()
    };
    chosen
        .into_iter()
        .map(|name| name.parse().map_err(|error| Failure::usage("--policy").source(error)))
        .collect()
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

fn draw(
    printer: &Printer,
    args: &BalanceArgs,
    policies: &[Policy],
    scenario: &Scenario,
    path: &std::path::Path,
) -> Result<Exit, Failure> {
    let points = |policy: &Policy| -> Vec<Report> {
        let most = scenario.sessions;
        let mut sizes: Vec<usize> = (1..=POINTS).map(|point| (most * point).div_ceil(POINTS)).collect();
        sizes.dedup();
        let at = |sessions| {
            let scenario = Scenario {
                sessions,
                ..scenario.clone()
            };
            simulate(&scenario, *policy)
        };
        sizes.into_iter().map(at).collect()
    };
    let series: Vec<(String, Vec<Report>)> = policies
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
