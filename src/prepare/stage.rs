//! Puts task folders in place, many at a time: written to a hidden folder, made durable together, renamed.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::PrepareError;
use super::repo_cache::Checkout;
use crate::task::sync_folder;

/// Folders that are written together, on all cores.
const WRITTEN_TOGETHER: usize = 512;
/// Folders that are made durable and put in place together.
const PLACED_TOGETHER: usize = 10_000;
/// How long another preparation of the same folder is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much work a kill costs at most: after this long what is written is put in place.
const PLACED_EVERY: Duration = Duration::from_secs(10);

/// One file of a folder.
pub(super) struct StagedFile {
    pub(super) path: String,
    pub(super) content: String,
    pub(super) executable: bool,
}

impl StagedFile {
    pub(super) fn plain(path: &str, content: String) -> Self {
        Self {
            path: path.to_owned(),
            content,
            executable: false,
        }
    }

    pub(super) fn script(path: &str, content: String) -> Self {
        Self {
            executable: true,
            ..Self::plain(path, content)
        }
    }
}

/// A repository's files in a folder, and copies of some of them in another.
pub(super) struct StagedCheckout {
    pub(super) checkout: Checkout,
    pub(super) to: &'static str,
    pub(super) copies: Vec<String>,
    pub(super) copies_to: &'static str,
}

/// One folder, not written yet.
pub(super) struct StagedFolder {
    pub(super) name: String,
    /// Folders in it that are made even where they hold no file.
    pub(super) folders: &'static [&'static str],
    pub(super) files: Vec<StagedFile>,
    pub(super) checkout: Option<StagedCheckout>,
}

/// Writes folders below `out`, whole or not at all.
pub(super) struct Stage {
    /// Locked as long as this lives: nobody else writes there.
    _lock: std::fs::File,
    out: PathBuf,
    hidden: PathBuf,
    unwritten: Vec<StagedFolder>,
    unplaced: Vec<String>,
    placed: Instant,
}

impl Stage {
    /// Begins; removes what a killed process left behind.
    pub(super) fn new(out: &Path) -> Result<Self, PrepareError> {
        fs::create_dir_all(out)?;
        let lock = std::fs::File::open(out)?;
        let began = Instant::now();
        while lock.try_lock().is_err() {
            if began.elapsed() > PATIENCE {
                return Err(PrepareError::InUse { out: out.to_owned() });
            }
            std::thread::sleep(PATIENCE / 100);
        }
        for entry in fs::read_dir(out)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            // The lock is ours, so that whoever wrote there is gone.
            if name
                .strip_prefix(".prepare-")
                .is_some_and(|rest| rest.strip_suffix(".tmp").is_some())
            {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let hidden = out.join(format!(".prepare-{}.tmp", std::process::id()));
        fs::create_dir_all(&hidden)?;
        Ok(Self {
            _lock: lock,
            out: out.to_owned(),
            hidden,
            unwritten: Vec::new(),
            unplaced: Vec::new(),
            placed: Instant::now(),
        })
    }

    /// Adds a folder, which is in place at the latest after `finish`.
    pub(super) fn add(&mut self, folder: StagedFolder) -> Result<(), PrepareError> {
        self.unwritten.push(folder);
        let due = self.placed.elapsed() >= PLACED_EVERY;
        if due || self.unwritten.len() >= WRITTEN_TOGETHER {
            self.write()?;
        }
        if due || self.unplaced.len() >= PLACED_TOGETHER {
            self.place()?;
        }
        Ok(())
    }

    /// Writes what waits into the hidden folder.
    fn write(&mut self) -> Result<(), PrepareError> {
        let hidden = &self.hidden;
        on_all_cores(&self.unwritten, |folder| write_folder(hidden, folder))?;
        self.unplaced.extend(self.unwritten.drain(..).map(|folder| folder.name));
        Ok(())
    }

    /// Makes what waits durable, and renames it into place over what is there.
    fn place(&mut self) -> Result<(), PrepareError> {
        // One sync of the file system costs less than one a file.
        let folder = fs::File::open(&self.hidden)?;
        nix::unistd::syncfs(folder.file()).map_err(std::io::Error::from)?;
        for name in self.unplaced.drain(..) {
            let target = self.out.join(&name);
            if target.exists() {
                // A folder cannot be renamed over one with content.
                fs::rename(&target, self.hidden.join(format!("{name}.replaced")))?;
            }
            fs::rename(self.hidden.join(&name), &target)?;
        }
        sync_folder(&self.out)?;
        self.placed = Instant::now();
        Ok(())
    }

    /// Ends: everything is in place and durable.
    pub(super) fn finish(mut self) -> Result<(), PrepareError> {
        self.write()?;
        self.place()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Whatever is left in it was not asked to be kept.
        let _ = fs::remove_dir_all(&self.hidden);
    }
}

fn write_folder(hidden: &Path, folder: &StagedFolder) -> Result<(), PrepareError> {
    let root = hidden.join(&folder.name);
    fs::create_dir(&root)?;
    for inner in folder.folders {
        fs::create_dir_all(root.join(inner))?;
    }
    if let Some(staged) = &folder.checkout {
        let (from, to) = (root.join(staged.to), root.join(staged.copies_to));
        staged.checkout.write(&from)?;
        fs::create_dir_all(&to)?;
        for path in &staged.copies {
            let copy = to.join(path);
            // What is no plain file is not the verifier's to bring back.
            if from.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file()) {
                copy.parent().map_or(Ok(()), fs::create_dir_all)?;
                fs::copy(from.join(path), &copy)?;
            }
        }
    }
    for file in &folder.files {
        let path = root.join(&file.path);
        let mut options = fs::OpenOptions::new();
        options
            .write(true)
            .create_new(true)
            .mode(if file.executable { 0o755 } else { 0o644 });
        let mut open = options.open(&path);
        if matches!(&open, Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
            path.parent().map_or(Ok(()), fs::create_dir_all)?;
            open = options.open(&path);
        }
        std::io::Write::write_all(&mut open?, file.content.as_bytes())?;
    }
    Ok(())
}

/// Does the same to every item, on all cores; the results are in the order of the items. The first error
/// ends it.
pub(super) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    each: impl Fn(&T) -> Result<R, PrepareError> + Sync,
) -> Result<Vec<R>, PrepareError> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let share = items.len().div_ceil(cores).max(1);
    std::thread::scope(|scope| {
        let each = &each;
        let workers: Vec<_> = items
            .chunks(share)
            .map(|chunk| scope.spawn(move || chunk.iter().map(each).collect::<Result<Vec<R>, _>>()))
            .collect();
        let mut results = Vec::with_capacity(items.len());
        for worker in workers {
            match worker.join() {
                Ok(part) => results.extend(part?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(results)
    })
}
