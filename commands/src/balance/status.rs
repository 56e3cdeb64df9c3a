//! `lego balance --status`: the replicas of one that runs.

use std::time::Duration;

use lego::balance::gateway::ReplicaRow;

use super::BalanceArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Printer, table};
use crate::wiring;

/// Time between looks.
const PERIOD: Duration = Duration::from_secs(2);
/// Clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

pub(super) fn run(printer: &Printer, args: &BalanceArgs, url: &str) -> Result<Exit, Failure> {
    let url = if url.contains("://") {
        url.to_owned()
    } else {
        format!("http://{url}")
    };
    loop {
        let rows = wiring::replicas_of(&url)?;
        if args.watch && args.format.format == Format::Auto && args.format.format.chosen() == Format::Table {
            printer.text(CLEAR)?;
        }
        printer.rows(args.format.format, &rows, for_people)?;
        if !args.watch {
            return Ok(Exit::Ok);
        }
        std::thread::sleep(PERIOD);
    }
}

fn for_people(rows: &[ReplicaRow]) -> String {
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let percent = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.0}")));
    let cells = rows.iter().map(|row| {
        let retry = row.retry_in_s.filter(|_| row.state == "broken");
        let said = [row.reason.clone(), retry.map(|time| format!("retry in {time:.0}s"))];
        vec![
            row.replica.clone(),
            row.state.clone(),
            row.sessions.to_string(),
            row.running.max(row.requests).to_string(),
            row.waiting.to_string(),
            percent(row.kv_percent),
            percent(row.hit_percent),
            or_dash(row.held.map(|held| held.to_string())),
            said.into_iter().flatten().collect::<Vec<_>>().join(", "),
        ]
    });
    let header = [
        "REPLICA", "STATE", "SESSIONS", "RUNNING", "WAITING", "KV%", "HIT%", "HELD", "",
    ];
    table(&header, &[2, 3, 4, 5, 6, 7], cells)
}
