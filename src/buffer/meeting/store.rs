//! The place itself: objects by name, in a folder or in an object store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use futures_util::TryStreamExt as _;
use object_store::local::LocalFileSystem;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::http_client;

/// Folder of the shards.
const ROLLOUTS: &str = "rollouts";
/// Folder of the weights.
const WEIGHTS: &str = "weights";

/// What can be wrong with a meeting place; every message names the place.
#[derive(Debug, thiserror::Error)]
pub enum MeetingError {
    /// It cannot be reached, read or written.
    #[error("{place}: {reason}")]
    Store {
        /// The place, or an object in it.
        place: String,
        /// What the store said.
        reason: String,
    },
    /// An object that is not what it must be.
    #[error("{object}: expected {expected}, found: {reason}")]
    Damaged {
        /// Which.
        object: String,
        /// What it should be.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A file of this machine.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A folder or a prefix of an object store where rollouters and a trainer meet.
#[derive(Debug, Clone)]
pub struct Meeting {
    store: Arc<dyn ObjectStore>,
    root: Key,
    place: String,
    /// Where it is a folder of this machine.
    folder: Option<PathBuf>,
}

impl Meeting {
    /// A folder, which is made, a `file://` URL, or the URL of a prefix of an object store.
    pub fn open(place: &str) -> Result<Self, MeetingError> {
        let wrong = |reason: String| MeetingError::Store {
            place: place.to_owned(),
            reason,
        };
        let local = place
            .strip_prefix("file://")
            .or((!place.contains("://")).then_some(place));
        if let Some(folder) = local {
            if folder.is_empty() || Path::new(folder).is_file() {
                return Err(wrong(
                    "expected a folder, which is made where it is missing, or a bucket's URL".to_owned(),
                ));
            }
            let folder = std::path::absolute(folder)?;
            fs::create_dir_all(&folder)?;
            let store = LocalFileSystem::new_with_prefix(&folder).map_err(|error| wrong(error.to_string()))?;
            return Ok(Self {
                store: Arc::new(store.with_fsync(true)),
                root: Key::default(),
                place: folder.display().to_string(),
                folder: Some(folder),
            });
        }
        let (store, root) = http_client::object_store(place).map_err(wrong)?;
        Ok(Self {
            store,
            root,
            place: place.trim_end_matches('/').to_owned(),
            folder: None,
        })
    }

    /// Where it is, for messages.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The folder, where it is one of this machine.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Its shards, as a place that a `ShardReader` takes.
    pub fn rollouts(&self) -> String {
        format!("{}/{ROLLOUTS}", self.place)
    }

    /// The folder of its shards, where it is on this machine and they can be written in place.
    pub fn local_rollouts(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(ROLLOUTS))
    }

    /// The folder of its weights, where it is on this machine.
    pub fn local_weights(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.join(WEIGHTS))
    }

    /// Puts a shard of `<spool>/<step>/<name>` where it belongs.
    pub async fn put_shard(&self, file: &Path) -> Result<(), MeetingError> {
        let part = |path: Option<&std::ffi::OsStr>| path.unwrap_or_default().to_string_lossy().into_owned();
        let step = part(file.parent().and_then(Path::file_name));
        let name = format!("{ROLLOUTS}/{step}/{}", part(file.file_name()));
        self.put_file(file, &name).await
    }

