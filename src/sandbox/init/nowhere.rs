//! A network that leads nowhere, for the commands of a container that has one that leads somewhere.
//!
//! It belongs to a user namespace of its own, which needs no right that containers lack, but a kernel and a cluster that
//! allow it: whether they do is found by making it. A command enters it for good. There it keeps the capabilities that
//! the container gave it and gets no other, and it can neither trace nor enter what is outside.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::stat::Mode;
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid, pause, read, write};

use super::namespaces;
use crate::sandbox::control::wire::{self, Reply, Setup};
use crate::sandbox::sys;

/// Milliseconds that making it may take.
const MADE: u16 = 10_000;

/// Its namespaces, which live as long as this.
pub(super) struct Nowhere {
    user: OwnedFd,
    net: OwnedFd,
    capabilities: u64,
}

impl Nowhere {
    /// Makes it; gives the listeners of the setup's ports in it too.
    pub(super) fn make(setup: &Setup) -> Result<(Self, Vec<OwnedFd>), String> {
        let text = |error: nix::Error| error.desc().to_owned();
        let (ours, theirs) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC).map_err(text)?;
        // Who enters a user namespace does not come back: a process of its own does.
        match sys::fork().map_err(text)? {
            ForkResult::Child => {
                drop(ours);
                let reply = match inside(setup, theirs.as_fd()) {
                    Ok(fds) => {
                        let fds: Vec<BorrowedFd<'_>> = fds.iter().map(AsFd::as_fd).collect();
                        let ready = Reply::Ready {
                            landlock: false,
                            open: None,
                        };
                        wire::send_reply(theirs.as_fd(), &ready, &fds)
                    }
                    Err(reason) => wire::send_reply(theirs.as_fd(), &Reply::Failed { reason, refused: true }, &[]),
                };
                if reply.is_ok() {
                    // What was sent must not be the last copy before it is taken.
                    pause();
                }
                sys::exit_now(1)
            }
            ForkResult::Parent { child } => {
                drop(theirs);
                let made = outside(child, &ours);
                let _ = kill(child, Signal::SIGKILL);
                let _ = waitpid(child, None);
                made
            }
        }
    }

    /// Moves the calling process there, which is about to run a command.
    pub(super) fn enter(&self) -> Result<(), String> {
        let moved =
            setns(&self.user, CloneFlags::CLONE_NEWUSER).and_then(|()| setns(&self.net, CloneFlags::CLONE_NEWNET));
        moved.map_err(|error| format!("enter the network that leads nowhere: {error}"))?;
        // Whoever enters a user namespace has every capability in it.
        sys::limit_bounding_set(self.capabilities);
        sys::set_capabilities(self.capabilities).map_err(|error| format!("capabilities: {error}"))
    }
}

fn wait(socket: BorrowedFd<'_>) -> Result<(), String> {
    match poll(&mut [PollFd::new(socket, PollFlags::POLLIN)], PollTimeout::from(MADE)) {
        Ok(1..) => Ok(()),
        _ => Err("it was not made in time".to_owned()),
    }
}

fn outside(child: Pid, socket: &OwnedFd) -> Result<(Nowhere, Vec<OwnedFd>), String> {
    let text = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let mut word = [0];
    wait(socket.as_fd())?;
    if read(socket, &mut word) != Ok(1) {
        return Err("a user namespace is not allowed here".to_owned());
    }
    if word[0] == b'y' {
        for map in ["uid_map", "gid_map"] {
            let own = std::fs::read_to_string(format!("/proc/self/{map}")).map_err(text(map))?;
            std::fs::write(format!("/proc/{child}/{map}"), same(&own)).map_err(text(map))?;
        }
        write(socket, b"m").map_err(|error| error.desc().to_owned())?;
        wait(socket.as_fd())?;
    } else {
        return Err("a user namespace with a network is not allowed here".to_owned());
    }
    match wire::receive_reply(socket.as_fd()).map_err(text("its process"))? {
        Some((Reply::Ready { .. }, fds)) => {
            let mut fds = fds.into_iter();
            let (Some(user), Some(net)) = (fds.next(), fds.next()) else {
                return Err("its namespaces did not come".to_owned());
            };
            let capabilities = sys::capabilities();
            Ok((
                Nowhere {
                    user,
                    net,
                    capabilities,
                },
                fds.collect(),
            ))
        }
        Some((Reply::Failed { reason, .. }, _)) => Err(reason),
        _ => Err("its process ended".to_owned()),
    }
}

/// Every user of here, under the same number there.
fn same(map: &str) -> String {
    let lines = map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace();
        let (inside, count) = (numbers.next()?, numbers.nth(1)?);
        Some(format!("{inside} {inside} {count}\n"))
    });
    lines.collect()
}

/// In the process that makes it.
fn inside(setup: &Setup, socket: BorrowedFd<'_>) -> Result<Vec<OwnedFd>, String> {
    let text = |error: nix::Error| error.desc().to_owned();
    let is_allowed = unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET);
    write(socket, if is_allowed.is_ok() { b"y" } else { b"n" }).map_err(text)?;
    is_allowed.map_err(text)?;
    wait(socket)?;
    read(socket, &mut [0]).map_err(text)?;
    sys::loopback_up().map_err(|error| format!("loopback: {error}"))?;
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let namespace = |name: &str| open(format!("/proc/self/ns/{name}").as_str(), flags, Mode::empty()).map_err(text);
    let mut fds = vec![namespace("user")?, namespace("net")?];
    fds.extend(namespaces::listen(setup).map_err(|failure| failure.reason)?);
    Ok(fds)
}

#[cfg(test)]
mod tests {
    use super::same;

    #[test]
    fn users_keep_their_numbers() {
        assert_eq!(same("         0          0 4294967295\n"), "0 0 4294967295\n");
        assert_eq!(same("0 100000 65536\n65536 7 1\n"), "0 0 65536\n65536 65536 1\n");
    }
}
