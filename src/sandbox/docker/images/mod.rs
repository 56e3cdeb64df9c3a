//! The image a sandbox starts from: there already, pulled, or built; each once, however many trials wait for it.

mod build;
mod cache;
mod credentials;
mod pull;
mod push;

use std::collections::HashMap;
use std::hash::Hash;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ImageInspect;

use crate::sandbox::control::container::Says;
use crate::sandbox::{Image, SandboxError};
pub(super) use push::digest_at;

/// What of an image matters to its sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Its content's name.
    pub(super) id: String,
    pub(super) says: Says,
    /// Names that it has here.
    tags: Vec<String>,
}

/// Images of one backend, by name.
#[derive(Debug, Default)]
pub(super) struct Images {
    found: Mutex<HashMap<String, Arc<Once<Found>>>>,
    /// Names with their tags, by the folder they are built from: a task does not change while it is worked on.
    tags: Mutex<HashMap<PathBuf, Arc<Once<str>>>>,
    /// Bytes that pulled and built images may hold; `None` is no bound.
    bound: Option<u64>,
    /// Folder for the words of builds.
    logs: Option<PathBuf>,
}

/// Why an image is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Why {
    reason: String,
    /// Whether no other try can help.
    last: bool,
}

impl Why {
    fn now(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            last: false,
        }
    }

    fn for_good(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            last: true,
        }
    }

    fn of(self, image: &str) -> SandboxError {
        SandboxError::Image {
            image: image.to_owned(),
            reason: self.reason,
            last: self.last,
        }
    }
}

/// Made by whoever comes first. Those that wait share what came of it, also a failure; after one, whoever comes later
/// tries again, unless no other try can help.
#[derive(Debug)]
struct Once<T: ?Sized> {
    /// Tries that have ended.
    tries: AtomicU64,
    made: tokio::sync::Mutex<Option<Result<Arc<T>, Why>>>,
}

impl<T: ?Sized> Default for Once<T> {
    fn default() -> Self {
        Self {
            tries: AtomicU64::new(0),
            made: tokio::sync::Mutex::new(None),
        }
    }
}

impl<T: ?Sized> Once<T> {
    fn of<K: Hash + Eq>(all: &Mutex<HashMap<K, Arc<Self>>>, key: K) -> Arc<Self> {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(all.entry(key).or_default())
    }

    async fn get(&self, make: impl Future<Output = Result<Arc<T>, Why>>) -> Result<Arc<T>, Why> {
        let seen = self.tries.load(Ordering::Acquire);
        let mut made = self.made.lock().await;
        match made.as_ref() {
            Some(Ok(made)) => return Ok(Arc::clone(made)),
            Some(Err(why)) if why.last || self.tries.load(Ordering::Acquire) > seen => return Err(why.clone()),
            _ => {}
        }
        let result = make.await;
        *made = Some(result.clone());
        self.tries.fetch_add(1, Ordering::Release);
        result
    }
}

impl Images {
    pub(super) fn new(bound: Option<u64>, logs: Option<PathBuf>) -> Self {
        Self {
            bound,
            logs,
            ..Self::default()
        }
    }

    /// The image; whoever comes first makes it be there, the others wait for that.
    pub(super) async fn get(&self, client: &Docker, image: &Image) -> Result<Arc<Found>, SandboxError> {
        let name = self.name(image).await?;
        let cell = Once::of(&self.found, name.to_string());
        let found = cell.get(self.made(client, image, &name)).await;
        found.map_err(|why| why.of(&name))
    }

    /// Its name in the engine's store, and whether it is there.
    pub(super) async fn look(&self, client: &Docker, image: &Image) -> Result<(Arc<str>, bool), SandboxError> {
        let name = self.name(image).await?;
        let found = inspect(client, &name).await.map_err(|why| why.of(&name))?;
        Ok((name, found.is_some()))
    }