    /// Puts a folder of weights.
    pub async fn put_weights(&self, folder: &Path) -> Result<(), MeetingError> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for entry in fs::read_dir(folder)? {
            let file = entry?.path();
            let of = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.put_file(&file, &format!("{WEIGHTS}/{name}/{of}")).await?;
        }
        Ok(())
    }

    /// Fetches a folder of weights, as `published.json` names it, below a folder of this machine; one that lies on this
    /// machine stays where it is.
    pub async fn fetch_weights(&self, name: &str, below: &Path) -> Result<PathBuf, MeetingError> {
        if let Some(folder) = self.local_weights() {
            return Ok(folder.join(name));
        }
        let into = below.join(name);
        fs::create_dir_all(&into)?;
        for key in self.list(&format!("{WEIGHTS}/{name}")).await? {
            let bytes = self.bytes(&key).await?.ok_or_else(|| self.lost(&key))?;
            fs::write(into.join(key.filename().unwrap_or_default()), bytes)?;
        }
        Ok(into)
    }

    /// Removes weights that nobody will load any more, where they are in an object store: folders are kept by who writes
    /// them.
    pub async fn forget_weights(&self, keep: &[String]) -> Result<(), MeetingError> {
        if self.folder.is_some() {
            return Ok(());
        }
        for key in self.list(WEIGHTS).await? {
            let parts: Vec<String> = key.parts().map(|part| part.as_ref().to_owned()).collect();
            let of = parts.len().checked_sub(2).and_then(|at| parts.get(at));
            if of.is_some_and(|name| !keep.contains(name)) {
                self.store
                    .delete(&key)
                    .await
                    .map_err(|error| self.failed(&key, &error))?;
            }
        }
        Ok(())
    }

    /// Puts an object, over an older one.
    pub(super) async fn put<T: Serialize>(&self, name: &str, value: &T) -> Result<(), MeetingError> {
        let (key, bytes) = (self.key(name), self.encoded(name, value)?);
        let put = self.store.put(&key, bytes.into()).await;
        put.map(|_| ()).map_err(|error| self.failed(&key, &error))
    }

    /// Puts an object unless there is one; `false`: there is.
    pub(super) async fn create<T: Serialize>(&self, name: &str, value: &T) -> Result<bool, MeetingError> {
        let (key, bytes) = (self.key(name), self.encoded(name, value)?);
        let options = PutOptions::from(PutMode::Create);
        match self.store.put_opts(&key, bytes.into(), options).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(self.failed(&key, &error)),
        }
    }

    /// An object, if it is there.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        name: &str,
        expected: &'static str,
    ) -> Result<Option<T>, MeetingError> {
        let key = self.key(name);
        let Some(bytes) = self.bytes(&key).await? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| MeetingError::Damaged {
                object: format!("{}/{name}", self.place),
                expected,
                reason: error.to_string(),
            })
    }

    /// Names of the JSON objects right below a folder.
    pub(super) async fn names(&self, folder: &str) -> Result<Vec<String>, MeetingError> {
        let prefix = self.key(folder);
        let listed = self.store.list_with_delimiter(Some(&prefix)).await;
        let listed = listed.map_err(|error| self.failed(&prefix, &error))?;
        let names = listed
            .objects
            .into_iter()
            .filter_map(|object| object.location.filename().map(str::to_owned));
        Ok(names
            .filter(|name| Path::new(name).extension().is_some_and(|extension| extension == "json"))
            .collect())
    }

    fn encoded<T: Serialize>(&self, name: &str, value: &T) -> Result<Vec<u8>, MeetingError> {
        serde_json::to_vec(value).map_err(|error| self.failed(&self.key(name), &error))
    }

    async fn put_file(&self, file: &Path, name: &str) -> Result<(), MeetingError> {
        let key = self.key(name);
        let bytes = fs::read(file)?;
        let put = self.store.put(&key, bytes.into()).await;
        put.map(|_| ()).map_err(|error| self.failed(&key, &error))
    }

    async fn bytes(&self, key: &Key) -> Result<Option<bytes::Bytes>, MeetingError> {
        let got = match self.store.get(key).await {
            Ok(got) => got,
            Err(object_store::Error::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(self.failed(key, &error)),
        };
        got.bytes().await.map(Some).map_err(|error| self.failed(key, &error))
    }

    async fn list(&self, below: &str) -> Result<Vec<Key>, MeetingError> {
        let prefix = self.key(below);
        let listed = self.store.list(Some(&prefix)).map_ok(|object| object.location);
        listed.try_collect().await.map_err(|error| self.failed(&prefix, &error))
    }

    fn key(&self, name: &str) -> Key {
        let below = Key::from(name);
        let parts = below.parts().map(|part| part.as_ref().to_owned().into());
        self.root.parts().chain(parts).collect()
    }

    fn failed(&self, key: &Key, error: &dyn std::fmt::Display) -> MeetingError {
        MeetingError::Store {
            place: format!("{} ({key})", self.place),
            reason: error.to_string(),
        }
    }

    fn lost(&self, key: &Key) -> MeetingError {
        MeetingError::Store {
            place: format!("{} ({key})", self.place),
            reason: "it was removed while it was read".to_owned(),
        }
    }
}
