//! Where things are in a run directory.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use jiff::Timestamp;

use super::state::STATE_FILE;
use super::{LockHolder, Phase, RunDirError, RunLock, RunState, lock};
use crate::task::write_atomically;

/// Names the object store where a run meets its rollouters.
const PLACE_FILE: &str = "place";
/// Ends the names of folders with trials of a validation.
const VALIDATION: &str = "_eval";

/// A run directory, `runs/<name>/`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    dir: PathBuf,
}

impl RunDir {
    /// Opens a run directory for writing, and makes it first where there is none.
    ///
    /// The state of a directory that is there already is left as it is. Within a run that a process is working on
    /// there can be no other: its files would be taken for that run's.
    pub fn create(dir: &Path) -> Result<Self, RunDirError> {
        refuse_within_live(dir)?;
        fs::create_dir_all(dir)?;
        let run = Self { dir: dir.to_owned() };
        if !dir.join(STATE_FILE).is_file() {
            run.write_state(&RunState::new(Phase::Running))?;
        }
        for folder in [
            run.rollouts(),
            run.trials(),
            run.checkpoints(),
            run.eval(),
            run.events(),
        ] {
            fs::create_dir_all(folder)?;
        }
        Ok(run)
    }

    /// Opens a run directory that is there.
    pub fn open(dir: &Path) -> Result<Self, RunDirError> {
        if dir.join(STATE_FILE).is_file() {
            Ok(Self { dir: dir.to_owned() })
        } else {
            if !dir.exists() {
                return Err(RunDirError::Missing { dir: dir.to_owned() });
            }
            Err(RunDirError::NotARun { dir: dir.to_owned() })
        }
    }

