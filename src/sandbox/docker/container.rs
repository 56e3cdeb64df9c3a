//! Makes one container and waits until its init serves.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountType, NetworkConnectRequest, NetworkDisconnectRequest,
    ResourcesUlimits,
};
use bollard::query_parameters::{CreateContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder};
use futures_util::StreamExt as _;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, accept4, bind, listen, socket};

use super::images::Found;
use super::running::DockerSandbox;
use super::{DockerOptions, OWNER, ROOT, SOCKET};
use crate::sandbox::control;
use crate::sandbox::control::link::{Link, PATIENCE};
use crate::sandbox::owner::{self, Owner, host_name};
use crate::sandbox::runtime::Runtime;
use crate::sandbox::{SandboxError, SandboxSpec, sys};

/// Time to make a container, and to start it; engines that do many at once are slow.
const MADE: Duration = Duration::from_mins(2);
/// Time for process 1 to connect once its container has started.
const CONNECTED: Duration = Duration::from_secs(30);

pub(super) async fn start(
    client: Docker,
    runtime: Runtime,
    options: DockerOptions,
    image: Arc<Found>,
    spec: SandboxSpec,
) -> Result<DockerSandbox, SandboxError> {
    let failed = |reason: String| SandboxError::Start {
        name: spec.name.clone(),
        reason,
    };
    let owner = Owner::here(&spec.name, &spec.labels).map_err(|error| failed(error.to_string()))?;
    let folder = Folder::make(&options.root, &owner).map_err(|error| failed(error.to_string()))?;
    let listener = folder.listen().map_err(|error| failed(error.to_string()))?;

    let label = serde_json::to_string(&owner).map_err(|error| failed(error.to_string()))?;
    let socket = folder.socket();
    let body = body(&runtime, &options, &image, &spec, &socket, label);
    let create = CreateContainerOptionsBuilder::new().name(&folder.name()).build();
    // From here on both are removed whatever happens.
    let mut container = Container {
        client: client.clone(),
        id: None,
        folder: Some(folder),
    };
    let made = tokio::time::timeout(MADE, client.create_container(Some(create), body)).await;
    let made = made
        .map_err(|_| failed(format!("the engine did not make its container within {MADE:?}")))?
        .map_err(|error| match error {
            bollard::errors::Error::DockerResponseServerError {
                status_code: 400,
                message,
            } => SandboxError::Unfit {
                name: spec.name.clone(),
                reason: message,
            },
            error => failed(error.to_string()),
        })?;
    container.id = Some(made.id.clone());
    let started = tokio::time::timeout(MADE, client.start_container(&made.id, None::<StartContainerOptions>)).await;
    started
        .map_err(|_| failed(format!("the engine did not start its container within {MADE:?}")))?
        .map_err(|error| failed(error.to_string()))?;
    let connected = tokio::select! {
        accepted = tokio::time::timeout(CONNECTED, accept(&listener)) => match accepted {
            Ok(accepted) => accepted.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!(
                "its process 1 did not connect to {} within {CONNECTED:?}: is the engine on another machine?",
                socket.display()
            ))),
        },
        ended = ended(&client, &made.id) => return Err(failed(ended)),
    };
    // Nobody else is to be taken for the init.
    drop(listener);
    let _ = fs_err::remove_file(&socket);

    let link = Link::new(connected, PATIENCE).map_err(|error| failed(error.to_string()))?;
    let entered = control::container::enter(link, None, spec, &image.says).await?;
    Ok(DockerSandbox::new(entered.control, entered.before, container.take()))
}

fn body(
    runtime: &Runtime,
    options: &DockerOptions,
    image: &Found,
    spec: &SandboxSpec,
    socket: &Path,
    owner: String,
) -> ContainerCreateBody {
    let mount = |from: &Path, to: &str, read_only| Mount {
        typ: Some(MountType::BIND),
        source: Some(from.display().to_string()),
        target: Some(to.to_owned()),
        read_only: Some(read_only),
        ..Mount::default()
    };
    let own = runtime.files.iter().map(|(from, to)| mount(from, to, true));
    let given = options
        .read_only
        .iter()
        .map(|path| mount(path, &path.display().to_string(), true));
    let mut labels: HashMap<String, String> = spec
        .labels
        .iter()
        .map(|(key, value)| (format!("lego.{key}"), value.clone()))
        .collect();
    labels.insert(OWNER.to_owned(), owner);
    labels.insert(ROOT.to_owned(), options.root.display().to_string());
    let bytes = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let memory = spec.limits.memory.map(bytes);
    let host = HostConfig {
        mounts: Some(own.chain(given).chain([mount(socket, SOCKET, false)]).collect()),
        network_mode: Some("none".to_owned()),
        memory,
        // Without swap: the limit is the limit.
        memory_swap: memory,
        nano_cpus: spec.limits.cpus.map(|cpus| (f64::from(cpus) * 1e9) as i64),
        pids_limit: spec.limits.pids.map(i64::from),
        auto_remove: Some(true),
        init: Some(false),
        ulimits: Some(vec![ResourcesUlimits {
            name: Some("core".to_owned()),
            soft: Some(0),
            hard: Some(0),
        }]),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.id.clone()),
        hostname: Some(host_name(&spec.name)),
        user: Some("0:0".to_owned()),
        entrypoint: Some(runtime.command(&[SOCKET])),
        cmd: Some(Vec::new()),
        working_dir: Some("/".to_owned()),
        labels: Some(labels),
        host_config: Some(host),
        ..ContainerCreateBody::default()
    }
}

