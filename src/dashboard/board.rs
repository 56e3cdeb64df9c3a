//! All runs that are shown, and the clock that reads on.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::DashboardError;
use super::find::{Finds, Kind, Skipped, find, found};
use super::run::Run;
use crate::run_dir::History;

/// Runs of which the metrics are held at a time.
const HELD: usize = 12;
/// Logs that the page may hand over.
const IMPORTS: usize = 16;

/// What is shown.
#[derive(Debug, Clone, Default)]
pub struct BoardOptions {
    /// Folders of runs, runs, or logs.
    pub roots: Vec<PathBuf>,
    /// How long a question about trials waits while they are read, before it is answered with what is there.
    pub patience: Duration,
}

/// The runs below some folders.
pub struct Board {
    roots: Vec<PathBuf>,
    patience: Duration,
    runs: RwLock<Vec<Arc<Run>>>,
    skipped: RwLock<Vec<Skipped>>,
    changes: watch::Sender<u64>,
}

impl Board {
    /// Looks for runs.
    ///
    /// # Errors
    /// Where a folder is not there.
    pub fn open(options: &BoardOptions) -> Result<Arc<Self>, DashboardError> {
        if let Some(missing) = options.roots.iter().find(|root| !root.exists()) {
            return Err(DashboardError::NoFolder(missing.clone()));
        }
        let board = Self {
            roots: options
                .roots
                .iter()
                .map(|root| std::path::absolute(root).unwrap_or_else(|_| root.clone()))
                .collect(),
            patience: options.patience,
            runs: RwLock::default(),
            skipped: RwLock::default(),
            changes: watch::channel(0).0,
        };
        board.rescan();
        Ok(Arc::new(board))
    }

    /// How many runs there are, and what was passed over.
    pub fn seen(&self) -> (usize, Vec<Skipped>) {
        let skipped = self.skipped.read().unwrap_or_else(PoisonError::into_inner);
        (self.list().len(), skipped.clone())
    }

    pub(super) fn list(&self) -> Vec<Arc<Run>> {
        self.runs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The run of an id or a name.
    pub(super) fn run(&self, id: &str) -> Option<Arc<Run>> {
        let runs = self.list();
        let by_id = runs.iter().find(|run| run.found.id == id);
        by_id.or_else(|| runs.iter().find(|run| run.found.name == id)).cloned()
    }

    /// Changes whenever anything that is shown does.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn changed(&self) {
        self.changes.send_modify(|revision| *revision += 1);
    }

    /// Looks into the folders again. True if runs came or went.
    fn rescan(&self) -> bool {
        let Finds { runs: found, skipped } = find(&self.roots);
        *self.skipped.write().unwrap_or_else(PoisonError::into_inner) = skipped;
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        let before = runs.len();
        let mut next: Vec<Arc<Run>> = found
            .into_iter()
            .map(|found| {
                let known = runs.iter().find(|run| run.found == found);
                known.map_or_else(|| Arc::new(Run::new(found, self.patience)), Arc::clone)
            })
            .collect();
        next.extend(runs.iter().filter(|run| !run.found.path.is_absolute()).cloned());
        let same = before == next.len() && runs.iter().zip(&next).all(|(one, other)| Arc::ptr_eq(one, other));
        *runs = next;
        !same
    }

    /// One tick of the clock: reads on, now and then looks for new runs, and lets go of what nobody looks at.
    pub(super) fn tick(&self, number: u64) {
        let mut changed = number.is_multiple_of(5) && self.rescan();
        let runs = self.list();
        for run in &runs {
            changed |= run.refresh();
        }
        let mut idle: Vec<_> = runs.iter().filter_map(|run| Some((run.idle()?, run))).collect();
        idle.sort_by_key(|(idle, _)| *idle);
        for (_, run) in idle.iter().skip(HELD) {
            run.unload();
        }
        if changed || number.is_multiple_of(5) {
            self.changed();
        }
    }

    /// Shows a log that the page handed over, for as long as the server runs.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn import(&self, name: &str, text: &str) -> Result<String, String> {
        let history = History::parse(name, text);
        if history.steps().is_empty() {
            return Err("no line `step:N - key:value` and no line of metrics.jsonl in it".to_owned());
        }
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        let imports = runs.iter().filter(|run| !run.found.path.is_absolute()).count();
        if imports >= IMPORTS {
            return Err(format!(
                "{IMPORTS} logs are imported already; start the dashboard on their folder instead"
            ));
        }
        // A relative path tells it from what lies in a folder.
        let path = PathBuf::from(format!("import-{imports}")).join(name.replace(['/', '\\'], "_"));
        let run = Run::imported(found(&path, Kind::Log), history);
        let id = run.found.id.clone();
        runs.push(Arc::new(run));
        drop(runs);
        self.changed();
        Ok(id)
    }

    /// The list of runs, newest first, and where they were looked for.
    pub(super) fn runs_json(&self) -> Value {
        let mut runs: Vec<Value> = self.list().iter().map(|run| run.summary()).collect();
        let age = |run: &Value| run["updated"].as_f64().unwrap_or(f64::MAX);
        runs.sort_by(|one, other| age(other).total_cmp(&age(one)));
        json!({
            "runs": runs,
            "roots": self.roots,
            "skipped": *self.skipped.read().unwrap_or_else(PoisonError::into_inner),
            "version": env!("CARGO_PKG_VERSION"),
        })
    }
}
