//! One run that is watched: what is read of it, and how it stands.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};

use super::find::{Found, Kind};
use super::redact::redact;
use super::series::{self, number};
use super::shelf::Shelf;
use super::trials::Trials;
use crate::prompt::Tokenizer;
use crate::run_dir::{History, Phase, RunDir};

/// Bytes of the end of a log in which its newest step is looked for.
const TAIL: usize = 128 << 10;
/// A log that grew within this time is taken for live.
const LIVE: Duration = Duration::from_mins(5);

/// A run.
pub(super) struct Run {
    pub(super) found: Found,
    /// In memory: a log that was handed over by the page.
    imported: bool,
    loaded: Mutex<Option<Loaded>>,
    tail: Mutex<Option<(u64, Option<u64>)>>,
    /// The metrics in numbers, of a revision of the history.
    keys: Mutex<Option<(u64, Value)>>,
    tokenizer: OnceLock<Option<Tokenizer>>,
    used: Mutex<Instant>,
    /// How long who asks for trials waits for those that are being read.
    patience: Duration,
}

/// What is held of a run.
pub(super) struct Loaded {
    pub(super) history: History,
    shelf: Shelf,
    /// The shelf's revision that was told.
    told: u64,
    revision: u64,
}

impl Run {
    pub(super) fn new(found: Found, patience: Duration) -> Self {
        Self {
            patience,
            found,
            imported: false,
            loaded: Mutex::new(None),
            tail: Mutex::new(None),
            keys: Mutex::new(None),
            tokenizer: OnceLock::new(),
            used: Mutex::new(Instant::now()),
        }
    }

