//! `weights/v0_12/`: the policy as a Hugging Face folder, for engines in other processes; complete or absent.

use std::path::{Path, PathBuf};

use lego_policy::Weights;

use super::error::{CheckpointError, io_error};
use super::files::{copy_tokenizer, remove, sync_folder};
use crate::trajectory::PolicyVersion;

/// Folders kept: the newest, and the one that an engine may still be reading.
const KEPT: usize = 2;
/// Begins names that a crash may leave behind and that nobody reads.
const TEMPORARY: &str = ".tmp-";

/// Writes weights for engines to load. One writer at a time: the run's lock is the caller's.
#[derive(Debug, Clone)]
pub struct PublishedWeights {
    folder: PathBuf,
    tokenizer: PathBuf,
}

impl PublishedWeights {
    /// Opens the folder, creating it, and removes what an interrupted writer left. `tokenizer` is the folder whose
    /// tokenizer files go with the weights.
    pub fn open(folder: &Path, tokenizer: &Path) -> Result<Self, CheckpointError> {
        // Engines are given the path as it stands, and have other working directories.
        let folder = std::path::absolute(folder).map_err(io_error("find", folder))?;
        fs_err::create_dir_all(&folder).map_err(io_error("create", &folder))?;
        let store = Self {
            folder,
            tokenizer: tokenizer.to_owned(),
        };
        for (name, _) in store.names()?.iter().filter(|(name, _)| name.starts_with(TEMPORARY)) {
            remove(&store.folder.join(name))?;
        }
        Ok(store)
    }

    /// Name of a version's folder.
    pub fn name(version: PolicyVersion) -> String {
        format!("v{}_{}", version.lineage, version.update)
    }

    /// Names of the folders that are there.
    pub fn kept(&self) -> Result<Vec<String>, CheckpointError> {
        let names = self.names()?.into_iter();
        Ok(names
            .filter(|(_, version)| version.is_some())
            .map(|(name, _)| name)
            .collect())
    }

    /// Writes a version's folder, then removes all but the newest and those that somebody still `needs`.
    pub fn write(
        &self,
        version: PolicyVersion,
        weights: &Weights,
        needs: &[PathBuf],
    ) -> Result<PathBuf, CheckpointError> {
        let name = Self::name(version);
        let temporary = self.folder.join(format!("{TEMPORARY}{name}"));
        remove(&temporary)?;
        fs_err::create_dir(&temporary).map_err(io_error("create", &temporary))?;
        weights.save(&temporary).map_err(|source| CheckpointError::Weights {
            path: temporary.clone(),
            source,
        })?;
        copy_tokenizer(&self.tokenizer, &temporary)?;
        sync_folder(&temporary)?;
        let path = self.folder.join(&name);
        remove(&path)?;
        fs_err::rename(&temporary, &path).map_err(io_error("rename", &temporary))?;
        sync_folder(&self.folder)?;
        let mut versions: Vec<_> = self
            .names()?
            .into_iter()
            .filter_map(|(name, version)| Some((version?, name)))
            .collect();
        versions.sort_unstable();
        for (_, name) in versions.iter().rev().skip(KEPT) {
            let folder = self.folder.join(name);
            if !needs.contains(&folder) {
                remove(&folder)?;
            }
        }
        Ok(path)
    }

    /// What is in the folder, with the version that the name says.
    fn names(&self) -> Result<Vec<(String, Option<PolicyVersion>)>, CheckpointError> {
        let entries = fs_err::read_dir(&self.folder).map_err(io_error("list", &self.folder))?;
        let names = entries.map(|entry| {
            let name = entry.map_err(io_error("list", &self.folder))?.file_name();
            let name = name.to_string_lossy().into_owned();
            let version = name
                .strip_prefix('v')
                .and_then(|rest| rest.replace('_', ".").parse().ok());
            Ok((name, version))
        });
        names.collect()
    }
}

#[cfg(test)]
mod tests {
    use lego_policy::ModelConfig;

    use super::*;

    #[test]
    fn the_last_two_versions_stay_and_load() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("weights");
        std::fs::create_dir_all(root.join(".tmp-v0_9")).unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
        let store = PublishedWeights::open(&root, folder.path()).unwrap();
        let version = |lineage, update| PolicyVersion { lineage, update };
        let mut last = None;
        for (seed, version) in [version(0, 9), version(0, 10), version(1, 9), version(1, 9)]
            .into_iter()
            .enumerate()
        {
            let weights = Weights::init(ModelConfig::tiny(64), seed as u64).unwrap();
            last = Some((store.write(version, &weights, &[]).unwrap(), weights));
        }
        let mut names: Vec<_> = store.names().unwrap().into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, ["v0_10", "v1_9"]);
        let (path, weights) = last.unwrap();
        assert_eq!(path, root.join("v1_9"));
        assert!(path.join("tokenizer.json").is_file());
        let back = Weights::load(&path).unwrap();
        assert!(back.iter().zip(weights.iter()).all(|(a, b)| a.0 == b.0 && a.1 == b.1));
        // A replica that is slow still reads the older one.
        let weights = Weights::init(ModelConfig::tiny(64), 9).unwrap();
        let needs = [root.join("v0_10")];
        store.write(version(1, 10), &weights, &needs).unwrap();
        assert_eq!(store.kept().unwrap().len(), 3);
        store.write(version(1, 11), &weights, &[]).unwrap();
        let mut kept = store.kept().unwrap();
        kept.sort();
        assert_eq!(kept, ["v1_10", "v1_11"]);
    }
}
