//! `lego diagnose`: what is wrong, on evidence. One function a subject; what is found is the library's.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use lego::diagnose::{
    Accounts, Consumption, RunReport, ShardsReport, Side, Signature, TrialReport, Verdict, look_at_run, look_at_shards,
    look_at_trial, newest_run, signatures,
};
use lego::run_dir::RunDirError;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, FormatArg, Printer, table};

const EXAMPLES: &str = "\
Examples:
  lego diagnose
  lego diagnose run runs/first --check
  lego diagnose run /logs/other_system.log
  lego diagnose shards runs/quickstart
  lego diagnose trial runs/first/trials/step_0007/some-task__00
  lego diagnose explain no-signal";

/// Say what is wrong with a run, on evidence
///
/// Alone it judges the newest run below `runs`. A signature is claimed only on the evidence that it needs; otherwise it says that no
/// known signature matched. It reads and never writes.
///
/// `shards` reads every row, checks what must hold of it, and accounts for every token that was sampled: trained,
/// masked, dropped, of a side conversation, aborted or a duplicate. Where the accounts differ from what the engine
/// counted, or the call logs from the rows in any id, mask, log-prob or version of the weights, it exits with 1. Of a run that trains
/// it also says what became of the episodes by its ledger: trained, dropped with the reason, cut off, or waiting. An episode that
/// trained without rows, a torn group and a ledger that lacks entries are faults. A folder of `lego serve-proxy --capture` is checked against
/// its `calls`; sessions that were never finished are named.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct DiagnoseArgs {
    #[command(subcommand)]
    subject: Option<Subject>,
    /// Exit with 1 if a signature matched, and with 4 if there was no step to judge
    #[arg(long, global = true)]
    check: bool,
    /// Look at steps from this one on
    #[arg(long, global = true, value_name = "STEP")]
    since: Option<u64>,
    #[command(flatten)]
    format: FormatArg,
    /// The whole report as one JSON object: what was looked at as well, the verdict, the recommendations
    #[arg(long, global = true)]
    json: bool,
}

/// What is looked at.
#[derive(Debug, Subcommand)]
enum Subject {
    /// A run directory, or a log with `step:N - key:value` lines
    Run {
        dir: PathBuf,
        #[command(flatten)]
        format: FormatArg,
    },
    /// A folder of shards, or the run directory that holds it
    Shards {
        dir: PathBuf,
        #[command(flatten)]
        format: FormatArg,
    },
    /// The folder of one trial
    Trial {
        dir: PathBuf,
        #[command(flatten)]
        format: FormatArg,
    },
    /// What a check or signature means
    Explain { id: String },
    /// All signatures
    List {
        #[command(flatten)]
        format: FormatArg,
    },
}

pub(crate) fn run(printer: &Printer, args: &DiagnoseArgs) -> Result<Exit, Failure> {
    match &args.subject {
        None => {
            let root = if Path::new("runs").is_dir() { "runs" } else { "." };
            let newest = newest_run(Path::new(root)).map_err(|error| unreadable(&error))?;
            let dir = newest.ok_or_else(|| {
                Failure::nothing_selected(format!("no run below {root}"))
                    .hint("name one: `lego diagnose run DIR`, or a log with `step:` lines")
            })?;
            judge(printer, args, &dir, args.format)
        }
        Some(Subject::Run { dir, format }) => judge(printer, args, dir, *format),
        Some(Subject::Shards { dir, format }) => shards(printer, dir, *format),
        Some(Subject::Trial { dir, format }) => trial(printer, args, dir, *format),
        Some(Subject::Explain { id }) => explain(printer, id, args.json),
        Some(Subject::List { format }) => list(printer, if args.json { Format::Json } else { format.format }),
    }
}

fn unreadable(error: &RunDirError) -> Failure {
    let failure = Failure::usage(error.to_string());
    match error {
        RunDirError::Missing { .. } | RunDirError::NotARun { .. } => {
            failure.hint("name a run directory, or a log with `step:N - key:value` lines")
        }
        _ => failure,
    }
}

/// That a folder is one of runs, of which one has to be named.
fn one_of_runs(dir: &Path, command: &str) -> Result<(), Failure> {
    // What cannot be read is told by what reads it next.
    let newest = newest_run(dir).ok().flatten().filter(|newest| newest != dir);
    newest.map_or(Ok(()), |newest| {
        Err(
            Failure::usage(format!("{} is no run; it holds runs", dir.display())).hint(format!(
                "`lego diagnose {command} {}` looks at the newest",
                newest.display()
            )),
        )
    })
}