/// Accepts one connection.
async fn accept(listener: &OwnedFd) -> io::Result<OwnedFd> {
    let listener = sys::watched(listener.try_clone()?)?;
    loop {
        let mut ready = listener.readable().await?;
        let accepted = ready.try_io(|listener| {
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            Ok(accept4(listener.as_raw_fd(), flags)?)
        });
        if let Ok(accepted) = accepted {
            return accepted.map(sys::own);
        }
    }
}

/// Comes back when the container has ended, with its last word.
async fn ended(client: &Docker, id: &str) -> String {
    let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
    let ended = client.wait_container(id, Some(options)).next().await;
    let code = match ended {
        Some(Ok(ended)) => format!("exit code {}", ended.status_code),
        Some(Err(error)) => error.to_string(),
        None => "no exit code".to_owned(),
    };
    format!("its process 1 ended before it was ready ({code})")
}

/// A container with its folder; both are removed when it is dropped.
pub(super) struct Container {
    client: Docker,
    id: Option<String>,
    folder: Option<Folder>,
}

impl Container {
    pub(super) fn take(&mut self) -> Self {
        Self {
            client: self.client.clone(),
            id: self.id.take(),
            folder: self.folder.take(),
        }
    }

    /// Gives it the engine's own network, or takes it away again. A container without any has the network `none`, which
    /// suffers no other beside it.
    pub(super) async fn set_public(&self, public: bool) -> Result<(), String> {
        let Some(id) = &self.id else { return Ok(()) };
        let connect = || NetworkConnectRequest {
            container: id.clone(),
            ..NetworkConnectRequest::default()
        };
        let disconnect = |network| {
            let request = NetworkDisconnectRequest {
                container: id.clone(),
                force: Some(true),
            };
            self.client.disconnect_network(network, request)
        };
        let done = async {
            if public {
                disconnect("none").await?;
                self.client.connect_network("bridge", connect()).await
            } else {
                disconnect("bridge").await?;
                self.client.connect_network("none", connect()).await
            }
        };
        super::answer(done).await
    }

    /// Paths that are not as in the image, those that are gone among them.
    pub(super) async fn changed(&self) -> Result<Vec<String>, String> {
        let Some(id) = &self.id else { return Ok(Vec::new()) };
        let changes = super::answer(self.client.container_changes(id))
            .await?
            .unwrap_or_default();
        Ok(changes.into_iter().map(|change| change.path).collect())
    }

    /// Removes it now.
    pub(super) async fn remove(&mut self) -> Result<(), String> {
        if let Some(id) = &self.id {
            super::remove(&self.client, id).await?;
            self.id = None;
        }
        self.folder = None;
        Ok(())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let (client, folder) = (self.client.clone(), self.folder.take());
        let Some(id) = self.id.take() else { return };
        // Where nothing runs any more, the process is about to end, and the container with it.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = super::remove(&client, &id).await {
                    tracing::warn!(container = id, error, "a dropped container was not removed");
                }
                drop(folder);
            });
        }
    }
}

/// The container's folder on the host, with the socket in it. Removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn make(root: &Path, owner: &Owner) -> io::Result<Self> {
        fs_err::create_dir_all(root)?;
        let name = format!("lego-{}-{}", host_name(&owner.name), uuid::Uuid::now_v7().simple());
        owner.make_folder(&fs_err::canonicalize(root)?, &name).map(Self)
    }

    /// Also the container's.
    fn name(&self) -> String {
        let name = self.0.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    fn socket(&self) -> PathBuf {
        self.0.join("init.sock")
    }

    fn listen(&self) -> io::Result<OwnedFd> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
        // Through a descriptor: the path itself may be longer than an address can hold.
        let folder = fs_err::File::open(&self.0)?;
        let short = format!("/proc/self/fd/{}/init.sock", folder.as_raw_fd());
        bind(listener.as_raw_fd(), &UnixAddr::new(short.as_str())?)?;
        // Root inside may be another user here.
        fs_err::set_permissions(self.socket(), std::fs::Permissions::from_mode(0o666))?;
        listen(&listener.as_fd(), Backlog::new(1)?)?;
        Ok(listener)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        owner::discard(&self.0);
    }
}
