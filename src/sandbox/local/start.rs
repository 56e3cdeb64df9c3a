//! Makes one sandbox: its host folder, its init, and the word that it is ready.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Gid, Uid, geteuid};
use tokio::process::{Child, Command};

use super::running::LocalSandbox;
use super::{FOLDERS, LocalOptions, NOBODY, WEAK, WEAKER};
use crate::sandbox::control::layout::Layout;
use crate::sandbox::control::link::{Link, PATIENCE};
use crate::sandbox::control::wire::{Mode, Mount, Setup};
use crate::sandbox::control::{self, Control, Started};
use crate::sandbox::owner::{Owner, host_name};
use crate::sandbox::{INIT_COMMAND, Isolation, SandboxError, SandboxSpec, WORKDIR, owner, tree};

/// More entries than this are not copied where an overlay is possible.
const COPY_ENTRIES: usize = 5000;

/// Why there is no sandbox.
pub(super) enum Refusal {
    /// This machine does not allow that kind.
    Refused(String),
    Failed(SandboxError),
}

impl From<SandboxError> for Refusal {
    fn from(error: SandboxError) -> Self {
        Self::Failed(error)
    }
}

impl From<Refusal> for SandboxError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Refused(reason) => Self::Start {
                name: "local".to_owned(),
                reason,
            },
            Refusal::Failed(error) => error,
        }
    }
}

/// A folder that is removed again unless the sandbox takes it over.
struct Folder(Option<PathBuf>);

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            owner::discard(&path);
        }
    }
}

pub(super) async fn start(options: &LocalOptions, spec: SandboxSpec, mode: Mode) -> Result<LocalSandbox, Refusal> {
    let name = spec.name.clone();
    let failed = |reason: &dyn std::fmt::Display| SandboxError::Start {
        name: name.clone(),
        reason: reason.to_string(),
    };
    // The guard comes with the folder: where nobody waits for it any more, it is removed as soon as it is made.
    let (mut folder, lower) = {
        let (options, spec) = (options.clone(), spec.clone());
        let prepared = tokio::task::spawn_blocking(move || prepare(&options, &spec, mode)).await;
        prepared
            .map_err(|error| failed(&error))?
            .map_err(|error| failed(&error))?
    };
    let Some(scratch) = folder.0.clone() else {
        return Err(failed(&"its folder is gone").into());
    };
    let workdir = spec.workdir.clone().unwrap_or_else(|| WORKDIR.to_owned());
    let (proxy, weak) = (spec.network.proxy(), mode == Mode::Weak);
    let setup = Setup {
        name: host_name(&spec.name),
        mode,
        scratch: scratch.clone(),
        lower: lower.clone(),
        workdir: workdir.clone(),
        read_only: options
            .read_only
            .iter()
            .map(|path| Mount {
                from: path.clone(),
                at: path.clone(),
            })
            .collect(),
        // Without a network of its own it would listen on the host's.
        listen: if weak {
            Vec::new()
        } else {
            control::ports(&spec.network)
        },
        nowhere: false,
        proxy_port: proxy.map(|address| address.port()),
        user: None,
        memory: spec.limits.memory,
        pids: spec.limits.pids,
        disk: spec.limits.disk,
        lifetime_ms: u64::try_from(spec.lifetime.as_millis()).unwrap_or(u64::MAX),
    };
    let (mut child, socket) = spawn(&options.init_exe).map_err(|error| failed(&error))?;
    let link = Link::new(socket, PATIENCE).map_err(|error| failed(&error))?;
    let started = control::start(&link, setup).await;
    let (landlock, listeners) = match started {
        Ok(Started::Ready {
            landlock, listeners, ..
        }) => (landlock, listeners),
        other => {
            link.close();
            let status = tokio::time::timeout(Duration::from_secs(1), child.wait()).await;
            return Err(match other {
                Ok(Started::Failed { reason, refused: true }) => Refusal::Refused(reason),
                Ok(Started::Failed { reason, .. }) => failed(&reason).into(),
                Err(error) => failed(&error).into(),
                Ok(Started::Silent(waited)) => {
                    // It does not listen; without it the rest ends too.
                    let _ = child.start_kill();
                    SandboxError::Timeout {
                        name: spec.name,
                        waited,
                    }
                    .into()
                }
                Ok(Started::Gone | Started::Ready { .. }) => {
                    let how = status
                        .ok()
                        .and_then(Result::ok)
                        .map_or_else(String::new, |status| format!(" ({status})"));
                    let reason = format!(
                        "`{} {INIT_COMMAND}` ended before it was ready{how}",
                        options.init_exe.display()
                    );
                    failed(&reason).into()
                }
            });
        }
    };
    let isolation = match (weak, landlock) {
        (false, _) => Isolation::Namespaces,
        (true, true) => Isolation::Weak(WEAK),
        (true, false) => Isolation::Weak(WEAKER),
    };
    let scratch = folder.0.take().unwrap_or(scratch);
    let layout = Layout { mode, scratch, workdir };
    let source = spec.source.clone();
    let control = Control::new(spec, layout, &BTreeMap::new(), link, listeners);
    Ok(LocalSandbox {
        // Without namespaces the host's own address is the one inside.
        proxy_url: control
            .proxy_url()
            .or_else(|| proxy.map(|address| format!("http://{address}"))),
        control,
        source,
        lower,
        child: Mutex::new(Some(child)),
        isolation,
    })
}

/// The init, and the host's end of its control socket.
fn spawn(exe: &Path) -> io::Result<(Child, OwnedFd)> {
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let child = Command::new(exe)
        .arg(INIT_COMMAND)
        // Nothing of this process's environment (keys, tokens) is there to be read.
        .env_clear()
        .current_dir("/")
        // A signal to our group, as a closed terminal or `timeout` sends it, must leave it time to end what runs inside.
        .process_group(0)
        .stdin(Stdio::from(theirs))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("`{}`: {error}", exe.display())))?;
    Ok((child, ours))
}

/// Makes the host folder with its label and the working folder; gives it and an overlay's lower folder.
fn prepare(options: &LocalOptions, spec: &SandboxSpec, mode: Mode) -> io::Result<(Folder, Option<PathBuf>)> {
    fs_err::create_dir_all(&options.root)?;
    let root = fs_err::canonicalize(&options.root)?;
    let name = format!("{}-{}", host_name(&spec.name), uuid::Uuid::now_v7().simple());
    let scratch = Owner::here(&spec.name, &spec.labels)?.make_folder(&root, &name)?;
    let folder = Folder(Some(scratch.clone()));
    let root_user = geteuid().is_root();
    let owner = root_user.then(|| (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY)));
    let source = fs_err::canonicalize(&spec.source)?;
    let overlay = mode == Mode::Namespaces && !root_user && tree::is_larger(&source, options.copy_limit, COPY_ENTRIES)?;
    if overlay {
        tree::make(&scratch.join("upper"), 0o755, owner)?;
        tree::make(&scratch.join("overlay"), 0o755, owner)?;
    } else {
        let work = scratch.join("work");
        tree::make(&work, 0o755, owner)?;
        tree::copy(&source, &work, owner)?;
    }
    if mode == Mode::Weak {
        for name in FOLDERS.iter().filter(|name| **name != "work") {
            tree::make(&scratch.join(name), 0o755, owner)?;
        }
        for name in ["agent", "verifier", "artifacts"] {
            tree::make(&scratch.join("logs").join(name), 0o755, owner)?;
        }
    }
    Ok((folder, overlay.then_some(source)))
}
