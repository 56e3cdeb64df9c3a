//! The init as process 1 of a container: it makes nothing around the commands, the container does that.
//!
//! Nobody inside can end it (the kernel spares process 1 of a namespace), and with it ends the container. What it
//! must not do: trust the container's files. They are the image's before the agent started, and the agent's after.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::poll::{PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::confine::Fence;
use serde::{Deserialize, Serialize};

use super::host::{Heard, Host, Socket};
use super::remote::Remote;
use super::{Failure, namespaces, report, serve};
use crate::sandbox::RESERVED;
use crate::sandbox::control::container::Says;
use crate::sandbox::control::remote::SOCKET;
use crate::sandbox::control::wire::{self, Reply, Request, Setup};

/// Time to tell the host that there is no sandbox.
const TOLD: Duration = Duration::from_secs(30);

/// Connects to the host's socket, and serves until it closes.
pub(super) fn run(path: &Path) -> io::Result<()> {
    let control = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(control.as_raw_fd(), &UnixAddr::new(path)?)?;
    let Some((Request::Setup(setup), _)) = wire::receive_request(control.as_fd())? else {
        return Ok(());
    };
    let mut host = Socket::new(control.as_fd())?;
    report(&control, within(&setup, &mut host))
}

/// Serves a host that comes by streams, until it says goodbye or stays away.
pub(super) fn run_remote() -> io::Result<()> {
    // Before anybody else is here.
    nix::sys::prctl::set_dumpable(false)?;
    let mut host = Remote::listen(SOCKET)?;
    let setup = loop {
        match next(&mut host, None)? {
            Some(Heard::Request(Request::Setup(setup), _)) => break setup,
            Some(Heard::Gone) => return Ok(()),
            Some(Heard::Request(..)) | None => {}
        }
    };
    if let Err(Failure { reason, refused }) = within(&setup, &mut host) {
        host.reply(Reply::Failed { reason, refused }, Vec::new())?;
        let end = Instant::now() + TOLD;
        while Instant::now() < end && !matches!(next(&mut host, Some(end))?, Some(Heard::Gone)) {}
    }
    Ok(())
}

/// Variables that the cluster sets, not the image, and what the init finds for each user.
const FOREIGN: [&str; 2] = ["HOSTNAME", "HOME"];

/// What a process of the image is, started as the image says: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::sandbox) struct Described {
    uid: u32,
    gid: u32,
    cwd: PathBuf,
    env: BTreeMap<String, String>,
}

impl Described {
    pub(in crate::sandbox) fn says(self) -> Says {
        let is_own = |name: &String| !FOREIGN.contains(&name.as_str()) && !name.starts_with("KUBERNETES_");
        Says {
            env: self.env.into_iter().filter(|(name, _)| is_own(name)).collect(),
            user: (self.uid != 0).then(|| format!("{}:{}", self.uid, self.gid)),
            workdir: Some(self.cwd.to_string_lossy().into_owned()).filter(|cwd| cwd != "/"),
        }
    }
}

/// Prints that line.
pub(super) fn describe() -> io::Result<()> {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    let described = Described {
        uid: nix::unistd::getuid().as_raw(),
        gid: nix::unistd::getgid().as_raw(),
        cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
        env: std::env::vars_os()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
    };
    let line = serde_json::to_string(&described)? + "\n";
    io::stdout().write_all(line.as_bytes())
}

/// Waits for the host, and hears it.
fn next(host: &mut Remote, end: Option<Instant>) -> io::Result<Option<Heard>> {
    let left = host.deadline().into_iter().chain(end).min();
    let left = left.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
    let patience = left.map_or(PollTimeout::NONE, |left| {
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut host.wanted(), patience) {
        Ok(_) | Err(nix::Error::EINTR) => host.hear(&[]),
        Err(error) => Err(error.into()),
    }
}

fn within(setup: &Setup, host: &mut dyn Host) -> Result<(), Failure> {
    for folder in RESERVED {
        // Whoever runs as another user than the init still has to write its logs and artifacts.
        let mode = if folder.starts_with("/logs/") { 0o777 } else { 0o755 };
        fs::create_dir_all(folder)
            .and_then(|()| fs::set_permissions(folder, fs::Permissions::from_mode(mode)))
            .map_err(|error| Failure::new(folder, error))?;
    }
    fs::create_dir_all(&setup.workdir).map_err(|error| Failure::new(&setup.workdir, error))?;
    let listeners = namespaces::listen(setup)?;
    let fence = Fence::container(setup)?;
    serve::serve(setup, fence, host, listeners, None)
}
