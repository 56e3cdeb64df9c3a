//! The folder of checkpoints: save, find the newest complete one, keep the best, prune the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use lego_policy::{Trainer, Weights};
use serde::{Deserialize, Serialize};

use super::error::{CheckpointError, io_error};
use super::export::Wanted;
use super::files::{copy_tokenizer, remove, sizes, sync_folder, write_synced};
use super::state::{self, CheckpointState};

#[cfg(test)]
mod tests;

pub(super) const OPTIMIZER: &str = "optimizer.safetensors";
/// Folder of the critic, where there is one: weights, config.json and optimizer state.
const CRITIC: &str = "critic";
/// Folder of the adapters, where these are what is trained.
const ADAPTER: &str = "adapter";
const LATEST: &str = "latest";
const BEST: &str = "best.json";
/// Of names that a crash may leave behind and that nobody reads.
const TEMPORARY: &str = ".tmp-";

/// A complete checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Its folder, loadable by Hugging Face transformers as it stands.
    pub path: PathBuf,
    /// Its counters.
    pub state: CheckpointState,
}

/// `checkpoints/` of a run. One writer at a time: the run's lock is the caller's.
#[derive(Debug, Clone)]
pub struct CheckpointStore {
    folder: PathBuf,
    keep: usize,
    /// Steps whose validation has not ended.
    held: BTreeSet<u64>,
}

/// The best step of a validation series so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
struct Best {
    step: u64,
    score: f64,
}

fn name_of(step: u64) -> String {
    format!("step_{step:06}")
}

fn step_of(name: &str) -> Option<u64> {
    name.strip_prefix("step_")?.parse().ok()
}

