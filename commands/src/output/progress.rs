//! Progress on stderr: bars on a terminal, one summary line every few seconds elsewhere.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Global;

/// Time between two summary lines where no bar is drawn.
const SUMMARY_EVERY: Duration = Duration::from_secs(10);

/// All bars of this process; text is written above them.
#[derive(Debug, Clone)]
pub(super) struct Bars {
    multi: Option<MultiProgress>,
}

impl Bars {
    /// Bars are drawn on a terminal that is watched by a person: not under `-v`, CI or `--no-progress`.
    pub(super) fn new(global: &Global) -> Self {
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let drawn = io::stderr().is_terminal()
            && !global.quiet
            && global.verbose == 0
            && !global.no_progress
            && !set(lego::config::env::NO_PROGRESS)
            && !set("CI");
        let multi = drawn.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(8)));
        Self { multi }
    }

    /// Runs something that writes, with the bars out of the way.
    pub(super) fn suspend<T>(&self, write: impl FnOnce() -> T) -> T {
        match &self.multi {
            Some(multi) => multi.suspend(write),
            None => write(),
        }
    }

    pub(super) fn start(&self, what: &str, total: Option<u64>, quiet: bool) -> Progress {
        let bar = self.multi.as_ref().map(|multi| {
            let (bar, template) = match total {
                Some(total) => (
                    ProgressBar::new(total),
                    "{prefix} {bar:24} {pos}/{len} [{elapsed_precise}] {msg}",
                ),
                None => (
                    ProgressBar::no_length(),
                    "{prefix} {spinner} {pos} [{elapsed_precise}] {msg}",
                ),
            };
            let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let bar = multi.add(bar.with_style(style.progress_chars("=> ")).with_prefix(what.to_owned()));
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        let now = Instant::now();
        let state = State {
            position: 0,
            message: String::new(),
            started: now,
            spoken: now,
        };
        let silent = quiet || bar.is_some();
        Progress {
            what: what.to_owned(),
            total,
            bar,
            silent,
            state: Arc::new(Mutex::new(state)),
        }
    }
}

/// Progress of one thing.
#[derive(Debug, Clone)]
pub(crate) struct Progress {
    what: String,
    total: Option<u64>,
    bar: Option<ProgressBar>,
    silent: bool,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    position: u64,
    message: String,
    started: Instant,
    spoken: Instant,
}

impl Progress {
    /// Says how far it is and what else is worth knowing: `37 running · 4 failed · reward 0.41`.
    pub(crate) fn set(&self, position: u64, message: impl Into<String>) {
        let message = message.into();
        if let Some(bar) = &self.bar {
            bar.set_position(position);
            bar.set_message(message.clone());
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.position = position;
        state.message = message;
        if !self.silent && state.spoken.elapsed() >= SUMMARY_EVERY {
            state.spoken = Instant::now();
            let line = self.line(&state);
            drop(state);
            let _ = writeln!(io::stderr().lock(), "{line}");
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    fn line(&self, state: &State) -> String {
        let seconds = state.started.elapsed().as_secs();
        let total = self.total.map(|total| format!("/{total}")).unwrap_or_default();
        let clock = format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
        format!("{} {}{total} [{clock}] {}", self.what, state.position, state.message)
    }
}

/// Writes one log line above the bars.
pub(crate) struct LogWriter {
    bars: Bars,
}

impl LogWriter {
    pub(super) fn new(bars: Bars) -> Self {
        Self { bars }
    }
}

impl Write for LogWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.bars
            .suspend(|| io::stderr().lock().write_all(line))
            .map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().lock().flush()
    }
}
