//! `lego preflight`, and the static checks that other commands run first.

use std::fmt::Write as _;
use std::path::Path;

pub(crate) use lego::preflight::Purpose;

use lego::config::{Loaded, nearest, reference, starter};
use lego::preflight::{Context, Finding, Status, from_variables, ids, page, run_static};

use crate::config_args::ConfigArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, FormatArg, Printer};
use crate::wiring;

const EXAMPLES: &str = "\
Examples:
  lego preflight --init
  lego preflight && lego train
  lego preflight run.toml --show-config
  lego preflight run.toml --only batch,token-budget --format json";

/// Check whether a run may start
///
/// One row a check, worst last, and the verdict. Exits with 1 on any FATAL; there is no way around one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct PreflightArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Run only these checks
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave out the live probe: config and local files alone, no network
    #[arg(long = "static")]
    static_only: bool,
    /// Print the whole config with the origin of each value, and stop; as TOML, or with --json or --format as rows
    #[arg(long, group = "instead")]
    show_config: bool,
    /// Write a commented starter run.toml, and stop
    #[arg(long, group = "instead")]
    init: bool,
    /// Print the page of a check: what it looks at, why it matters, what to write instead; and stop
    #[arg(long, value_name = "CHECK", group = "instead")]
    explain: Option<String>,
    /// Print every key of run.toml with its type, default and meaning, and stop
    #[arg(long, group = "instead")]
    reference: bool,
    /// Turn a file of variables (`NAME=value`) of another system into a run.toml on stdout, and stop
    #[arg(long, value_name = "FILE", group = "instead")]
    import: Option<std::path::PathBuf>,
    #[command(flatten)]
    format: FormatArg,
    /// The same as `--format json`
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(printer: &Printer, args: &PreflightArgs) -> Result<Exit, Failure> {
    if let Some(file) = &args.import {
        return import(printer, file);
    }
    if args.reference {
        printer.text(&reference())?;
        return Ok(Exit::Ok);
    }
    if args.init {
        return init(printer, &args.config.file);
    }
    if let Some(id) = &args.explain {
        printer.text(&page(id).ok_or_else(|| no_check(id))?)?;
        return Ok(Exit::Ok);
    }
    if let Some(wrong) = args.only.iter().find(|id| !ids().contains(&id.as_str())) {
        return Err(no_check(wrong));
    }
    let mut loaded = args.config.load(Vec::new())?;
    wiring::cached_models(&mut loaded, true)?;
    let format = if args.json { Format::Json } else { args.format.format };
    if args.show_config {
        // The TOML with its remarks is what a file or a pager wants; rows are asked for by name.
        match format {
            Format::Auto | Format::Table => printer.text(&loaded.show_config())?,
            Format::Json | Format::Jsonl => printer.rows(format, &loaded.config_rows(), |_| String::new())?,
        }
        return Ok(Exit::Ok);
    }
    let context = Context {
        run: &loaded,
        purpose: Purpose::Whole,
    };
    let report = if args.static_only {
        run_static(context, &args.only)
    } else {
        wiring::preflight(context, &args.only)?
    };
    printer.rows(format, &report.findings, for_people)?;
    printer.note(format_args!("{}", report.verdict()));
    Ok(match () {
        () if report.is_safe() => Exit::Ok,
        () if report.is_unreachable() => Exit::Unavailable,
        () => Exit::Negative,
    })
}

fn no_check(id: &str) -> Failure {
    let near = nearest(id, ids()).map(|id| format!("did you mean `{id}`?"));
    Failure::usage(format!("no check `{id}`")).hint(near.unwrap_or_else(|| format!("checks: {}", ids().join(", "))))
}

/// Runs the static checks before a command and says what is wrong. True: it must not go on.
pub(crate) fn refuses(printer: &Printer, run: &Loaded, purpose: Purpose) -> bool {
    let report = run_static(Context { run, purpose }, &[]);
    let wrong: Vec<_> = report
        .findings
        .iter()
        .filter(|finding| finding.status >= Status::Warn)
        .cloned()
        .collect();
    if report.is_safe() {
        if !wrong.is_empty() {
            printer.note(format_args!("{}", for_people(&wrong).trim_end()));
        }
        return false;
    }
    printer.say(&format!("{}{}", for_people(&wrong), report.verdict()));
    true
}

/// Prints a run.toml; what of the file has no place in it is told.
fn import(printer: &Printer, file: &Path) -> Result<Exit, Failure> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        fs_err::read_to_string(file)
    };
    let text = text.map_err(|error| Failure::usage("cannot read the variables").source(error))?;
    let imported = from_variables(&text);
    if imported.keys == 0 {
        let text = format!("{}: no variable that has a place in run.toml", file.display());
        return Err(
            Failure::nothing_selected(text).hint("lines are `NAME=value`; `lego preflight --reference` lists the keys")
        );
    }
    for note in &imported.notes {
        printer.note(format_args!("{note}"));
    }
    printer.text(&imported.toml)?;
    Ok(Exit::Ok)
}

fn init(printer: &Printer, path: &Path) -> Result<Exit, Failure> {
    if path == Path::new("-") {
        printer.text(starter())?;
        return Ok(Exit::Ok);
    }
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true);
    let written = options
        .open(path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, starter().as_bytes()));
    written.map_err(|error| {
        let failure = Failure::usage(format!("cannot write the starter to {}", path.display())).source(error);
        failure.hint("name a file that does not exist yet, or `-` for stdout")
    })?;
    printer.note(format_args!(
        "wrote {}: name a model and tasks in it, then `lego preflight {}`",
        path.display(),
        path.display()
    ));
    Ok(Exit::Ok)
}

/// A line a check; where it is about a key, the key's place, and what to write instead.
fn for_people(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        let status = match finding.status {
            Status::Pass => "pass",
            Status::Skip => "skip",
            Status::Warn => "warn",
            Status::Fatal => "FATAL",
        };
        // Writing into a String cannot fail.
        let _ = writeln!(out, " {status:<6} {:<18} {}", finding.check, finding.detail);
        if let Some(location) = &finding.location {
            let line = finding.line.as_deref().filter(|line| !line.is_empty());
            let _ = writeln!(out, "        {location}  {}", line.unwrap_or_default());
        }
        if let Some(help) = &finding.help {
            let _ = writeln!(out, "        help: {help}");
        }
    }
    out
}
