//! The only place that writes to the terminal: data to stdout, everything else to stderr.
#![expect(clippy::print_stderr, reason = "this module is the way to stderr")]

mod diagnostic;
mod format;
mod progress;
mod table;

use std::fmt::Arguments;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

pub(crate) use format::{Format, FormatArg};
pub(crate) use progress::Progress;
pub(crate) use table::table;

use crate::cli::Global;
use crate::exit::Exit;
use crate::failure::{Failure, Kind, Report};

/// When to colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorWhen {
    /// On a terminal, unless `NO_COLOR` says otherwise
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

impl From<ColorWhen> for anstream::ColorChoice {
    fn from(when: ColorWhen) -> Self {
        match when {
            ColorWhen::Auto => Self::Auto,
            ColorWhen::Always => Self::Always,
            ColorWhen::Never => Self::Never,
        }
    }
}

/// The way to the terminal. Clones write to the same one.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    quiet: bool,
    color: ColorWhen,
    bars: progress::Bars,
}

impl Printer {
    pub(crate) fn new(global: &Global) -> Self {
        Self {
            quiet: global.quiet,
            color: global.color,
            bars: progress::Bars::new(global),
        }
    }

    /// Writes rows to stdout: as people read them on a terminal, one JSON object a line in a pipe.
    pub(crate) fn rows<R: Serialize>(
        &self,
        format: Format,
        rows: &[R],
        for_people: impl FnOnce(&[R]) -> String,
    ) -> Result<(), Failure> {
        let text = match format.chosen() {
            Format::Json => json(&rows)? + "\n",
            Format::Jsonl => {
                let mut lines = String::new();
                for row in rows {
                    lines += &serde_json::to_string(row).map_err(io::Error::from)?;
                    lines.push('\n');
                }
                lines
            }
            Format::Table | Format::Auto => for_people(rows),
        };
        self.text(&text)
    }

    /// Writes text to stdout as it is, and flushes it.
    pub(crate) fn text(&self, text: &str) -> Result<(), Failure> {
        self.bars.suspend(|| {
            let mut out = anstream::AutoStream::new(io::stdout().lock(), self.color.into());
            out.write_all(text.as_bytes())?;
            out.flush()
        })?;
        Ok(())
    }

    /// Says something on stderr; silent with `-q`.
    pub(crate) fn note(&self, message: Arguments<'_>) {
        if !self.quiet {
            self.say(&format!("{message}"));
        }
    }

    /// Says on stderr why a command ends.
    pub(crate) fn failure(&self, failure: &Failure) {
        if failure.kind == Kind::ClosedPipe {
            return;
        }
        let text = match &failure.report {
            Report::Config(error) => diagnostic::config(
                error,
                &diagnostic::Style::new(self.colours(), io::stderr().is_terminal()),
            ),
            Report::Message { text, source } => {
                let first: Option<&dyn std::error::Error> = source.as_deref().map(|error| error as _);
                let causes = std::iter::successors(first, |error| error.source());
                let mut said = vec![text.clone()];
                // An error that hands on the one below it has said the same.
                for cause in causes.map(ToString::to_string) {
                    if !said.last().is_some_and(|last| last.ends_with(&cause)) {
                        said.push(cause);
                    }
                }
                format!("{} {}", self.red("error:"), said.join("\n  cause: "))
            }
        };
        match &failure.hint {
            Some(hint) => self.say(&format!("{text}\n  hint: {hint}")),
            None => self.say(&text),
        }
    }

    /// A bar on a terminal, a line now and then elsewhere.
    pub(crate) fn progress(&self, what: &str, total: Option<u64>) -> Progress {
        self.bars.start(what, total, self.quiet)
    }

    /// Where log lines go: above the bars.
    pub(crate) fn log_writer(&self) -> impl Fn() -> progress::LogWriter + Send + Sync + 'static {
        let bars = self.bars.clone();
        move || progress::LogWriter::new(bars.clone())
    }

    /// Whether stderr is coloured.
    pub(crate) fn colours(&self) -> bool {
        match self.color {
            ColorWhen::Always => true,
            ColorWhen::Never => false,
            ColorWhen::Auto => anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never,
        }
    }

    /// Emphasis for what went wrong; stripped where there is no colour.
    pub(crate) fn red(&self, text: &str) -> String {
        if self.colours() {
            format!("\u{1b}[1;31m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }

    /// Says something on stderr that `-q` does not silence.
    pub(crate) fn say(&self, text: &str) {
        self.bars.suspend(|| {
            let mut err = anstream::AutoStream::new(io::stderr().lock(), self.color.into());
            // Nobody is left to be told that stderr is closed.
            let _ = writeln!(err, "{text}");
        });
    }
}

/// Several lines of JSON.
fn json(value: &impl Serialize) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(value).map_err(io::Error::from)?)
}

/// Help and version to stdout, misuse to stderr, and what the shell is told.
pub(crate) fn clap_exit(error: &clap::Error) -> Exit {
    match error.print() {
        Err(io) if io.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
        _ if error.use_stderr() => Exit::Usage,
        _ => Exit::Ok,
    }
}

/// The last words of a panic.
pub(crate) fn say_bug(text: &str) {
    eprintln!("{text}");
}