    /// Gives it another name, so that a run of its name can begin; never while a process works on it.
    pub fn move_aside(self) -> Result<PathBuf, RunDirError> {
        // Whoever trains there must not lose its folder.
        drop(self.lock()?);
        let (name, stamp) = (self.name(), Timestamp::now().strftime("%Y%m%dT%H%M%SZ"));
        let mut aside = self.dir.with_file_name(format!("{name}.before-{stamp}"));
        // Twice within a second.
        let mut more = 1;
        while fs::symlink_metadata(&aside).is_ok() {
            more += 1;
            aside = self.dir.with_file_name(format!("{name}.before-{stamp}-{more}"));
        }
        fs::rename(&self.dir, &aside)?;
        Ok(aside)
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The run's name: the folder's.
    pub fn name(&self) -> String {
        let absolute = std::path::absolute(&self.dir).unwrap_or_else(|_| self.dir.clone());
        absolute
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// The resolved configuration.
    pub fn config(&self) -> PathBuf {
        self.dir.join("run.toml")
    }

    /// One JSON object a step.
    pub fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.jsonl")
    }

    /// One `step:…` line a step.
    pub fn train_log(&self) -> PathBuf {
        self.dir.join("train.log")
    }

    /// TensorBoard event files.
    pub fn events(&self) -> PathBuf {
        self.dir.join("events")
    }

    /// Rollout shards.
    pub fn rollouts(&self) -> PathBuf {
        self.dir.join("rollouts")
    }

    /// Where this run's rows are: its own folder, or the URL of the prefix in an object store where it meets its rollouters.
    pub fn rows(&self) -> Result<String, RunDirError> {
        match fs::read_to_string(self.dir.join(PLACE_FILE)) {
            Ok(place) => Ok(format!("{}/rollouts", place.trim().trim_end_matches('/'))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(self.rollouts().display().to_string()),
            Err(error) => Err(error.into()),
        }
    }

    /// Notes where this run meets its rollouters. With a folder elsewhere, that folder's rows and trials are from now on
    /// found in this directory, too, unless it has some of its own.
    pub fn note_place(&self, place: &str, folder: Option<&Path>) -> Result<(), RunDirError> {
        let Some(folder) = folder else {
            return write_atomically(&self.dir.join(PLACE_FILE), |file| {
                Ok(file.write_all(format!("{place}\n").as_bytes())?)
            });
        };
        fs::create_dir_all(folder)?;
        if fs::canonicalize(folder)? == fs::canonicalize(&self.dir)? {
            return Ok(());
        }
        for own in [self.rollouts(), self.trials()] {
            let there = folder.join(own.file_name().unwrap_or_default());
            fs::create_dir_all(&there)?;
            // Not removed where it holds anything, or is such a link.
            if fs::symlink_metadata(&own).is_ok_and(|own| own.is_dir()) && std::fs::remove_dir(&own).is_ok() {
                fs::os::unix::fs::symlink(fs::canonicalize(&there)?, &own)?;
            }
        }
        Ok(())
    }

    /// The ledger of which rollouts were consumed.
    pub fn ledger(&self) -> PathBuf {
        self.dir.join("buffer.jsonl")
    }

    /// Folders of trials.
    pub fn trials(&self) -> PathBuf {
        self.dir.join("trials")
    }

    /// The folder of one trial. A validation's are apart: its tasks may be those of the same step's training.
    pub fn trial(&self, step: u64, validation: bool, trial_name: &str) -> PathBuf {
        self.trials().join(Self::trials_of(step, validation)).join(trial_name)
    }

    /// Name of the folder that holds a step's trials.
    pub fn trials_of(step: u64, validation: bool) -> String {
        let suffix = if validation { VALIDATION } else { "" };
        format!("step_{step:04}{suffix}")
    }

    /// Whether a folder of this name holds the trials of a validation.
    pub fn holds_validation(name: &str) -> bool {
        name.ends_with(VALIDATION)
    }

    /// Checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.dir.join("checkpoints")
    }

    /// The folder of one checkpoint.
    pub fn checkpoint(&self, step: u64) -> PathBuf {
        self.checkpoints().join(format!("step_{step:06}"))
    }

    /// Weights for engines in other processes.
    pub fn weights(&self) -> PathBuf {
        self.dir.join("weights")
    }

    /// Results of validation.
    pub fn eval(&self) -> PathBuf {
        self.dir.join("eval")
    }

    /// Tasks that were prepared for this run from inline records.
    pub fn tasks(&self) -> PathBuf {
        self.dir.join("tasks")
    }

    /// Takes the lock that makes this process the run's only writer; held until the guard is dropped.
    pub fn lock(&self) -> Result<RunLock, RunDirError> {
        RunLock::take(&self.dir)
    }

    /// The process that holds the lock, if one does.
    pub fn holder(&self) -> Result<Option<LockHolder>, RunDirError> {
        lock::holder(&self.dir)
    }

    /// Writes the resolved configuration; secrets must be gone from `text` already.
    pub fn write_config(&self, text: &str) -> Result<(), RunDirError> {
        write_atomically(&self.config(), |file| Ok(file.write_all(text.as_bytes())?))
    }

    /// How far the run has come.
    pub fn state(&self) -> Result<RunState, RunDirError> {
        RunState::read(&self.dir.join(STATE_FILE))
    }

    /// Replaces the state.
    pub fn write_state(&self, state: &RunState) -> Result<(), RunDirError> {
        state.write(&self.dir.join(STATE_FILE))
    }
}

/// Refuses a folder of which one further up is a run that a process is working on.
fn refuse_within_live(dir: &Path) -> Result<(), RunDirError> {
    let absolute = std::path::absolute(dir)?;
    let (mut there, mut rest) = (absolute.as_path(), PathBuf::new());
    // Links are followed as far as the path exists.
    while !there.exists() {
        let Some(parent) = there.parent() else { break };
        rest = PathBuf::from(there.file_name().unwrap_or_default()).join(rest);
        there = parent;
    }
    let full = fs::canonicalize(there)?.join(rest);
    for run in full.ancestors().skip(1) {
        if !run.join(STATE_FILE).is_file() {
            continue;
        }
        if let Some(holder) = lock::holder(run)? {
            return Err(RunDirError::WithinLive {
                dir: dir.to_owned(),
                run: run.to_owned(),
                pid: holder.pid,
                host: holder.host,
            });
        }
    }
    Ok(())
}