    /// Pushes one that is there as `to`; gives the digest under which it lies then.
    pub(super) async fn push(&self, client: &Docker, image: &Image, to: &str) -> Result<String, SandboxError> {
        let found = self.get(client, image).await?;
        let pushed = push::push(client, &found.id, to).await;
        pushed.map_err(|why| SandboxError::Push {
            image: to.to_owned(),
            reason: why.reason,
        })
    }

    /// The file with the words of the build of an image of this name in the engine's store.
    pub(super) fn build_log(&self, name: &str) -> Option<PathBuf> {
        Some(self.logs.as_deref()?.join(build::log_name(name)))
    }

    async fn name(&self, image: &Image) -> Result<Arc<str>, SandboxError> {
        match image {
            Image::Named(name) => Ok(Arc::from(name.as_str())),
            Image::Build { context, name, .. } => {
                let tag = Once::of(&self.tags, context.clone());
                let tag = tag.get(build::tagged(context, name)).await;
                tag.map_err(|why| why.of(name))
            }
        }
    }

    async fn made(&self, client: &Docker, image: &Image, name: &str) -> Result<Arc<Found>, Why> {
        if let Some(found) = inspect(client, name).await? {
            cache::use_again(client, name, &found).await;
            return Ok(Arc::new(found));
        }
        match image {
            Image::Named(_) => pull::pull(client, name).await?,
            Image::Build {
                context,
                timeout,
                mirror,
                ..
            } => {
                let log = self.build_log(name);
                build::build(client, name, (context, mirror), *timeout, log.as_deref()).await?;
            }
        }
        let found = inspect(client, name).await?;
        let found = found.ok_or_else(|| Why::now("the engine does not have it although it said so"))?;
        cache::mark(client, name, &found).await;
        if let Some(bound) = self.bound {
            let removed = cache::shrink(client, bound, &found.id).await;
            let mut known = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|name, _| !removed.contains(name));
        }
        Ok(Arc::new(found))
    }
}

async fn inspect(client: &Docker, name: &str) -> Result<Option<Found>, Why> {
    match tokio::time::timeout(super::CALL, client.inspect_image(name)).await {
        Err(_) => Err(Why::now(format!("the engine did not answer within {:?}", super::CALL))),
        Ok(Ok(inspected)) => Ok(Some(Found::from(inspected))),
        Ok(Err(Error::DockerResponseServerError { status_code: 404, .. })) => Ok(None),
        Ok(Err(error)) => Err(refused(error)),
    }
}

/// What the engine said. A wrong name stays one.
fn refused(error: Error) -> Why {
    match error {
        Error::DockerResponseServerError {
            status_code: 400 | 404,
            message,
        } => Why::for_good(message),
        error => Why::now(error.to_string()),
    }
}

impl From<ImageInspect> for Found {
    fn from(inspected: ImageInspect) -> Self {
        let config = inspected.config.unwrap_or_default();
        let set = |text: Option<String>| text.filter(|text| !text.is_empty());
        let env = config.env.unwrap_or_default();
        Self {
            id: inspected.id.unwrap_or_default(),
            says: Says {
                env: env
                    .iter()
                    .filter_map(|pair| pair.split_once('='))
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
                user: set(config.user),
                workdir: set(config.working_dir),
            },
            tags: inspected.repo_tags.unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn those_that_wait_share_a_failure_and_later_ones_try_again() {
        let once = Once::<str>::default();
        let tries = AtomicU64::new(0);
        let fails = || async {
            tries.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Err(Why::now("busy"))
        };
        let (one, two, three) = tokio::join!(once.get(fails()), once.get(fails()), once.get(fails()));
        assert!([one, two, three].iter().all(|one| *one == Err(Why::now("busy"))));
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        let last = once.get(async { Err(Why::for_good("no such image")) }).await;
        assert!(last.unwrap_err().last);
        assert_eq!(once.get(fails()).await, Err(Why::for_good("no such image")));
        assert_eq!(tries.load(Ordering::Relaxed), 1);
        let made = Once::<str>::default();
        assert_eq!(&*made.get(async { Ok(Arc::from("a")) }).await.unwrap(), "a");
        assert_eq!(&*made.get(fails()).await.unwrap(), "a");
    }
}
