//! From a name to a folder: what is not in the cache is downloaded, and goes on where an earlier download broke off.

use std::fs::File;
use std::future::Future;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use lego_policy::Weights;
use nix::fcntl::{Flock, FlockArg};

use super::cache::{Need, RepoCache, Snapshot};
use super::client::{Failed, FileInfo, HubClient, Listing, passing};
use super::error::{HubError, io_error};
use super::name::ModelName;
use super::settings::HubSettings;
use crate::prompt::TOKENIZER_FILES;
use crate::task::sha256_of_file;

/// Tries without progress before it is given up.
const TRIES: u32 = 4;
/// First pause between tries; each without progress is twice the last.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest pause that a hub may ask for.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How long another process may hold a file without writing to it.
const HELD: Duration = Duration::from_mins(2);
/// Time between looks at a file that another process downloads.
const LOOK: Duration = Duration::from_millis(200);

const CONFIG: &str = "config.json";
const SINGLE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

/// What happens on the way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HubEvent {
    /// So many bytes of a file are on disk.
    Bytes {
        /// The file.
        file: String,
        /// On disk.
        done: u64,
        /// In all.
        total: u64,
    },
    /// It is tried again.
    Again {
        /// The file; empty for the list of files.
        file: String,
        /// What went wrong.
        reason: String,
    },
    /// The hub cannot be reached, and what the cache holds is taken.
    FromCache {
        /// Its commit.
        commit: String,
        /// What went wrong.
        reason: String,
    },
}

/// Finds or downloads a model, and gives its folder. A model that the cache holds whole at a commit that the name pins is taken
/// without asking; where the hub cannot be reached, so is what the revision was when it was last asked for.
///
/// # Errors
/// [`HubError`] says what to do about it.
pub async fn fetch(
    settings: &HubSettings,
    name: &ModelName,
    need: Need,
    told: &(dyn Fn(HubEvent) + Sync),
) -> Result<Snapshot, HubError> {
    let cache = RepoCache::new(&settings.cache, name);
    let whole = match cache.whole(&name.revision, need) {
        Ok(snapshot) if settings.offline || name.is_pinned() => return Ok(snapshot),
        Err(reason) if settings.offline => {
            return Err(HubError::Offline {
                name: name.to_string(),
                cache: settings.cache.clone(),
                reason,
            });
        }
        whole => whole.ok(),
    };
    let client = HubClient::new(settings, name)?;
    let download = Download {
        client,
        cache,
        settings,
        name,
        told,
    };
    let listed = download.again("", || 0, || download.client.list()).await;
    let listing = match (listed, whole) {
        (Err(HubError::Unreachable { reason, .. }), Some(snapshot)) => {
            let commit = snapshot.commit.clone();
            told(HubEvent::FromCache { commit, reason });
            return Ok(snapshot);
        }
        (listed, _) => listed?,
    };
    download.all(&listing, need).await?;
    // Last, so that what it names is whole.
    download.cache.set_commit(&name.revision, &listing.sha)?;
    let folder = download.cache.snapshot(&listing.sha);
    Ok(Snapshot {
        commit: listing.sha,
        folder,
    })
}

/// What the cache holds of a model, without asking anyone.
///
/// # Errors
/// What is missing, in words.
pub fn cached(settings: &HubSettings, name: &ModelName, need: Need) -> Result<Snapshot, String> {
    RepoCache::new(&settings.cache, name).whole(&name.revision, need)
}

struct Download<'a> {
    client: HubClient<'a>,
    cache: RepoCache,
    settings: &'a HubSettings,
    name: &'a ModelName,
    told: &'a (dyn Fn(HubEvent) + Sync),
}

