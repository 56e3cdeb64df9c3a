//! The cache on disk, in the layout that Hugging Face's own clients share: `models--org--name/{blobs,refs,snapshots}`.

use std::path::{Path, PathBuf};

use lego_policy::Weights;

use super::error::{HubError, io_error};
use super::name::{ModelName, is_commit};

/// What a model is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// config.json, weights, tokenizer.
    Model,
    /// The tokenizer's files, and config.json where there is one.
    Tokenizer,
}

/// A model that is whole on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Its commit.
    pub commit: String,
    /// Hugging Face folder.
    pub folder: PathBuf,
}

/// The cache of one repository.
#[derive(Debug, Clone)]
pub(super) struct RepoCache {
    root: PathBuf,
    locks: PathBuf,
}

impl RepoCache {
    pub(super) fn new(cache: &Path, name: &ModelName) -> Self {
        let folder = format!("models--{}", name.repo.replace('/', "--"));
        Self {
            root: cache.join(&folder),
            locks: cache.join(".locks").join(folder),
        }
    }

    /// The commit that a revision was when it was last asked for.
    pub(super) fn commit(&self, revision: &str) -> Option<String> {
        if is_commit(revision) {
            return Some(revision.to_owned());
        }
        let text = fs_err::read_to_string(self.root.join("refs").join(revision)).ok()?;
        let commit = text.trim();
        is_commit(commit).then(|| commit.to_owned())
    }

    /// Remembers what a revision is.
    pub(super) fn set_commit(&self, revision: &str, commit: &str) -> Result<(), HubError> {
        if is_commit(revision) || self.commit(revision).as_deref() == Some(commit) {
            return Ok(());
        }
        let path = self.root.join("refs").join(revision);
        let parent = path.parent().unwrap_or(&self.root);
        fs_err::create_dir_all(parent).map_err(io_error("create", parent))?;
        fs_err::write(&path, commit).map_err(io_error("write", &path))
    }

    pub(super) fn snapshot(&self, commit: &str) -> PathBuf {
        self.root.join("snapshots").join(commit)
    }

    pub(super) fn blob(&self, etag: &str) -> PathBuf {
        self.root.join("blobs").join(etag)
    }

    pub(super) fn lock(&self, etag: &str) -> PathBuf {
        self.locks.join(format!("{etag}.lock"))
    }

    /// Has the snapshot name a blob, in one rename.
    pub(super) fn link(&self, commit: &str, file: &str, etag: &str) -> Result<(), HubError> {
        let folder = self.snapshot(commit);
        fs_err::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let (path, temporary) = (
            folder.join(file),
            folder.join(format!(".{file}.{}", std::process::id())),
        );
        // Left by one of the same number that was killed.
        let _ = fs_err::remove_file(&temporary);
        fs_err::os::unix::fs::symlink(Path::new("../../blobs").join(etag), &temporary)
            .map_err(io_error("link", &temporary))?;
        fs_err::rename(&temporary, &path).map_err(io_error("rename", &temporary))
    }

    /// The snapshot of a revision, if all that is needed is there.
    ///
    /// # Errors
    /// What is missing, in words.
    pub(super) fn whole(&self, revision: &str, need: Need) -> Result<Snapshot, String> {
        let Some(commit) = self.commit(revision) else {
            return Err(format!("revision `{revision}` was never downloaded"));
        };
        let folder = self.snapshot(&commit);
        let missing = |file: &str| Err(format!("{file} is missing"));
        match need {
            Need::Tokenizer if !folder.join("tokenizer.json").is_file() => return missing("tokenizer.json"),
            Need::Model if !folder.join("config.json").is_file() => return missing("config.json"),
            Need::Model => {
                let files = Weights::files(&folder).map_err(|error| error.to_string())?;
                if let Some(file) = files.iter().find(|file| !file.is_file()) {
                    return missing(&file.file_name().unwrap_or_default().to_string_lossy());
                }
            }
            Need::Tokenizer => {}
        }
        Ok(Snapshot { commit, folder })
    }
}