impl CheckpointStore {
    /// The folder as it stands, to be read from beside the run that writes it: nothing is created, nothing removed.
    pub fn read(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            keep: usize::MAX,
            held: BTreeSet::new(),
        }
    }

    /// Opens the folder, creating it, and removes what an interrupted writer left under a temporary name.
    /// The newest `keep` checkpoints (at least one) survive pruning, beside the best of each validation series.
    pub fn open(folder: impl Into<PathBuf>, keep: usize) -> Result<Self, CheckpointError> {
        let store = Self {
            keep: keep.max(1),
            ..Self::read(folder)
        };
        fs_err::create_dir_all(&store.folder).map_err(io_error("create", &store.folder))?;
        for name in store.names()?.into_iter().filter(|name| name.starts_with(TEMPORARY)) {
            remove(&store.folder.join(name))?;
        }
        Ok(store)
    }

    /// Writes the checkpoint of `state.step` with the critic, where there is one, then moves `latest`, then prunes. `tokenizer` is the folder whose
    /// tokenizer files go with the weights.
    pub fn save(
        &self,
        trainer: &Trainer,
        critic: Option<&Trainer>,
        mut state: CheckpointState,
        tokenizer: &Path,
    ) -> Result<Checkpoint, CheckpointError> {
        let name = name_of(state.step);
        let temporary = self.folder.join(format!("{TEMPORARY}{name}"));
        remove(&temporary)?;
        fs_err::create_dir(&temporary).map_err(io_error("create", &temporary))?;
        write(trainer, &temporary)?;
        if let Some(critic) = critic {
            let folder = temporary.join(CRITIC);
            fs_err::create_dir(&folder).map_err(io_error("create", &folder))?;
            write(critic, &folder)?;
            sync_folder(&folder)?;
        }
        copy_tokenizer(tokenizer, &temporary)?;
        state.files = sizes(&temporary)?;
        let state_file = temporary.join(state::FILE);
        let text = serde_json::to_string_pretty(&state).map_err(|error| CheckpointError::State {
            path: state_file.clone(),
            reason: error.to_string(),
        })?;
        write_synced(&state_file, text.as_bytes())?;
        sync_folder(&temporary)?;

        let path = self.folder.join(&name);
        if path.exists() {
            // Only a damaged one, or one that a resumed run makes again, stands here.
            let aside = self.folder.join(format!("{TEMPORARY}old-{name}"));
            remove(&aside)?;
            fs_err::rename(&path, &aside).map_err(io_error("rename", &path))?;
            fs_err::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
            remove(&aside)?;
        } else {
            fs_err::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
        }
        sync_folder(&self.folder)?;
        self.point_latest(&name)?;
        self.prune()?;
        Ok(Checkpoint { path, state })
    }

    /// The newest complete checkpoint. What is damaged or temporary is passed over, with a warning that says why.
    pub fn latest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        for step in self.steps()?.into_iter().rev() {
            let path = self.folder.join(name_of(step));
            match CheckpointState::read(&path) {
                Ok(state) => return Ok(Some(Checkpoint { path, state })),
                Err(error) => tracing::warn!("checkpoint passed over: {error}"),
            }
        }
        Ok(None)
    }

    /// The complete checkpoint that is meant; the best is that of the first series by name.
    ///
    /// # Errors
    /// [`CheckpointError::None`] where there is none, or why that of the step cannot be read.
    pub fn find(&self, wanted: Wanted) -> Result<Checkpoint, CheckpointError> {
        let none = || CheckpointError::None {
            folder: self.folder.clone(),
            wanted,
        };
        let step = match wanted {
            Wanted::Latest if self.folder.is_dir() => return self.latest()?.ok_or_else(none),
            Wanted::Latest => return Err(none()),
            Wanted::Best => self.best()?.into_values().next().map(|best| best.step),
            Wanted::Step(step) => Some(step),
        };
        let path = self.folder.join(name_of(step.ok_or_else(none)?));
        if !path.is_dir() {
            return Err(none());
        }
        let state = CheckpointState::read(&path)?;
        Ok(Checkpoint { path, state })
    }

    /// Keeps the checkpoint of a step, whatever is written meanwhile, until its validation has ended.
    pub fn hold(&mut self, step: u64) {
        self.held.insert(step);
    }

    /// The validation of a step has ended; the next checkpoint may remove that of the step.
    pub fn release(&mut self, step: u64) {
        self.held.remove(&step);
    }

    /// Records a validation score (higher is better) of a step whose checkpoint exists; the best of each `series`
    /// is kept. Tells whether it is the best so far. Without a checkpoint nothing is recorded: there is nothing to keep.
    pub fn record_validation(&self, series: &str, step: u64, score: f64) -> Result<bool, CheckpointError> {
        let mut best = self.best()?;
        let beaten = best.get(series).is_some_and(|best| best.score >= score);
        if !score.is_finite() || beaten || !self.folder.join(name_of(step)).exists() {
            return Ok(false);
        }
        best.insert(series.to_owned(), Best { step, score });
        let (path, temporary) = (self.folder.join(BEST), self.folder.join(format!("{TEMPORARY}{BEST}")));
        let text = serde_json::to_string_pretty(&best).map_err(|error| CheckpointError::State {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        write_synced(&temporary, text.as_bytes())?;
        fs_err::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
        sync_folder(&self.folder)?;
        Ok(true)
    }

    /// Steps that have a folder, oldest first.
    pub fn steps(&self) -> Result<BTreeSet<u64>, CheckpointError> {
        Ok(self.names()?.iter().filter_map(|name| step_of(name)).collect())
    }

    fn best(&self) -> Result<BTreeMap<String, Best>, CheckpointError> {
        let path = self.folder.join(BEST);
        match fs_err::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).map_err(|error| CheckpointError::State {
                path,
                reason: error.to_string(),
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            Err(source) => Err(io_error("read", &path)(source)),
        }
    }

    /// Moves the link in one rename, so that it never dangles.
    fn point_latest(&self, name: &str) -> Result<(), CheckpointError> {
        let temporary = self.folder.join(format!("{TEMPORARY}{LATEST}"));
        remove(&temporary)?;
        fs_err::os::unix::fs::symlink(name, &temporary).map_err(io_error("link", &temporary))?;
        fs_err::rename(&temporary, self.folder.join(LATEST)).map_err(io_error("rename", &temporary))?;
        sync_folder(&self.folder)
    }

    fn prune(&self) -> Result<(), CheckpointError> {
        let steps = self.steps()?;
        let best: BTreeSet<u64> = self.best()?.into_values().map(|best| best.step).collect();
        let newest: BTreeSet<u64> = steps.iter().rev().take(self.keep).copied().collect();
        for step in steps
            .iter()
            .filter(|step| !newest.contains(step) && !best.contains(step) && !self.held.contains(step))
        {
            // Renamed first: a folder that is half removed must not look like a checkpoint.
            let path = self.folder.join(name_of(*step));
            let aside = self.folder.join(format!("{TEMPORARY}pruned-{}", name_of(*step)));
            remove(&aside)?;
            fs_err::rename(&path, &aside).map_err(io_error("rename", &path))?;
            remove(&aside)?;
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<String>, CheckpointError> {
        fs_err::read_dir(&self.folder)
            .map_err(io_error("list", &self.folder))?
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()))
            .collect::<Result<_, _>>()
            .map_err(io_error("list", &self.folder))
    }
}

/// Writes weights and optimizer state into a folder.
fn write(trainer: &Trainer, folder: &Path) -> Result<(), CheckpointError> {
    let weights = |source| CheckpointError::Weights {
        path: folder.to_owned(),
        source,
    };
    let trained = |source| CheckpointError::Optimizer {
        path: folder.to_owned(),
        source,
    };
    trainer.weights().save(folder).map_err(weights)?;
    if trainer.has_adapters() {
        let adapter = folder.join(ADAPTER);
        fs_err::create_dir(&adapter).map_err(io_error("create", &adapter))?;
        trainer.save_adapters(&adapter).map_err(trained)?;
        sync_folder(&adapter)?;
    }
    trainer.save_optimizer(&folder.join(OPTIMIZER)).map_err(trained)
}

impl Checkpoint {
    /// Puts its weights, or its adapters, and its optimizer state into a trainer of the same model.
    pub fn restore(&self, trainer: &mut Trainer) -> Result<(), CheckpointError> {
        let optimizer = |source| CheckpointError::Optimizer {
            path: self.path.clone(),
            source,
        };
        if trainer.has_adapters() {
            trainer.load_adapters(&self.path.join(ADAPTER)).map_err(optimizer)?;
        } else {
            trainer.load_weights(self.weights()?).map_err(optimizer)?;
        }
        trainer.load_optimizer(&self.path.join(OPTIMIZER)).map_err(optimizer)
    }

    /// The critic's weights, if the checkpoint holds one.
    pub fn critic_weights(&self) -> Result<Option<Weights>, CheckpointError> {
        let path = self.path.join(CRITIC);
        if !path.is_dir() {
            return Ok(None);
        }
        let weights = Weights::load_critic(&path);
        weights
            .map(Some)
            .map_err(|source| CheckpointError::Weights { path, source })
    }

    /// Puts the critic's optimizer state into a trainer of its weights.
    pub fn restore_critic(&self, critic: &mut Trainer) -> Result<(), CheckpointError> {
        let path = self.path.join(CRITIC);
        critic
            .load_optimizer(&path.join(OPTIMIZER))
            .map_err(|source| CheckpointError::Optimizer { path, source })
    }

    /// Its weights.
    pub fn weights(&self) -> Result<Weights, CheckpointError> {
        Weights::load(&self.path).map_err(|source| CheckpointError::Weights {
            path: self.path.clone(),
            source,
        })
    }
}
