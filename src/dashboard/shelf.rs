//! The trials of a run, read by a thread of its own, piece by piece: whoever asks meanwhile is given what is there, and nobody
//! who asks for something else waits. A thread ends with its shelf.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use super::trials::Trials;
use crate::run_dir::RunDir;

/// Shards are looked for at most this often.
const EVERY: Duration = Duration::from_secs(2);
/// Shards that are read before they are shown.
const PIECE: usize = 64;
/// Threads that read at a time, of one run.
const READERS: usize = 4;

/// Clones are the same shelf.
#[derive(Clone, Default)]
pub(super) struct Shelf(Arc<Inner>);

#[derive(Default)]
struct Inner {
    trials: RwLock<Trials>,
    standing: Mutex<Standing>,
    changed: Condvar,
}

#[derive(Default)]
struct Standing {
    looked: Option<Instant>,
    reading: bool,
    /// Whether a look has ended: what is held is then not the beginning of a first one.
    known: bool,
    /// Shards of this look that are read, of how many.
    progress: (usize, usize),
    revision: u64,
}

impl Shelf {
    /// Begins to read what is new, unless that was done just now or is being done.
    pub(super) fn look(&self, dir: &RunDir) {
        let mut standing = self.0.standing();
        if standing.reading || standing.looked.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        standing.looked = Some(Instant::now());
        standing.reading = true;
        standing.progress = (0, 0);
        drop(standing);
        let (inner, folders) = (Arc::downgrade(&self.0), [(dir.rollouts(), false), (dir.eval(), true)]);
        let reading = std::thread::Builder::new().name("shards".to_owned());
        if let Err(error) = reading.spawn(move || read(&inner, &folders)) {
            self.0.standing().reading = false;
            tracing::warn!(%error, "no thread to read shards with");
        }
    }

    /// Waits until nothing is being read, but not for longer than this. That new shards are looked for is nothing to wait for:
    /// in a folder with thousands it takes as long as an answer may.
    pub(super) fn wait(&self, patience: Duration) {
        let standing = self.0.standing();
        let waited = self.0.changed.wait_timeout_while(standing, patience, |standing| {
            standing.reading && (!standing.known || standing.progress.0 < standing.progress.1)
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// What is there.
    pub(super) fn with<T>(&self, look: impl FnOnce(&Trials) -> T) -> T {
        look(&self.0.trials.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether anybody ever asked for them.
    pub(super) fn is_used(&self) -> bool {
        self.0.standing().looked.is_some()
    }

    /// Shards that are read, of how many, while that goes on.
    pub(super) fn progress(&self) -> Option<(usize, usize)> {
        let standing = self.0.standing();
        standing.reading.then_some(standing.progress)
    }

    /// Changes whenever the trials do, and when the last of them is there.
    pub(super) fn revision(&self) -> u64 {
        self.0.standing().revision
    }
}

impl Inner {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// However a thread ends, the next look may begin.
struct Ends<'a>(&'a Weak<Inner>);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if let Some(inner) = self.0.upgrade() {
            let mut standing = inner.standing();
            standing.reading = false;
            standing.known = true;
            standing.revision += u64::from(standing.progress.1 > 0);
            drop(standing);
            inner.changed.notify_all();
        }
    }
}

fn read(inner: &Weak<Inner>, folders: &[(PathBuf, bool)]) {
    let _ends = Ends(inner);
    let found = shards_of(folders);
    let Some(pending) = inner.upgrade().map(|inner| {
        let mut trials = inner.trials.write().unwrap_or_else(PoisonError::into_inner);
        let (pending, begun_anew) = trials.unread(found);
        drop(trials);
        let mut standing = inner.standing();
        standing.progress = (0, pending.len());
        standing.revision += u64::from(begun_anew);
        pending
    }) else {
        return;
    };
    for piece in pending.chunks(PIECE) {
        let read = side_by_side(piece);
        let Some(inner) = inner.upgrade() else { return };
        let mut trials = inner.trials.write().unwrap_or_else(PoisonError::into_inner);
        for ((path, _), of_one) in piece.iter().zip(read) {
            trials.take(path, of_one);
        }
        drop(trials);
        let mut standing = inner.standing();
        standing.progress.0 += piece.len();
        standing.revision += 1;
    }
}

/// What each of some shards holds, in their order.
fn side_by_side(piece: &[(PathBuf, bool)]) -> Vec<Trials> {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let each = piece.len().div_ceil(threads.min(READERS)).max(1);
    std::thread::scope(|scope| {
        let read = |part: &[(PathBuf, bool)]| -> Vec<Trials> {
            let of_one = |(path, validation): &(PathBuf, bool)| Trials::of(path, *validation);
            part.iter().map(of_one).collect()
        };
        let readers: Vec<_> = piece.chunks(each).map(|part| scope.spawn(move || read(part))).collect();
        let read = readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default());
        read.collect()
    })
}

/// Finished shards below these folders, each with whether it holds validations.
fn shards_of(folders: &[(PathBuf, bool)]) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    for (folder, validation) in folders {
        shards(folder, 0, &mut |path| found.push((path, *validation)));
    }
    found
}

/// Finished shards below a folder.
fn shards(folder: &Path, depth: usize, take: &mut impl FnMut(PathBuf)) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if name.starts_with('.') {
            continue;
        }
        if name.ends_with(".parquet") {
            take(path);
        } else if depth < 2 && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            shards(&path, depth + 1, take);
        }
    }
}
