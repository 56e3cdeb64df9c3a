//! Leaves the host: no root, own namespaces, one mapped user, killed when `lego` or the inner init ends.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Gid, Pid, Uid, getgid, getuid, setgid, setgroups, setuid};

use super::Failure;
use crate::sandbox::control::wire::Setup;
use crate::sandbox::local::NOBODY;
use crate::sandbox::sys;

/// A folder that every system has; it is covered in the sandbox's own mount namespace only.
pub(super) const STAGE: &str = "/tmp";

/// Unshares everything and maps the one user to root inside.
///
/// Root becomes an unprivileged user first: a namespace's root that is the machine's own root may still
/// write what belongs to it, `/proc/sys` for one. The folders in `setup` are then where that user finds them.
pub(super) fn enter(setup: &mut Setup) -> Result<(), Failure> {
    if getuid().is_root() {
        // Without the capability the folders must be reachable for that user by themselves.
        if unshare(CloneFlags::CLONE_NEWNS).is_ok() {
            stage(setup)?;
        }
        leave_root()?;
    }
    let (uid, gid) = (getuid(), getgid());
    let all = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    unshare(all).map_err(|error| Failure::refused("unshare", error))?;
    // Not on every kernel, and little is lost without it.
    let _ = unshare(CloneFlags::CLONE_NEWCGROUP);
    for (file, text) in [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {uid} 1")),
        ("/proc/self/gid_map", format!("0 {gid} 1")),
    ] {
        fs::write(file, text).map_err(|error| Failure::refused(file, error))?;
    }
    Ok(())
}

/// As the machine's root: puts the folders where an unprivileged user can reach them, in this mount namespace only.
fn stage(setup: &mut Setup) -> Result<(), Failure> {
    let fail = |error: nix::Error| Failure::refused("stage the folders", error);
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(fail)?;
    let open = |path: &Path| super::root::handle(path);
    let scratch = open(&setup.scratch)?;
    let lower = setup.lower.as_deref().map(open).transpose()?;
    let mounts = setup
        .read_only
        .iter()
        .map(|mount| open(&mount.from))
        .collect::<Result<Vec<_>, Failure>>()?;
    mount(
        Some("lego"),
        STAGE,
        Some("tmpfs"),
        MsFlags::empty(),
        Some("mode=755,size=64k"),
    )
    .map_err(fail)?;
    let place = |name: &str, source: &OwnedFd| -> Result<PathBuf, Failure> {
        let target = Path::new(STAGE).join(name);
        fs::create_dir(&target).map_err(|error| Failure::new(target.display(), error))?;
        super::root::bind_handle(source, &target)?;
        Ok(target)
    };
    place("scratch", &scratch)?;
    lower.map(|lower| place("lower", &lower)).transpose()?;
    for (index, (mount, source)) in setup.read_only.iter_mut().zip(&mounts).enumerate() {
        mount.from = place(&format!("mount{index}"), source)?;
    }
    setup.scratch = Path::new(STAGE).join("scratch");
    setup.lower = setup.lower.as_ref().map(|_| Path::new(STAGE).join("lower"));
    Ok(())
}

/// Turns root into an unprivileged user; nothing for anybody else.
pub(super) fn leave_root() -> Result<(), Failure> {
    if !getuid().is_root() {
        return Ok(());
    }
    let fail = |error| Failure::refused("give up root", error);
    setgroups(&[]).map_err(fail)?;
    setgid(Gid::from_raw(NOBODY)).map_err(fail)?;
    setuid(Uid::from_raw(NOBODY)).map_err(fail)?;
    // Otherwise /proc/self belongs to root and the maps cannot be written.
    nix::sys::prctl::set_dumpable(true).map_err(fail)
}

/// Listeners inside that the host accepts from: the only ways out.
pub(super) fn listen(setup: &Setup) -> Result<Vec<OwnedFd>, Failure> {
    let listen = |port: &u16| -> io::Result<OwnedFd> {
        let listener = TcpListener::bind(("127.0.0.1", *port))?;
        listener.set_nonblocking(true)?;
        Ok(listener.into())
    };
    let listen = |port| listen(port).map_err(|error| Failure::new(format_args!("listen on {port}"), error));
    setup.listen.iter().map(listen).collect()
}

/// Waits until the inner init ends; ends it when the host process is gone.
pub(super) fn watch(host: &OwnedFd, child: Pid) -> io::Result<()> {
    let inner = sys::pidfd(child.as_raw())?;
    loop {
        let mut fds = [
            PollFd::new(host.as_fd(), PollFlags::POLLIN),
            PollFd::new(inner.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [host_gone, inner_gone] = fds.map(|fd| fd.any().unwrap_or(false));
        if host_gone {
            kill(child, Signal::SIGKILL)?;
        }
        if host_gone || inner_gone {
            waitpid(child, None)?;
            return Ok(());
        }
    }
}

/// `/proc/self/fd/N`, a path that needs no permission on the way.
pub(super) fn by_descriptor(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
