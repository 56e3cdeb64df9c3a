//! A checkpoint as a plain Hugging Face folder: weights, config.json and tokenizer, without what only a run needs.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::{CheckpointError, io_error};
use super::files::{remove, sync_folder};
use super::store::{Checkpoint, OPTIMIZER};

/// Which checkpoint of a run is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wanted {
    /// The newest complete one.
    #[default]
    Latest,
    /// The best by validation.
    Best,
    /// That of a step.
    Step(u64),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "latest" => Ok(Self::Latest),
            "best" => Ok(Self::Best),
            step => step
                .parse()
                .map(Self::Step)
                .map_err(|_| format!("expected `latest`, `best` or the number of a step, found `{text}`")),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Latest => f.write_str("complete checkpoint"),
            Self::Best => f.write_str("checkpoint that was validated"),
            Self::Step(step) => write!(f, "complete checkpoint of step {step}"),
        }
    }
}

impl Checkpoint {
    /// Copies weights, config.json and tokenizer files into `to`, which is not there yet or is empty, and appears as a whole.
    /// Gives the size of each file in bytes, by its name.
    pub fn export(&self, to: &Path) -> Result<BTreeMap<String, u64>, CheckpointError> {
        let to = std::path::absolute(to).map_err(io_error("find", to))?;
        let parent = to.parent().unwrap_or(&to).to_owned();
        fs_err::create_dir_all(&parent).map_err(io_error("create", &parent))?;
        refuse_occupied(&to)?;
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = parent.join(format!(".tmp-{name}-{}", std::process::id()));
        remove(&temporary)?;
        let copied = self.copy_model(&temporary);
        if copied.is_err() {
            remove(&temporary)?;
        }
        let sizes = copied?;
        // Takes the place of an empty folder, and of nothing else.
        fs_err::rename(&temporary, &to).map_err(io_error("rename", &temporary))?;
        sync_folder(&parent)?;
        Ok(sizes)
    }

    fn copy_model(&self, to: &Path) -> Result<BTreeMap<String, u64>, CheckpointError> {
        fs_err::create_dir(to).map_err(io_error("create", to))?;
        let mut sizes = BTreeMap::new();
        let files = &self.state.files;
        for (name, expected) in files.iter().filter(|(name, _)| is_the_models(name)) {
            let (from, file) = (self.path.join(name), to.join(name));
            let found = fs_err::copy(&from, &file).map_err(io_error("copy", &from))?;
            if found != *expected {
                let (path, expected) = (from, *expected);
                return Err(CheckpointError::Damaged { path, expected, found });
            }
            let copy = fs_err::File::open(&file).map_err(io_error("open", &file))?;
            copy.sync_all().map_err(io_error("sync", &file))?;
            sizes.insert(name.clone(), found);
        }
        sync_folder(to)?;
        Ok(sizes)
    }
}

/// Whether a file of a checkpoint is part of the model: what lies in folders and the optimizer's state are the run's.
fn is_the_models(name: &str) -> bool {
    !name.contains('/') && name != OPTIMIZER
}

fn refuse_occupied(path: &Path) -> Result<(), CheckpointError> {
    let occupied = || CheckpointError::Occupied {
        path: PathBuf::from(path),
    };
    match fs_err::read_dir(path) {
        Ok(mut entries) => entries.next().map_or(Ok(()), |_| Err(occupied())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Err(occupied()),
        Err(source) => Err(io_error("list", path)(source)),
    }
}
