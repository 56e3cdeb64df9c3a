//! Sandboxes in containers of an engine on this machine: Docker, or Podman by the same API.
//!
//! The engine makes the walls (image, limits, network, life); inside them runs `lego`'s own init as process 1, driven
//! over a socket that the host accepts once and then removes (`../control/`). A container has no network of its own
//! unless it is asked for; the way to the proxy is a listener that the init hands out. When the owning process ends
//! in any way, the socket closes, process 1 ends, and the engine removes the container.

mod ahead;
mod client;
mod container;
mod images;
mod running;

pub use client::address;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::models::ContainerSummary;
use bollard::query_parameters::{ListContainersOptionsBuilder, RemoveContainerOptionsBuilder};
use tokio::sync::{OnceCell, Semaphore};

use super::backend::by_itself;
use super::owner::{self, Owner};
use super::runtime::{self, Runtime};
use super::{Image, Isolation, Sandbox, SandboxError, SandboxSpec};
use images::Images;

/// Label of a container with who owns it.
const OWNER: &str = "lego.owner";
/// Label with the host folder below which its own lies: another user's containers are not ours to touch.
const ROOT: &str = "lego.root";
/// Socket inside at which the host waits.
const SOCKET: &str = "/.lego/init.sock";
/// Time for one call to the engine that starts nothing.
const CALL: Duration = Duration::from_secs(30);

/// How containers are made.
#[derive(Debug, Clone)]
pub struct DockerOptions {
    /// The executable whose first argument [`super::INIT_COMMAND`] leads to [`super::init_main`].
    pub init_exe: PathBuf,
    /// Host folder for the containers' sockets; made where it is missing.
    pub root: PathBuf,
    /// Host folders that appear inside at their own path, read-only.
    pub read_only: Vec<PathBuf>,
    /// Address of the engine (`unix:///…`, `tcp://…`); `None`: `DOCKER_HOST`, else the usual sockets.
    pub host: Option<String>,
    /// Containers that start at the same time; further ones wait.
    pub starts: usize,
    /// Bytes that pulled and built images may hold; `None` is no bound.
    pub image_cache: Option<u64>,
    /// Folder for what the engine says while it builds; `None`: it is not kept.
    pub build_logs: Option<PathBuf>,
}

impl DockerOptions {
    /// The usual engine, four starts at a time.
    pub fn new(init_exe: impl Into<PathBuf>, root: impl Into<PathBuf>) -> Self {
        Self {
            init_exe: init_exe.into(),
            root: root.into(),
            read_only: Vec::new(),
            host: None,
            starts: 4,
            image_cache: None,
            build_logs: None,
        }
    }
}

/// Makes sandboxes in containers.
#[derive(Debug)]
pub struct DockerBackend {
    options: DockerOptions,
    client: OnceCell<Docker>,
    runtime: OnceCell<Runtime>,
    images: Images,
    starting: Arc<Semaphore>,
}

impl DockerBackend {
    /// Nothing is contacted yet.
    pub fn new(options: DockerOptions) -> Self {
        Self {
            starting: Arc::new(Semaphore::new(options.starts.max(1))),
            images: Images::new(options.image_cache, options.build_logs.clone()),
            options,
            client: OnceCell::new(),
            runtime: OnceCell::new(),
        }
    }

    async fn client(&self) -> Result<&Docker, SandboxError> {
        let connect = || client::connect(self.options.host.as_deref());
        self.client.get_or_try_init(connect).await
    }

    /// What its sandboxes keep apart, if the engine answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn isolation(&self) -> Result<Isolation, SandboxError> {
        self.client().await.map(|_| Isolation::Container)
    }

    /// What the engine's machine takes for the time; nothing where it does not say.
    pub async fn clock(&self) -> Option<jiff::Timestamp> {
        let info = answer(self.client().await.ok()?.info()).await.ok()?;
        info.system_time?.parse().ok()
    }

    /// A fresh sandbox from the spec's image, which is pulled or built where it is not there.
    ///
    /// # Errors
    /// When there is no image, or no container could be made of it.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let client = self.client().await?;
        let runtime = self
            .runtime
            .get_or_try_init(|| runtime::find(&self.options.init_exe))
            .await?;
        let image = spec.image.as_ref().ok_or_else(|| SandboxError::Unfit {
            name: spec.name.clone(),
            reason:
                "no image is named: set `environment.docker_image` in task.toml, configure `sandbox.registry`, or give \
                the task an `environment/Dockerfile`"
                    .to_owned(),
        })?;
        let image = self.images.get(client, image).await?;
        // Engines get slower by more starts at once than they have cores, and time out on hundreds.
        let permit = Arc::clone(&self.starting).acquire_owned().await;
        let name = spec.name.clone();
        let start = container::start(client.clone(), runtime.clone(), self.options.clone(), image, spec);
        by_itself(name, async move {
            let started = start.await;
            drop(permit);
            started
        })
        .await
    }

    /// Removes the containers and folders of dead owners; gives their names.
    ///
    /// # Errors
    /// When they cannot be listed or removed.
    pub async fn reap(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let client = self.client().await?;
        let mut removed = owner::reap(&self.options.root).map_err(|source| SandboxError::Reap {
            root: self.options.root.clone(),
            source,
        })?;
        for (container, owner) in labelled(client, &self.options.root).await? {
            if !owner.is_dead() {
                continue;
            }
            let id = container.id.unwrap_or_default();
            remove(client, &id).await.map_err(|reason| SandboxError::Engine {
                what: "a killed owner's container could not be removed",
                reason,
            })?;
            let name = container.names.and_then(|names| names.into_iter().next()).unwrap_or(id);
            let folder = self.options.root.join(name.trim_start_matches('/'));
            if !removed.iter().any(|path| path.file_name() == folder.file_name()) {
                removed.push(folder);
            }
        }
        Ok(removed)
    }
}

/// The engine's answer within the time that a call has, or its words.
async fn answer<T>(call: impl Future<Output = Result<T, bollard::errors::Error>>) -> Result<T, String> {
    let answered = tokio::time::timeout(CALL, call).await;
    answered
        .map_err(|_| format!("no answer within {CALL:?}"))?
        .map_err(|error| error.to_string())
}

/// Containers with a readable label of ours, in any state, whose folders are below `root`.
async fn labelled(client: &Docker, root: &Path) -> Result<Vec<(ContainerSummary, Owner)>, SandboxError> {
    let failed = |reason: String| SandboxError::Engine {
        what: "the containers could not be listed",
        reason,
    };
    let options = ListContainersOptionsBuilder::new()
        .all(true)
        .filters(
            &[("label", vec![OWNER.to_owned(), format!("{ROOT}={}", root.display())])]
                .into_iter()
                .collect(),
        )
        .build();
    let listed = answer(client.list_containers(Some(options))).await.map_err(failed)?;
    let owner = |container: &ContainerSummary| serde_json::from_str(container.labels.as_ref()?.get(OWNER)?).ok();
    Ok(listed
        .into_iter()
        .filter_map(|container| owner(&container).map(|owner| (container, owner)))
        .collect())
}

/// Kills and removes a container. One that is gone, or that the engine is removing already, is fine.
async fn remove(client: &Docker, id: &str) -> Result<(), String> {
    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
    match tokio::time::timeout(CALL, client.remove_container(id, Some(options))).await {
        Err(_) => Err(format!("no answer within {CALL:?}")),
        Ok(
            Ok(())
            | Err(bollard::errors::Error::DockerResponseServerError {
                status_code: 404 | 409, ..
            }),
        ) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
    }
}
