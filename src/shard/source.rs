//! Where shards are: files, folders, object-store URLs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use futures_util::TryStreamExt as _;
use object_store::ObjectStore;

use super::ShardError;
use crate::http_client;

/// One shard.
#[derive(Debug, Clone)]
pub enum ShardFile {
    /// On this machine.
    Local(PathBuf),
    /// In an object store.
    Remote {
        /// The store.
        store: Arc<dyn ObjectStore>,
        /// Key in it.
        path: object_store::path::Path,
        /// For messages.
        url: String,
    },
}

impl ShardFile {
    /// The step whose folder it lies in, if it lies in one.
    pub fn step(&self) -> Option<u32> {
        let text = self.to_string();
        text.rsplit('/').nth(1)?.parse().ok()
    }
}

impl std::fmt::Display for ShardFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Local(path) => path.display().fmt(f),
            Self::Remote { url, .. } => f.write_str(url),
        }
    }
}

/// Whether a name is a finished shard's; temporary files begin with a dot.
fn is_shard(name: &str) -> bool {
    name.ends_with(".parquet") && !name.starts_with('.')
}

/// Where a run directory, which `lego rollout -o` writes as well, keeps its shards.
const ROLLOUTS: &str = "rollouts";

/// The shards of a file, a run directory, or any other folder (and the folders in it), in the order of their paths.
fn list_local(place: &Path) -> Result<Vec<PathBuf>, ShardError> {
    let metadata = match fs::metadata(place) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(ShardError::Place {
                place: place.display().to_string(),
                reason: "no such file or folder; expected a shard (*.parquet) or a folder of them".to_owned(),
            });
        }
        found => found?,
    };
    if !metadata.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let mut found = Vec::new();
    let rollouts = place.join(ROLLOUTS);
    // Beside them a run directory has Parquet files that are none, such as its task index.
    let mut folders = vec![if rollouts.is_dir() { rollouts } else { place.to_owned() }];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if fs::metadata(&path)?.is_dir() {
                if !name.starts_with('.') {
                    folders.push(path);
                }
            } else if is_shard(&name) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// The shards of several places, in their order; each once, however often it is named.
#[derive(Default)]
pub(super) struct Listing {
    seen: BTreeSet<String>,
    pub(super) files: Vec<ShardFile>,
}

impl Listing {
    /// Adds a local file, or the shards of a folder.
    pub(super) fn add_local(&mut self, place: &Path) -> Result<(), ShardError> {
        for path in list_local(place)? {
            if self.seen.insert(fs::canonicalize(&path)?.display().to_string()) {
                self.files.push(ShardFile::Local(path));
            }
        }
        Ok(())
    }

    /// Adds an object, or the shards below a prefix.
    pub(super) async fn add_remote(&mut self, url: &str) -> Result<(), ShardError> {
        for file in list_remote(url).await? {
            if self.seen.insert(file.to_string()) {
                self.files.push(file);
            }
        }
        Ok(())
    }
}

/// The shards of an object-store URL: one object, or all below a prefix.
async fn list_remote(place: &str) -> Result<Vec<ShardFile>, ShardError> {
    let wrong = |reason: String| ShardError::Place {
        place: place.to_owned(),
        reason,
    };
    let (store, prefix) = http_client::object_store(place).map_err(wrong)?;
    let root = place
        .strip_suffix(prefix.as_ref())
        .unwrap_or(place)
        .trim_end_matches('/')
        .to_owned();
    let file = |path: object_store::path::Path| ShardFile::Remote {
        store: Arc::clone(&store),
        url: format!("{root}/{path}"),
        path,
    };
    if prefix.filename().is_some_and(is_shard) {
        return Ok(vec![file(prefix)]);
    }
    let mut keys: Vec<object_store::path::Path> = store
        .list(Some(&prefix))
        .try_filter_map(async |object| {
            Ok(object
                .location
                .filename()
                .is_some_and(is_shard)
                .then_some(object.location))
        })
        .try_collect()
        .await
        .map_err(|error| wrong(error.to_string()))?;
    keys.sort();
    Ok(keys.into_iter().map(file).collect())
}