impl Download<'_> {
    async fn all(&self, listing: &Listing, need: Need) -> Result<(), HubError> {
        let (lacks_weights, lacks_config) = (!listing.has(SINGLE) && !listing.has(INDEX), !listing.has(CONFIG));
        if need == Need::Model && lacks_config {
            return Err(self.no_file(CONFIG, String::new()));
        }
        if need == Need::Model && lacks_weights {
            let others: Vec<_> = listing
                .ending(&[".bin", ".pt", ".pth", ".gguf", ".safetensors"])
                .take(3)
                .collect();
            let found = if others.is_empty() {
                String::new()
            } else {
                format!(", only {}", others.join(", "))
            };
            return Err(self.no_file(SINGLE, found));
        }
        if need == Need::Tokenizer && !listing.has("tokenizer.json") {
            return Err(self.no_file("tokenizer.json", String::new()));
        }
        let small = TOKENIZER_FILES.iter().filter(|file| listing.has(file));
        for file in small.chain((!lacks_config).then_some(&CONFIG)) {
            self.file(&listing.sha, file).await?;
        }
        if need == Need::Tokenizer {
            return Ok(());
        }
        if listing.has(SINGLE) {
            return self.file(&listing.sha, SINGLE).await;
        }
        self.file(&listing.sha, INDEX).await?;
        let shards = Weights::files(&self.cache.snapshot(&listing.sha)).map_err(|source| HubError::Index {
            name: self.name.to_string(),
            source,
        })?;
        for shard in shards {
            let shard = shard.file_name().unwrap_or_default().to_string_lossy().into_owned();
            self.file(&listing.sha, &shard).await?;
        }
        Ok(())
    }

    fn no_file(&self, file: &'static str, found: String) -> HubError {
        HubError::NoFile {
            name: self.name.to_string(),
            file,
            found,
        }
    }

    /// Has a file in the snapshot of a commit.
    async fn file(&self, commit: &str, file: &str) -> Result<(), HubError> {
        // A file of a commit never changes.
        if self.cache.snapshot(commit).join(file).is_file() {
            return Ok(());
        }
        let info = self.again(file, || 0, || self.client.look(commit, file)).await?;
        let blob = self.cache.blob(&info.etag);
        if !blob.is_file() {
            let _lock = self.lock(&info.etag).await?;
            // It may have come while another process had the lock.
            if !blob.is_file() {
                self.download(file, &info, &blob).await?;
            }
        }
        self.cache.link(commit, file, &info.etag)
    }

    /// Downloads into `blob`, by way of `blob.incomplete`, at the end of which it goes on.
    async fn download(&self, file: &str, info: &FileInfo, blob: &Path) -> Result<(), HubError> {
        let folder = blob.parent().unwrap_or(blob);
        fs_err::create_dir_all(folder).map_err(io_error("create", folder))?;
        let part = incomplete(blob);
        self.again(file, || length(&part), || self.go_on(file, info, &part))
            .await?;
        self.verify(file, info, &part).await?;
        fs_err::rename(&part, blob).map_err(io_error("rename", &part))
    }

    /// Appends what is missing.
    async fn go_on(&self, file: &str, info: &FileInfo, part: &Path) -> Result<(), Failed> {
        let mut done = length(part);
        if done > info.size {
            fs_err::remove_file(part).map_err(io_error("remove", part))?;
            done = 0;
        }
        if done == info.size && done > 0 {
            return Ok(());
        }
        let (mut response, begins) = self.client.open(info, done).await?;
        let mut options = fs_err::OpenOptions::new();
        options.create(true).write(true).truncate(begins == 0);
        let mut out = options.open(part).map_err(io_error("open", part))?;
        if begins != 0 && begins != done {
            let reason = format!("asked for the file from byte {done} on, got it from {begins} on");
            return Err(Failed::Passing { reason, after: None });
        }
        out.seek(SeekFrom::Start(begins)).map_err(io_error("write", part))?;
        done = begins;
        let tell = |done| {
            (self.told)(HubEvent::Bytes {
                file: file.to_owned(),
                done,
                total: info.size,
            });
        };
        tell(done);
        while let Some(chunk) = response.chunk().await.map_err(|error| passing(&error))? {
            out.write_all(&chunk).map_err(io_error("write", part))?;
            done += chunk.len() as u64;
            tell(done);
        }
        out.sync_all().map_err(io_error("sync", part))?;
        if done < info.size {
            let reason = format!("the connection ended after {done} of {} bytes", info.size);
            return Err(Failed::Passing { reason, after: None });
        }
        Ok(())
    }

    /// Size, and of large files the content, are as the hub says; else the file is removed.
    async fn verify(&self, file: &str, info: &FileInfo, part: &Path) -> Result<(), HubError> {
        let size = length(part);
        let (expected, found) = if size != info.size {
            (format!("{} bytes", info.size), format!("{size}"))
        } else if info.etag.len() == 64 {
            let path = part.to_owned();
            let hashed = tokio::task::spawn_blocking(move || sha256_of_file(&path)).await;
            let hash = hashed
                .map_err(|error| std::io::Error::other(error.to_string()))
                .flatten();
            let hash = hash.map_err(io_error("read", part))?;
            (format!("SHA-256 {}", info.etag), hash)
        } else {
            return Ok(());
        };
        if expected == format!("SHA-256 {found}") {
            return Ok(());
        }
        fs_err::remove_file(part).map_err(io_error("remove", part))?;
        Err(HubError::Damaged {
            name: self.name.to_string(),
            file: file.to_owned(),
            expected,
            found,
        })
    }

    /// The lock of a file, by the name that other clients of the cache use too. Waits for who has it as long as it gets on.
    async fn lock(&self, etag: &str) -> Result<Flock<File>, HubError> {
        let path = self.cache.lock(etag);
        let folder = path.parent().unwrap_or(&path);
        fs_err::create_dir_all(folder).map_err(io_error("create", folder))?;
        let (part, blob) = (incomplete(&self.cache.blob(etag)), self.cache.blob(etag));
        let written = || length(&part).max(length(&blob));
        let (mut since, mut last) = (Instant::now(), written());
        loop {
            let file = File::create(&path).map_err(io_error("create", &path))?;
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => return Ok(lock),
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {}
                Err((_, error)) => return Err(io_error("lock", &path)(error.into())),
            }
            tokio::time::sleep(LOOK).await;
            if written() != last {
                (since, last) = (Instant::now(), written());
            }
            if since.elapsed() > HELD {
                let seconds = HELD.as_secs();
                return Err(HubError::Locked { lock: path, seconds });
            }
        }
    }

    /// Tries until it succeeds, fails for good, or has failed so often in a row that `progress` did not rise.
    async fn again<T, F: Future<Output = Result<T, Failed>>>(
        &self,
        file: &str,
        progress: impl Fn() -> u64,
        mut work: impl FnMut() -> F,
    ) -> Result<T, HubError> {
        let (mut failed, mut reached) = (0, progress());
        loop {
            let (reason, after) = match work().await {
                Ok(found) => return Ok(found),
                Err(Failed::Final(error)) => return Err(error),
                Err(Failed::Passing { reason, after }) => (reason, after),
            };
            let now = progress();
            failed = if now > reached { 1 } else { failed + 1 };
            reached = reached.max(now);
            if failed == TRIES {
                return Err(self.unreachable(reason));
            }
            let file = file.to_owned();
            (self.told)(HubEvent::Again { file, reason });
            let pause = PAUSE * 2_u32.pow(failed - 1);
            tokio::time::sleep(after.unwrap_or(pause).min(LONGEST_PAUSE)).await;
        }
    }

    fn unreachable(&self, reason: String) -> HubError {
        HubError::Unreachable {
            name: self.name.to_string(),
            endpoint: self.settings.endpoint.clone(),
            reason,
        }
    }
}

fn incomplete(blob: &Path) -> PathBuf {
    let mut name = blob.file_name().unwrap_or_default().to_owned();
    name.push(".incomplete");
    blob.with_file_name(name)
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |metadata| metadata.len())
}
