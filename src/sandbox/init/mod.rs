//! The process that a sandbox lives in: `lego __sandbox-init`, its control socket on descriptor 0.
//!
//! It must run before any thread exists (a threaded process may not unshare a user namespace). An outer
//! process stays on the host side and watches two things: when `lego` ends in any way, or the inner one
//! does, everything inside is killed. The inner one is process 1 of its own namespace.

mod channel;
mod command;
mod confine;
mod container;
mod folders;
mod host;
mod listing;
mod namespaces;
mod nowhere;
mod processes;
mod relay;
mod remote;
mod root;
mod serve;
mod user;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;

use super::control::wire::{self, Mode, Reply, Request, Setup};
use super::sys;

pub(super) use container::Described;

/// Why a sandbox could not be built.
#[derive(Debug)]
pub(super) struct Failure {
    reason: String,
    /// The system does not allow it, as opposed to: this one went wrong.
    refused: bool,
}

impl Failure {
    fn new(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self {
            reason: format!("{what}: {error}"),
            refused: false,
        }
    }

    fn refused(what: impl std::fmt::Display, error: impl std::fmt::Display) -> Self {
        Self {
            reason: format!("{what}: {error}"),
            refused: true,
        }
    }
}

/// Name of the hidden subcommand that [`init_main`] implements.
pub const INIT_COMMAND: &str = "__sandbox-init";

/// First argument of process 1 of a container whose host is elsewhere.
pub(super) const REMOTE: &str = "--remote";
/// Joins its standard streams to that process's socket, for as long as both are there.
pub(super) const RELAY: &str = "--relay";
/// Copies this executable and what it needs to a folder.
pub(super) const UNPACK: &str = "--unpack";
/// Prints what the image says of the commands in it.
pub(super) const DESCRIBE: &str = "--describe";

/// Entry of the hidden subcommand; `args` are those after its name: none, its control socket being descriptor 0; the
/// path of the socket at which the host waits, for process 1 of a container; or one of the words above.
///
/// Serves until its control socket closes. Failures travel over that socket, never to a terminal.
pub fn init_main(args: &[OsString]) -> ExitCode {
    let served = match args {
        [] => run(),
        [word] if word == REMOTE => container::run_remote(),
        [word] if word == RELAY => relay::run(),
        [word] if word == DESCRIBE => container::describe(),
        [word, folder] if word == UNPACK => super::runtime::unpack(Path::new(folder)),
        [socket, ..] => container::run(Path::new(socket)),
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(_gone) => ExitCode::FAILURE,
    }
}

fn run() -> io::Result<()> {
    let host = sys::pidfd(nix::unistd::getppid().as_raw())?;
    let control = sys::take_stdin()?;
    let Some((Request::Setup(mut setup), _)) = wire::receive_request(control.as_fd())? else {
        return Ok(());
    };
    let outcome = match setup.mode {
        Mode::Namespaces => match namespaces::enter(&mut setup) {
            Ok(()) => return in_namespaces(&setup, &host, control),
            Err(failure) => Err(failure),
        },
        Mode::Weak => confined(&setup, &host, &control),
        Mode::Container => Err(Failure::new("setup", "a container's, outside of one")),
    };
    report(&control, outcome)
}

fn report(control: &OwnedFd, outcome: Result<(), Failure>) -> io::Result<()> {
    match outcome {
        Ok(()) => Ok(()),
        Err(Failure { reason, refused }) => wire::send_reply(control.as_fd(), &Reply::Failed { reason, refused }, &[]),
    }
}

fn in_namespaces(setup: &Setup, host: &OwnedFd, control: OwnedFd) -> io::Result<()> {
    match sys::fork()? {
        nix::unistd::ForkResult::Child => {
            let told = report(&control, inner(setup, &control));
            sys::exit_now(i32::from(told.is_err()))
        }
        nix::unistd::ForkResult::Parent { child } => {
            // The host learns of the inner one's end by the last copy of the socket closing.
            drop(control);
            namespaces::watch(host, child)
        }
    }
}

fn inner(setup: &Setup, control: &OwnedFd) -> Result<(), Failure> {
    sys::loopback_up().map_err(|error| Failure::refused("loopback", error))?;
    let listeners = namespaces::listen(setup)?;
    root::build(setup)?;
    let fence = confine::Fence::namespaces(setup)?;
    let mut host = host::Socket::new(control.as_fd()).map_err(|error| Failure::new("control", error))?;
    serve::serve(setup, fence, &mut host, listeners, None)
}

fn confined(setup: &Setup, host: &OwnedFd, control: &OwnedFd) -> Result<(), Failure> {
    namespaces::leave_root()?;
    nix::sys::prctl::set_child_subreaper(true).map_err(|error| Failure::new("subreaper", error))?;
    let fence = confine::Fence::weak(setup)?;
    let mut control = host::Socket::new(control.as_fd()).map_err(|error| Failure::new("control", error))?;
    serve::serve(setup, fence, &mut control, Vec::new(), Some(host.as_fd()))
}
