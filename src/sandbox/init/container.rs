//! The init as process 1 of a container: it makes nothing around the commands, the container does that.
//!
//! Nobody inside can end it (the kernel spares process 1 of a namespace), and with it ends the container. What it
//! must not do: trust the container's files. They are the image's before the agent started, and the agent's after.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};

use super::confine::Fence;
use super::{Failure, namespaces, report, serve};
use crate::sandbox::RESERVED;
use crate::sandbox::control::wire::{self, Request, Setup};

/// Connects to the host's socket, and serves until it closes.
pub(super) fn run(path: &Path) -> io::Result<()> {
    let control = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
    connect(control.as_raw_fd(), &UnixAddr::new(path)?)?;
    let Some((Request::Setup(setup), _)) = wire::receive_request(control.as_fd())? else {
        return Ok(());
    };
    report(&control, within(&setup, &control))
}

fn within(setup: &Setup, control: &OwnedFd) -> Result<(), Failure> {
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
    serve::serve(setup, fence, control, listeners, None)
}
