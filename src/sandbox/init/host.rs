//! Who the init serves: the host of this machine over its socket, or one elsewhere over streams (`remote`).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike};

use crate::sandbox::control::wire::{self, Reply, Request};

/// How long the host may leave replies unread.
const UNREAD: i64 = 30;

/// Something to do.
pub(super) enum Heard {
    /// A request, and its stream or standard input.
    Request(Request, Option<OwnedFd>),
    /// Nobody is there any more, and nobody will come.
    Gone,
}

/// The init's way to its host. Nothing here waits, but for a host of this machine that reads no replies.
pub(super) trait Host {
    /// What to wait for.
    fn wanted(&self) -> Vec<PollFd<'_>>;

    /// When to look without anything having come.
    fn deadline(&self) -> Option<Instant>;

    /// The next thing to do, after a wait and until there is none.
    fn hear(&mut self, ready: &[PollFlags]) -> io::Result<Option<Heard>>;

    /// Answers; `with` are the listeners of `Reply::Ready`, or the output of `Reply::Started`.
    fn reply(&mut self, reply: Reply, with: Vec<OwnedFd>) -> io::Result<()>;
}

/// A host of this machine.
pub(super) struct Socket<'a>(BorrowedFd<'a>);

impl<'a> Socket<'a> {
    pub(super) fn new(control: BorrowedFd<'a>) -> io::Result<Self> {
        setsockopt(&control, sockopt::SendTimeout, &TimeVal::seconds(UNREAD))?;
        Ok(Self(control))
    }
}

impl Host for Socket<'_> {
    fn wanted(&self) -> Vec<PollFd<'_>> {
        vec![PollFd::new(self.0, PollFlags::POLLIN)]
    }

    fn deadline(&self) -> Option<Instant> {
        None
    }

    fn hear(&mut self, ready: &[PollFlags]) -> io::Result<Option<Heard>> {
        if ready.iter().all(PollFlags::is_empty) {
            return Ok(None);
        }
        Ok(Some(match wire::receive_request(self.0)? {
            Some((request, extra)) => Heard::Request(request, extra),
            None => Heard::Gone,
        }))
    }

    fn reply(&mut self, reply: Reply, with: Vec<OwnedFd>) -> io::Result<()> {
        let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
        wire::send_reply(self.0, &reply, &with)
    }
}