fn judge(printer: &Printer, args: &DiagnoseArgs, dir: &Path, format: FormatArg) -> Result<Exit, Failure> {
    one_of_runs(dir, "run")?;
    let report = look_at_run(dir, args.since).map_err(|error| unreadable(&error))?;
    if args.json {
        printer.text(&(serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n"))?;
    } else {
        printer.rows(format.format, &report.findings, |_| for_people(&report))?;
        printer.note(format_args!("{}: {}", dir.display(), verdict(&report)));
    }
    if let Some(damage) = &report.damage {
        printer.note(format_args!("warning: {damage}"));
    }
    Ok(match report.verdict {
        Verdict::NotJudged if args.check => Exit::NothingSelected,
        _ if args.check && !report.findings.is_empty() => Exit::Negative,
        _ => Exit::Ok,
    })
}

fn verdict(report: &RunReport) -> String {
    let looked = |result: &str| report.looked_at.iter().filter(|looked| looked.result == result).count();
    match report.verdict {
        Verdict::Healthy => format!(
            "healthy: no known signature matched ({}; {} looked for, {} without data)",
            report.steps,
            looked("no"),
            looked("no data")
        ),
        Verdict::NotJudged => "not judged: no step of the newest attempt is there to look at".to_owned(),
        Verdict::AtRisk => format!("at risk ({})", report.steps),
        Verdict::StopRecommended => format!("stop recommended ({})", report.steps),
    }
}

fn for_people(report: &RunReport) -> String {
    let mut out = String::new();
    for (at, finding) in report.findings.iter().enumerate() {
        let verdict = match finding.verdict {
            Verdict::StopRecommended => "stop recommended",
            _ => "at risk",
        };
        out += &format!("{}  {:<32} {verdict}\n", at + 1, finding.signature);
        for (n, line) in finding.evidence.iter().enumerate() {
            out += &format!("   {:<10} {line}\n", if n == 0 { "evidence" } else { "" });
        }
        out += &format!("   {:<10} {}\n", "cause", finding.cause);
    }
    for (n, cure) in report.recommendations.iter().enumerate() {
        out += &format!(
            "   {:<10} {}: {}\n",
            if n == 0 { "change" } else { "" },
            cure.key,
            cure.text
        );
    }
    out
}

fn trial(printer: &Printer, args: &DiagnoseArgs, dir: &Path, format: FormatArg) -> Result<Exit, Failure> {
    let report = look_at_trial(dir).map_err(|error| Failure::usage(error.to_string()))?;
    if args.json {
        printer.text(&(serde_json::to_string_pretty(&report).map_err(std::io::Error::from)? + "\n"))?;
    } else {
        printer.rows(format.format, std::slice::from_ref(&report), |_| {
            trial_for_people(&report)
        })?;
    }
    Ok(Exit::Ok)
}

fn trial_for_people(report: &TrialReport) -> String {
    let reward = report
        .reward
        .map_or_else(|| "no reward".to_owned(), |reward| format!("reward {reward}"));
    let mut out = format!("{}, {reward}: {}\n", report.outcome, report.verdict);
    for fact in &report.facts {
        let side = match fact.side {
            Side::Host => "outside",
            Side::Sandbox => "inside",
        };
        out += &format!("   {side:<8} {:<22} {}\n", fact.file, fact.says);
    }
    for (n, cure) in report.cures.iter().enumerate() {
        out += &format!("   {:<8} {cure}\n", if n == 0 { "do" } else { "" });
    }
    out
}

/// A signature or a check, as data.
#[derive(serde::Serialize)]
struct Explained<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    signature: Option<&'a Signature>,
    /// The page of a check.
    #[serde(skip_serializing_if = "Option::is_none")]
    page: Option<String>,
}

fn explain(printer: &Printer, id: &str, json: bool) -> Result<Exit, Failure> {
    if json {
        let explained = Explained {
            id,
            signature: signatures().find(|signature| signature.id == id),
            page: lego::preflight::page(id),
        };
        if explained.signature.is_some() || explained.page.is_some() {
            printer.text(&(serde_json::to_string_pretty(&explained).map_err(std::io::Error::from)? + "\n"))?;
            return Ok(Exit::Ok);
        }
    }
    if let Some(signature) = signatures().find(|signature| signature.id == id) {
        let mut page = format!(
            "# {}\n\n{}\n\n## Claimed on\n\n{}\n\n## What to change\n\n",
            signature.id, signature.title, signature.needs
        );
        for cure in signature.cures {
            page += &format!("- `{}`: {}\n", cure.key, cure.text);
        }
        page += &format!("\n## What is behind it\n\n{}\n", signature.cause);
        printer.text(&page)?;
        return Ok(Exit::Ok);
    }
    if let Some(page) = lego::preflight::page(id) {
        printer.text(&page)?;
        return Ok(Exit::Ok);
    }
    let known: Vec<&str> = signatures()
        .map(|signature| signature.id)
        .chain(lego::preflight::ids())
        .collect();
    let near = lego::config::nearest(id, known.iter().copied()).map(|id| format!("did you mean `{id}`?"));
    Err(Failure::usage(format!("no check or signature `{id}`"))
        .hint(near.unwrap_or_else(|| format!("there are: {}", known.join(", ")))))
}

/// A signature, as a list shows it.
#[derive(serde::Serialize)]
struct Listed {
    signature: &'static str,
    title: &'static str,
    needs: &'static str,
}

fn list(printer: &Printer, format: Format) -> Result<Exit, Failure> {
    let rows: Vec<Listed> = signatures()
        .map(|signature| Listed {
            signature: signature.id,
            title: signature.title,
            needs: signature.needs,
        })
        .collect();
    printer.rows(format, &rows, |rows| {
        let rows = rows
            .iter()
            .map(|row| vec![row.signature.to_owned(), row.title.to_owned()]);
        table(&["SIGNATURE", "WHAT"], &[], rows)
    })?;
    Ok(Exit::Ok)
}

fn shards(printer: &Printer, dir: &Path, format: FormatArg) -> Result<Exit, Failure> {
    one_of_runs(dir, "shards")?;
    let report = tokio::runtime::Runtime::new()?
        .block_on(look_at_shards(dir))
        .map_err(|error| Failure::usage(error.to_string()))?;
    if report.files == 0 && report.faults.is_empty() && report.accounts.is_none() {
        return Err(Failure::nothing_selected(format!("{} holds no shard", dir.display())));
    }
    for fault in &report.faults {
        printer.note(format_args!("error: {fault}"));
    }
    if report.more_faults > 0 {
        printer.note(format_args!("error: and {} more", report.more_faults));
    }
    let mut rows = report.accounts.as_ref().map(Accounts::rows).unwrap_or_default();
    rows.extend(report.consumption.iter().flat_map(Consumption::rows));
    if !rows.is_empty() {
        printer.rows(format.format, &rows, |rows| {
            let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
            let rows = rows
                .iter()
                .map(|row| vec![row.account.clone(), number(row.tokens), number(row.episodes)]);
            table(&["ACCOUNT", "TOKENS", "EPISODES"], &[1, 2], rows)
        })?;
    }
    printer.note(format_args!("{}", summary(&report)));
    Ok(if report.faults.is_empty() {
        Exit::Ok
    } else {
        Exit::Negative
    })
}
fn summary(report: &ShardsReport) -> String {
    let ShardsReport {
        files,
        rows,
        episodes,
        trained,
        ..
    } = report;
    let accounted = match &report.accounts {
        Some(accounts) => format!(
            "the engine sampled {} tokens in {} sessions, {} are accounted for",
            accounts.sampled,
            accounts.sessions,
            accounts.ledger.total()
        ),
        None => "no call logs beside them: sampled tokens that are in no row cannot be seen".to_owned(),
    };
    let cut = match report.accounts.as_ref().map_or(0, |accounts| accounts.unfinished_calls) {
        0 => String::new(),
        calls => format!(" · {calls} calls were cut off, what they sampled is not known"),
    };
    let open = match report.accounts.as_ref().map(|accounts| &accounts.unfinished_sessions) {
        Some(names) if !names.is_empty() => format!(
            " · {} sessions were never finished and are in no row: {}",
            names.len(),
            names.join(", ")
        ),
        _ => String::new(),
    };
    let unwritten = match report.unwritten {
        0 => String::new(),
        trials => format!(
            " · {trials} trials ended whose rows are not written yet; a run that was cut off samples them again"
        ),
    };
    format!(
        "{files} files · {rows} rows · {episodes} episodes · {trained} tokens train · {accounted}{cut}{open}{unwritten}"
    )
}
