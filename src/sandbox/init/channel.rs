//! One channel of a remote host, as the descriptor that it stands for here.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{Shutdown, shutdown};
use nix::unistd::{read, write};

use crate::sandbox::control::LEFT_IN_PIPE;
use crate::sandbox::control::remote::frame::Frame;
use crate::sandbox::control::remote::{PIECE, WINDOW};
use crate::sandbox::control::wire::Reply;
use crate::sandbox::sys;

/// A stream, a connection, or the output of a command.
pub(super) struct Channel {
    number: u32,
    fd: OwnedFd,
    /// Whether more may come from here, and go there.
    reads: bool,
    writes: bool,
    /// Bytes that may still be sent to the host.
    credit: usize,
    /// What the host sent and is not written yet.
    waiting: VecDeque<Vec<u8>>,
    /// Bytes written since the host was told.
    taken: usize,
    /// Whether the host has no more.
    ended: bool,
    /// How the command ended whose output this is: told once what it had written is sent, at most so many bytes more.
    held: Option<(Reply, usize)>,
    /// Of which listener.
    pub(super) door: Option<usize>,
}

impl Channel {
    /// Of a stream or connection, or only of an output.
    pub(super) fn new(number: u32, fd: OwnedFd, writes: bool) -> io::Result<Self> {
        sys::set_nonblocking(fd.as_fd())?;
        Ok(Self {
            number,
            fd,
            reads: true,
            writes,
            credit: WINDOW,
            waiting: VecDeque::new(),
            taken: 0,
            ended: false,
            held: None,
            door: None,
        })
    }

    /// Whether nothing can pass any more.
    pub(super) fn is_over(&self) -> bool {
        !self.reads && !self.writes && self.held.is_none()
    }

    pub(super) fn wanted(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.reads && self.credit > 0);
        flags.set(PollFlags::POLLOUT, !self.waiting.is_empty());
        (!flags.is_empty()).then(|| PollFd::new(self.fd.as_fd(), flags))
    }

    /// What the host says of this channel.
    pub(super) fn hear(&mut self, frame: Frame) {
        match frame {
            Frame::Data(_, bytes) if self.writes => self.waiting.push_back(bytes),
            Frame::End(_) => self.ended = true,
            Frame::Closed(_) => {
                self.reads = false;
                let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Read);
            }
            Frame::Credit(_, bytes) => self.credit += bytes as usize,
            _ => {}
        }
    }

    /// Holds this reply back until what was written before it is sent.
    pub(super) fn hold(&mut self, reply: Reply) {
        self.held = Some((reply, LEFT_IN_PIPE));
    }

    /// Moves what can be moved at once; gives what the host is to be told, and a reply that follows that.
    pub(super) fn work(&mut self, tell: &mut Vec<Frame>) -> Option<Reply> {
        self.write(tell);
        self.read(tell)
    }

    fn write(&mut self, tell: &mut Vec<Frame>) {
        while let Some(bytes) = self.waiting.front_mut() {
            match write(&self.fd, bytes) {
                Ok(n) => {
                    self.taken += n;
                    bytes.drain(..n);
                    if bytes.is_empty() {
                        self.waiting.pop_front();
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(_) => {
                    self.waiting.clear();
                    self.writes = false;
                    tell.push(Frame::Closed(self.number));
                }
            }
        }
        if self.taken >= WINDOW / 4 && self.writes {
            tell.push(Frame::Credit(self.number, self.taken as u32));
            self.taken = 0;
        }
        if self.ended && self.writes && self.waiting.is_empty() {
            self.writes = false;
            let _ = shutdown(self.fd.as_raw_fd(), Shutdown::Write);
        }
    }

    fn read(&mut self, tell: &mut Vec<Frame>) -> Option<Reply> {
        let mut buffer = vec![0; PIECE];
        while self.reads && self.credit > 0 {
            let most = self.credit.min(buffer.len());
            match read(&self.fd, &mut buffer[..most]) {
                Ok(n) if n > 0 => {
                    self.credit -= n;
                    tell.push(Frame::Data(self.number, buffer[..n].to_vec()));
                    if let Some((_, left)) = &mut self.held {
                        *left = left.saturating_sub(n);
                        if *left == 0 {
                            return self.held.take().map(|held| held.0);
                        }
                    }
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return self.held.take().map(|held| held.0),
                Ok(_) | Err(_) => {
                    self.reads = false;
                    tell.push(Frame::End(self.number));
                }
            }
        }
        if self.reads {
            return None;
        }
        self.held.take().map(|held| held.0)
    }
}
