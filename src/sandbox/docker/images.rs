//! The image a sandbox starts from: there already, pulled, or built; each once, however many trials wait for it.

use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ImageInspect;
use bollard::query_parameters::{BuildImageOptionsBuilder, CreateImageOptionsBuilder};
use futures_util::{Stream, StreamExt};
use tokio::sync::OnceCell;

use crate::sandbox::control::container::Says;
use crate::sandbox::{Image, SandboxError, SandboxSpec};
use crate::task::sha256_hex;

/// Longest silence of a pull.
const SILENCE: Duration = Duration::from_mins(2);
/// Time for a pull as a whole.
const PULL: Duration = Duration::from_mins(30);
/// Lines of a build's output that its error shows.
const SHOWN: usize = 15;

/// What of an image matters to its sandboxes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Its content's name.
    pub(super) id: String,
    pub(super) says: Says,
}

/// Images of one backend, by name.
#[derive(Debug, Default)]
pub(super) struct Images {
    found: Mutex<HashMap<String, Once<Found>>>,
    /// Names with their tags, by the folder they are built from: a task does not change while it is worked on.
    tags: Mutex<HashMap<PathBuf, Once<str>>>,
}

/// Made by whoever comes first.
type Once<T> = Arc<OnceCell<Arc<T>>>;

fn once<K: std::hash::Hash + Eq, T: ?Sized>(all: &Mutex<HashMap<K, Once<T>>>, key: K) -> Once<T> {
    Arc::clone(
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(key)
            .or_default(),
    )
}

impl Images {
    /// The spec's image; whoever comes first makes it be there, the others wait for that.
    pub(super) async fn get(&self, client: &Docker, spec: &SandboxSpec) -> Result<Arc<Found>, SandboxError> {
        let image = spec.image.as_ref().ok_or_else(|| SandboxError::Start {
            name: spec.name.clone(),
            reason:
                "no image is named: set `environment.docker_image` in task.toml, configure `sandbox.registry`, or give \
                the task an `environment/Dockerfile`"
                    .to_owned(),
        })?;
        let name = match image {
            Image::Named(name) => Arc::from(name.as_str()),
            Image::Build { context, name, .. } => {
                let tag = once(&self.tags, context.clone());
                let tag = tag.get_or_try_init(|| tagged(context, name)).await;
                Arc::clone(tag.map_err(|error| failed(name, error.to_string()))?)
            }
        };
        let cell = once(&self.found, name.to_string());
        let found = cell.get_or_try_init(|| async {
            if let Some(found) = inspect(client, &name).await? {
                return Ok(Arc::new(found));
            }
            match image {
                Image::Named(_) => pull(client, &name).await?,
                Image::Build { context, timeout, .. } => build(client, &name, context, *timeout).await?,
            }
            let found = inspect(client, &name).await?;
            found
                .map(Arc::new)
                .ok_or_else(|| failed(&name, "the engine does not have it although it said so".to_owned()))
        });
        found.await.cloned()
    }
}

fn failed(image: &str, reason: String) -> SandboxError {
    SandboxError::Image {
        image: image.to_owned(),
        reason,
    }
}

async fn inspect(client: &Docker, name: &str) -> Result<Option<Found>, SandboxError> {
    match tokio::time::timeout(super::CALL, client.inspect_image(name)).await {
        Err(_) => Err(failed(
            name,
            format!("the engine did not answer within {:?}", super::CALL),
        )),
        Ok(Ok(inspected)) => Ok(Some(Found::of(inspected))),
        Ok(Err(Error::DockerResponseServerError { status_code: 404, .. })) => Ok(None),
        Ok(Err(error)) => Err(failed(name, error.to_string())),
    }
}

impl Found {
    fn of(inspected: ImageInspect) -> Self {
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
        }
    }
}

async fn pull(client: &Docker, name: &str) -> Result<(), SandboxError> {
    tracing::info!(image = name, "pulling");
    // A name without a tag or digest would mean every tag.
    let last = name.rsplit('/').next().unwrap_or(name);
    let options = CreateImageOptionsBuilder::new().from_image(name);
    let options = if last.contains(':') || last.contains('@') {
        options
    } else {
        options.tag("latest")
    };
    let progress = client.create_image(Some(options.build()), None, None);
    let words = progress.map(|event| {
        let event = event.map_err(|error| error.to_string())?;
        match event.error_detail.and_then(|detail| detail.message) {
            Some(message) => Err(message),
            None => Ok(event.status.unwrap_or_default()),
        }
    });
    follow(words, PULL, "the pull")
        .await
        .map_err(|reason| failed(name, format!("it could not be pulled: {reason}")))
}

