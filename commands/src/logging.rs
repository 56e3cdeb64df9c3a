//! Log lines on stderr, and what a panic says.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use crate::cli::Global;
use crate::output::Printer;

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// For people.
    Text,
    /// One object a line.
    Json,
}

/// Starts logging: warnings, `-v` information, `-vv` debugging; `LEGO_LOG` wins over both.
pub(crate) fn start(global: &Global, printer: &Printer) {
    let level = match global.verbose {
        0 if global.quiet => "error",
        0 => "warn",
        1 => "warn,lego=info",
        2 => "info,lego=debug",
        _ => "debug,lego=trace",
    };
    let filter = std::env::var(lego::config::env::LOG)
        .ok()
        .and_then(|directives| EnvFilter::try_new(directives).ok())
        .unwrap_or_else(|| EnvFilter::new(level));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(printer.log_writer())
        .with_ansi(std::io::stderr().is_terminal() && printer.colours());
    // A second subscriber (a test in this process) keeps the first.
    let _ = match global.log_format {
        LogFormat::Text => builder.compact().try_init().is_ok(),
        LogFormat::Json => builder.json().try_init().is_ok(),
    };
}

/// Makes a panic say that it is a bug and where to report it.
pub(crate) fn install_panic_hook() {
    std::panic::set_hook(Box::new(|info| {
        let place = info
            .location()
            .map_or_else(String::new, |at| format!(" at {}:{}", at.file(), at.line()));
        let what = info
            .payload()
            .downcast_ref::<&str>()
            .map(ToString::to_string)
            .or_else(|| info.payload().downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        let backtrace = std::backtrace::Backtrace::capture();
        crate::output::say_bug(&format!(
            "error: this is a bug in lego {}: {what}{place}\n  hint: please report this text, the command and its run.toml to the project's issue tracker; \
             RUST_BACKTRACE=1 adds where it came from\n{backtrace}",
            env!("CARGO_PKG_VERSION")
        ));
    }));
}