    pub(super) fn imported(found: Found, history: History) -> Self {
        let loaded = Loaded {
            history,
            shelf: Shelf::default(),
            told: 0,
            revision: 1,
        };
        Self {
            imported: true,
            loaded: Mutex::new(Some(loaded)),
            ..Self::new(found, Duration::ZERO)
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its directory, of one of ours.
    pub(super) fn dir(&self) -> Option<RunDir> {
        (self.found.kind == Kind::Ours)
            .then(|| RunDir::open(&self.found.path).ok())
            .flatten()
    }

    /// Looks at what is held, which is read first where it is not there yet.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Loaded) -> T) -> T {
        *self.used.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let mut loaded = self.lock();
        let held = loaded.get_or_insert_with(|| {
            let path = self.dir().map_or_else(|| self.found.path.clone(), |dir| dir.metrics());
            let mut held = Loaded {
                history: History::of(path),
                shelf: Shelf::default(),
                told: 0,
                revision: 0,
            };
            self.refresh_held(&mut held);
            held
        });
        look(held)
    }

    /// Looks at the trials: those that are there, where reading all of them takes longer than whoever asks waits.
    pub(super) fn with_trials<T>(&self, look: impl FnOnce(&Trials) -> T) -> T {
        let shelf = self.with(|held| held.shelf.clone());
        if let Some(dir) = self.dir() {
            shelf.look(&dir);
            shelf.wait(self.patience);
        }
        shelf.with(look)
    }

    /// Shards that are read, of how many, while that goes on.
    pub(super) fn reading(&self) -> Option<(usize, usize)> {
        self.lock().as_ref()?.shelf.progress()
    }

    fn refresh_held(&self, held: &mut Loaded) -> bool {
        let mut changed = !self.imported && held.history.refresh().unwrap_or(false);
        if held.shelf.is_used()
            && let Some(dir) = self.dir()
        {
            held.shelf.look(&dir);
            let now = held.shelf.revision();
            changed |= now != held.told;
            held.told = now;
        }
        held.revision += u64::from(changed);
        changed
    }

    /// Reads what came since, if it is held at all. True if anything did.
    pub(super) fn refresh(&self) -> bool {
        self.lock().as_mut().is_some_and(|held| self.refresh_held(held))
    }

    /// Lets go of what is held; it is read again when it is looked at.
    pub(super) fn unload(&self) {
        if !self.imported {
            *self.lock() = None;
        }
    }

    /// Since when nobody looked; `None` where nothing is held.
    pub(super) fn idle(&self) -> Option<Duration> {
        self.lock().as_ref()?;
        Some(self.used.lock().unwrap_or_else(PoisonError::into_inner).elapsed())
    }

    pub(super) fn revision(&self) -> u64 {
        self.lock().as_ref().map_or(0, |held| held.revision)
    }

    /// How it stands, without reading more than a little.
    pub(super) fn summary(&self) -> Value {
        let mut value = json!({
            "id": self.found.id,
            "name": self.found.name,
            "path": self.found.path,
            "kind": if self.imported { "import" } else if self.found.kind == Kind::Ours { "lego" } else { "log" },
            "revision": self.revision(),
            "reading": self.reading().map(|(read, of)| json!({"read": read, "of": of})),
        });
        let standing = match self.dir() {
            Some(dir) => of_ours(&dir),
            None => self.of_log(),
        };
        if let (Some(value), Value::Object(standing)) = (value.as_object_mut(), standing) {
            value.extend(standing);
        }
        value
    }

    fn of_log(&self) -> Value {
        if self.imported {
            let step = self.with(|held| held.history.steps().last().copied());
            return json!({"state": "import", "step": step});
        }
        let about = std::fs::metadata(&self.found.path).ok();
        let written = about.as_ref().and_then(|about| about.modified().ok());
        let age = written.and_then(|at| SystemTime::now().duration_since(at).ok());
        let length = about.map_or(0, |about| about.len());
        let mut tail = self.tail.lock().unwrap_or_else(PoisonError::into_inner);
        if tail.is_none_or(|(known, _)| known != length) {
            *tail = Some((length, last_step(&self.found.path)));
        }
        let seconds = written
            .and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
            .map(|at| at.as_secs_f64());
        json!({
            "state": if age.is_some_and(|age| age < LIVE) { "running" } else { "log" },
            "step": tail.and_then(|(_, step)| step),
            "updated": seconds,
        })
    }

    /// Everything that a page needs to begin with.
    pub(super) fn detail(&self) -> Value {
        let mut value = self.summary();
        let more = self.with(|held| {
            let history = &held.history;
            let keys = self.keys_of(history);
            let times = history.times();
            let timed: Vec<f64> = times.iter().copied().filter(|time| !time.is_nan()).collect();
            json!({
                "keys": keys,
                "rows": history.steps().len(),
                "first_step": history.steps().first(),
                "last_step": history.steps().last(),
                "first_time": timed.first().map_or(Value::Null, |time| number(*time)),
                "last_time": timed.last().map_or(Value::Null, |time| number(*time)),
                "restarts": history.restarts(),
                "attempt_step": history.steps().get(history.attempt_row()),
                "damage": history.damage().map(|(lines, first)| format!("{lines} damaged lines, the first is {first}")),
                "config": self.config(),
            })
        });
        if let (Some(value), Value::Object(more)) = (value.as_object_mut(), more) {
            value.extend(more);
        }
        value
    }

    /// Each metric in numbers, worked out once for each revision.
    fn keys_of(&self, history: &History) -> Value {
        let mut kept = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, keys)) = kept.as_ref().filter(|(revision, _)| *revision == history.revision()) {
            return keys.clone();
        }
        let names = history.names().iter();
        let columns = names.filter_map(|name| Some((name, history.column(name)?)));
        let shown = columns.filter(|(_, column)| !column.is_empty());
        let keys = Value::Array(
            shown
                .map(|(name, column)| series::summary(history, name, column))
                .collect(),
        );
        *kept = Some((history.revision(), keys.clone()));
        keys
    }

    /// Its resolved configuration, without secrets.
    pub(super) fn config(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.dir()?.config()).ok()?;
        Some(redact(&text))
    }

    /// What the run's tokens mean, where its tokenizer is still there.
    pub(super) fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizer
            .get_or_init(|| {
                let text = std::fs::read_to_string(self.dir()?.config()).ok()?;
                let config: toml::Table = text.parse().ok()?;
                let policy = config.get("policy")?.as_table()?;
                let folder = policy.get("tokenizer").or_else(|| policy.get("model"))?.as_str()?;
                Tokenizer::load(Path::new(folder)).ok()
            })
            .as_ref()
    }

    /// Logs that can be read, by name.
    pub(super) fn logs(&self) -> Vec<(String, PathBuf)> {
        let Some(dir) = self.dir() else {
            return if self.imported {
                Vec::new()
            } else {
                vec![(self.found.name.clone(), self.found.path.clone())]
            };
        };
        let mut found = vec![("train.log".to_owned(), dir.train_log())];
        let mut more: Vec<PathBuf> = std::fs::read_dir(dir.path().join("logs"))
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect();
        more.sort();
        for path in more {
            let name = path
                .file_name()
                .map(|name| name.to_string_lossy().into_owned())
                .unwrap_or_default();
            found.push((format!("logs/{name}"), path));
        }
        found.retain(|(_, path)| path.is_file());
        found
    }
}

fn of_ours(dir: &RunDir) -> Value {
    let state = match dir.state() {
        Ok(state) => state,
        Err(error) => return json!({"state": "damaged", "message": error.to_string()}),
    };
    let holder = dir.holder().ok().flatten();
    let phase = match state.state {
        Phase::Running if holder.is_none() => "interrupted",
        Phase::Running => "running",
        Phase::Finished => "finished",
        Phase::Failed => "failed",
        Phase::Interrupted => "interrupted",
    };
    json!({
        "state": phase,
        "step": state.step,
        "steps": state.steps,
        "starts": state.starts,
        "message": state.message.as_deref().map(redact),
        "updated": state.time.as_millisecond() as f64 / 1000.0,
        "started": state.started_at.as_millisecond() as f64 / 1000.0,
        "pid": holder.as_ref().map(|holder| holder.pid),
        "host": holder.map(|holder| holder.host),
    })
}

/// The newest step that the end of a log tells.
fn last_step(path: &Path) -> Option<u64> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let mut file = std::fs::File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL as u64))).ok()?;
    let mut tail = Vec::new();
    file.take(TAIL as u64).read_to_end(&mut tail).ok()?;
    History::parse("", &String::from_utf8_lossy(&tail))
        .steps()
        .last()
        .copied()
}