async fn build(client: &Docker, name: &str, context: &Path, timeout: Duration) -> Result<(), SandboxError> {
    tracing::info!(image = name, context = %context.display(), "building");
    let folder = context.to_owned();
    let packed = tokio::task::spawn_blocking(move || pack(&folder)).await;
    let packed = packed
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|error| failed(name, format!("{}: {error}", context.display())))?;
    let options = BuildImageOptionsBuilder::new().t(name).rm(true).forcerm(true).build();
    let progress = client.build_image(options, None, Some(bollard::body_full(packed.into())));
    let words = progress.map(|event| {
        let event = event.map_err(|error| error.to_string())?;
        match event.error_detail.and_then(|detail| detail.message) {
            Some(message) => Err(message),
            None => Ok(event.stream.unwrap_or_default()),
        }
    });
    follow(words, timeout, "the build").await.map_err(|reason| {
        failed(
            name,
            format!("{} could not be built: {reason}", context.join("Dockerfile").display()),
        )
    })
}

/// Reads the engine's words to their end. An error comes with the last of what was said before it.
async fn follow(words: impl Stream<Item = Result<String, String>>, within: Duration, what: &str) -> Result<(), String> {
    let mut words = pin!(words);
    let mut last = VecDeque::new();
    let read = async {
        loop {
            match tokio::time::timeout(SILENCE.min(within), words.next()).await {
                Err(_) => return Err(format!("{what} was silent for {:?}", SILENCE.min(within))),
                Ok(None) => return Ok(()),
                Ok(Some(word)) => {
                    let word = word?;
                    last.extend(word.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned));
                    while last.len() > SHOWN {
                        last.pop_front();
                    }
                }
            }
        }
    };
    let ended = tokio::time::timeout(within, read)
        .await
        .unwrap_or_else(|_| Err(format!("{what} did not end within {within:?}")));
    ended.map_err(|reason| {
        let said: Vec<String> = last.into();
        if said.is_empty() {
            reason
        } else {
            format!("{reason}; before that:\n{}", said.join("\n"))
        }
    })
}

async fn tagged(context: &Path, name: &str) -> std::io::Result<Arc<str>> {
    let (context, name) = (context.to_owned(), name.to_owned());
    let tag = tokio::task::spawn_blocking(move || tag(&context, &name)).await;
    tag.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map(Arc::from)
}

/// `name:<content>`, so that what was built of the same content is found again, and of another is not.
fn tag(context: &Path, name: &str) -> std::io::Result<String> {
    if !context.join("Dockerfile").is_file() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::NotFound,
            format!("{} has no Dockerfile", context.display()),
        ));
    }
    let content = sha256_hex(&pack(context)?);
    Ok(format!("{}:{}", name.to_lowercase(), &content[..16]))
}

/// The folder as the engine takes it, the same bytes for the same content.
fn pack(folder: &Path) -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    archive.follow_symlinks(false);
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let mut entries = fs_err::read_dir(folder.join(&below))?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs_err::DirEntry::file_name);
        for entry in entries {
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                archive.append_dir(&path, entry.path())?;
                folders.push(path);
            } else if kind.is_file() || kind.is_symlink() {
                archive.append_path_with_name(entry.path(), &path)?;
            }
        }
    }
    archive.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_tells_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let missing = tag(folder.path(), "Lego/T").unwrap_err().to_string();
        assert!(missing.ends_with("has no Dockerfile"), "{missing}");
        fs_err::write(folder.path().join("Dockerfile"), "FROM scratch\n").unwrap();
        fs_err::create_dir(folder.path().join("files")).unwrap();
        fs_err::write(folder.path().join("files/a"), "1").unwrap();
        let first = tag(folder.path(), "Lego/T").unwrap();
        assert!(first.starts_with("lego/t:") && first.len() == 7 + 16, "{first}");
        assert_eq!(tag(folder.path(), "Lego/T").unwrap(), first);
        fs_err::write(folder.path().join("files/a"), "2").unwrap();
        assert_ne!(tag(folder.path(), "Lego/T").unwrap(), first);
    }

    #[tokio::test]
    async fn an_engines_error_comes_with_what_was_said_before() {
        let words = |last: Result<&str, &str>| {
            let all = [Ok("Step 1/2 : RUN make\n"), Ok("\n"), last];
            futures_util::stream::iter(all.map(|word| word.map(str::to_owned).map_err(str::to_owned)))
        };
        assert_eq!(follow(words(Ok("done")), PULL, "it").await, Ok(()));
        assert_eq!(
            follow(words(Err("exit code 2")), PULL, "it").await,
            Err("exit code 2; before that:\nStep 1/2 : RUN make".to_owned())
        );
        let silent = futures_util::stream::pending();
        let within = Duration::from_millis(10);
        let ended = follow(silent, within, "the pull").await;
        assert_eq!(ended, Err("the pull was silent for 10ms".to_owned()));
    }
}
