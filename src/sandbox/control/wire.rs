//! What the host and the init say to each other: one datagram per message, descriptors beside it.
//!
//! Requests carry their body in an anonymous file (a command line can be larger than a datagram);
//! replies are small and inline. Both ends are ours; nothing inside the sandbox can reach the socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::sandbox::sys;

/// Largest reply.
const DATAGRAM: usize = 16 * 1024;
/// Largest request: a command line, its environment and its text.
const BODY: u64 = 64 * 1024 * 1024;

/// What the init makes around the commands: namespaces, as good a fence as there is without, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sandbox) enum Mode {
    Namespaces,
    Weak,
    /// The init is process 1 of a container that somebody else has made.
    Container,
}

/// A host folder and where it appears inside.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sandbox) struct Mount {
    pub(in crate::sandbox) from: PathBuf,
    pub(in crate::sandbox) at: PathBuf,
}

/// The first message: everything the init needs to build the sandbox.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::sandbox) struct Setup {
    pub(in crate::sandbox) name: String,
    pub(in crate::sandbox) mode: Mode,
    /// The sandbox's host folder.
    pub(in crate::sandbox) scratch: PathBuf,
    /// Lower folder of an overlay; `None` where the folder was copied.
    pub(in crate::sandbox) lower: Option<PathBuf>,
    pub(in crate::sandbox) workdir: String,
    /// Host folders that appear inside, read-only.
    pub(in crate::sandbox) read_only: Vec<Mount>,
    /// Ports of loopback inside on which the init listens for the host.
    pub(in crate::sandbox) listen: Vec<u16>,
    /// Whether a second network is made that leads nowhere, with the same listeners, for commands that are to be there.
    pub(in crate::sandbox) nowhere: bool,
    /// The host's port to which connections stay allowed without namespaces.
    pub(in crate::sandbox) proxy_port: Option<u16>,
    /// Who commands run as that name nobody; `None` is the init's own user.
    pub(in crate::sandbox) user: Option<String>,
    pub(in crate::sandbox) memory: Option<u64>,
    pub(in crate::sandbox) pids: Option<u32>,
    pub(in crate::sandbox) disk: Option<u64>,
    pub(in crate::sandbox) lifetime_ms: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(in crate::sandbox) enum Request {
    Setup(Box<Setup>),
    /// Descriptor 1, where there is one, is its standard input.
    Exec {
        id: u64,
        argv: Vec<String>,
        env: BTreeMap<String, String>,
        cwd: String,
        /// `None` is the setup's.
        user: Option<String>,
        timeout_ms: u64,
        /// Whether it runs in the network that leads nowhere.
        nowhere: bool,
    },
    /// Ends one command and all that it started.
    Kill {
        id: u64,
    },
    /// Descriptor 1 is a stream that carries a tree to `path` below `base`.
    Receive {
        id: u64,
        base: PathBuf,
        path: PathBuf,
    },
    /// Descriptor 1 is a stream that wants the tree at `path` below `base`.
    Send {
        id: u64,
        base: PathBuf,
        path: PathBuf,
    },
    /// Descriptor 1 is a stream that wants these entries of the folder at `path` below `base`; no link is followed.
    SendEntries {
        id: u64,
        base: PathBuf,
        path: PathBuf,
        entries: Vec<String>,
    },
    /// Descriptor 1 takes what is below `path`, as [`super::listing`] writes it.
    List {
        id: u64,
        path: PathBuf,
        /// Only files that changed since the init began to serve; of those no content is read.
        changed: bool,
    },
    EndProcesses {
        id: u64,
    },
    ResetDir {
        id: u64,
        path: PathBuf,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sandbox) enum Reply {
    /// Comes with the listeners that were asked for, in that order; those of the second network behind them.
    Ready {
        landlock: bool,
        /// Why there is no second network, where one was asked for.
        open: Option<String>,
    },
    /// The sandbox could not be built; `refused` where the system does not allow such a sandbox.
    Failed {
        reason: String,
        refused: bool,
    },
    /// Comes with the reading end of the command's output.
    Started {
        id: u64,
    },
    Exited {
        id: u64,
        code: i32,
        timed_out: bool,
        out_of_memory: bool,
    },
    Done {
        id: u64,
        count: usize,
    },
    Error {
        id: u64,
        reason: String,
    },
}

fn invalid(error: serde_json::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let raw: Vec<i32> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let control = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage<'_>] = if raw.is_empty() { &[] } else { &control };
    sendmsg::<()>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        control,
        MsgFlags::MSG_NOSIGNAL,
        None,
    )?;
    Ok(())
}

fn receive_bytes(socket: BorrowedFd<'_>, flags: MsgFlags) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; DATAGRAM];
    let mut space = nix::cmsg_space!([i32; 8]);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let message = recvmsg::<()>(
        socket.as_raw_fd(),
        &mut parts,
        Some(&mut space),
        flags | MsgFlags::MSG_CMSG_CLOEXEC,
    )?;
    let length = message.bytes;
    let mut fds = Vec::new();
    for part in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(raw) = part {
            fds.extend(raw.into_iter().map(sys::own));
        }
    }
    if length == 0 {
        return Ok(None);
    }
    bytes.truncate(length);
    Ok(Some((bytes, fds)))
}

/// Sends a request; `extra` is its stream or standard input.
pub(in crate::sandbox) fn send_request(
    socket: BorrowedFd<'_>,
    request: &Request,
    extra: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let body = sys::memory_file(&serde_json::to_vec(request).map_err(invalid)?)?;
    let mut fds = vec![body.as_fd()];
    fds.extend(extra);
    send_bytes(socket, b"r", &fds)
}

/// The next request and its extra descriptor; `None` when the host is gone.
pub(in crate::sandbox) fn receive_request(socket: BorrowedFd<'_>) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    let Some((_, fds)) = receive_bytes(socket, MsgFlags::empty())? else {
        return Ok(None);
    };
    let mut fds = fds.into_iter();
    let body = fds
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a request without a body"))?;
    Ok(Some((parse(body)?, fds.next())))
}

fn parse<T: DeserializeOwned>(body: OwnedFd) -> io::Result<T> {
    let file = File::from(body);
    let length = file.metadata()?.len();
    if length > BODY {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("a request of {length} bytes"),
        ));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, 0)?;
    serde_json::from_slice(&bytes).map_err(invalid)
}

/// Sends a reply with its descriptors.
pub(in crate::sandbox) fn send_reply(socket: BorrowedFd<'_>, reply: &Reply, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(reply).map_err(invalid)?;
    send_bytes(socket, &bytes, fds)
}

/// The next reply and its descriptors, without waiting; `None` when the init is gone.
pub(in crate::sandbox) fn receive_reply(socket: BorrowedFd<'_>) -> io::Result<Option<(Reply, Vec<OwnedFd>)>> {
    let Some((bytes, fds)) = receive_bytes(socket, MsgFlags::MSG_DONTWAIT)? else {
        return Ok(None);
    };
    Ok(Some((serde_json::from_slice(&bytes).map_err(invalid)?, fds)))
}
