//! A host elsewhere: streams to a socket of this network, of which the newest that knows the key is used.
//!
//! Anyone inside may connect to that socket; nothing that they say is taken for the host's. Streams come and go, the
//! conversation and the commands go on. What it must not do: wait, for it runs in the init's only thread.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, UnixAddr, accept4, bind, listen, shutdown, socket,
};
use nix::unistd::{read, write};

use super::channel::Channel;
use super::host::{Heard, Host};
use crate::sandbox::control::remote::frame::{Assembly, Frame, Message};
use crate::sandbox::control::remote::reliable::{Reliable, Stream};
use crate::sandbox::control::remote::seal::{HELLO, Hello, Role};
use crate::sandbox::control::remote::{CONNECTIONS, ORPHANED};
use crate::sandbox::control::wire::{Reply, Request};
use crate::sandbox::sys;

/// Streams that have not shown the key yet; the oldest makes room.
const UNKNOWN: usize = 8;
/// Time for that.
const SHOWN: Duration = Duration::from_secs(20);
/// A stream on which nothing came for so long is none: its host asks more often than that whether we are there.
const QUIET: Duration = Duration::from_mins(3);
/// Bytes that are read or made ready to be sent at a time.
const BATCH: usize = 256 * 1024;

/// One stream.
struct Peer {
    socket: OwnedFd,
    since: Instant,
    /// This end's number, until the other's has come.
    hello: Option<Hello>,
    heard: Vec<u8>,
    stream: Option<Stream>,
    out: Vec<u8>,
    /// When something came last.
    last: Instant,
    /// Whether nothing more will come.
    ended: bool,
}

/// A listener for the host, and how many connections it has.
struct Door {
    listener: OwnedFd,
    open: usize,
}

/// The host.
pub(super) struct Remote {
    listener: OwnedFd,
    conversation: Reliable,
    unknown: Vec<Peer>,
    peer: Option<Peer>,
    /// Since when nobody has been there.
    alone: Instant,
    assembly: Assembly,
    channels: BTreeMap<u32, Channel>,
    /// Output channels, by command.
    outputs: BTreeMap<u64, u32>,
    doors: Vec<Door>,
    next: u32,
    /// Whether something can be done without waiting.
    is_due: bool,
    said_goodbye: bool,
}

impl Remote {
    /// Listens at this name in the network that the process is in.
    pub(super) fn listen(name: &str) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
        bind(listener.as_raw_fd(), &UnixAddr::new_abstract(name.as_bytes())?)?;
        listen(&listener, Backlog::new(UNKNOWN as i32)?)?;
        Ok(Self {
            listener,
            conversation: Reliable::new(Role::Init),
            unknown: Vec::new(),
            peer: None,
            alone: Instant::now(),
            assembly: Assembly::default(),
            channels: BTreeMap::new(),
            outputs: BTreeMap::new(),
            doors: Vec::new(),
            next: 1,
            is_due: false,
            said_goodbye: false,
        })
    }

    fn number(&mut self) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(2);
        number
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(socket) = accept(&self.listener) {
            if self.unknown.len() == UNKNOWN {
                self.unknown.remove(0);
            }
            let hello = Hello::new()?;
            self.unknown.push(Peer {
                socket,
                since: Instant::now(),
                out: hello.public.to_vec(),
                hello: Some(hello),
                heard: Vec::new(),
                stream: None,
                last: Instant::now(),
                ended: false,
            });
        }
        for mut peer in std::mem::take(&mut self.unknown) {
            match peer.meet(&mut self.conversation) {
                Ok(true) => {
                    self.lose();
                    self.peer = Some(peer);
                }
                Ok(false) if peer.since.elapsed() < SHOWN => self.unknown.push(peer),
                // Whoever it was, it was not the host.
                Ok(false) | Err(_) => {}
            }
        }
        Ok(())
    }

    fn lose(&mut self) {
        if let Some(old) = self.peer.take() {
            // A child may hold a copy of the descriptor: the connection itself is ended.
            let _ = shutdown(old.socket.as_raw_fd(), Shutdown::Both);
            self.alone = Instant::now();
        }
    }

    /// The next request, if one has come whole.
    fn request(&mut self) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
        loop {
            let Some(stream) = self.peer.as_mut().and_then(|peer| peer.stream.as_mut()) else {
                return Ok(None);
            };
            let frame = match self.conversation.next(stream) {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(None),
                Err(_) => {
                    self.lose();
                    return Ok(None);
                }
            };
            let whole = match frame {
                Frame::Piece(bytes) => self.assembly.add(&bytes, false)?,
                Frame::Last(bytes) => self.assembly.add(&bytes, true)?,
                Frame::Goodbye => {
                    self.said_goodbye = true;
                    return Ok(None);
                }
                Frame::Data(number, _) | Frame::End(number) | Frame::Closed(number) | Frame::Credit(number, _) => {
                    if let Some(channel) = self.channels.get_mut(&number) {
                        channel.hear(frame);
                    }
                    None
                }
                Frame::Opened(..) | Frame::Received(_) | Frame::Ping => None,
            };
            if let Some(message) = whole {
                return self.take(message).map(Some);
            }
        }
    }

    fn take(&mut self, message: Message) -> io::Result<(Request, Option<OwnedFd>)> {
        let request = serde_json::from_slice(&message.body)?;
        let extra = if message.channel != 0 {
            let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
            let channel = Channel::new(message.channel, ours.into(), true)?;
            self.channels.insert(message.channel, channel);
            Some(theirs.into())
        } else {
            message.text.map(|text| sys::memory_file(&text)).transpose()?
        };
        Ok((request, extra))
    }

    fn move_channels(&mut self) -> io::Result<()> {
        let mut tell = Vec::new();
        let mut replies = Vec::new();
        for channel in self.channels.values_mut() {
            if let Some(reply) = channel.work(&mut tell) {
                tell.drain(..).for_each(|frame| self.conversation.push(&frame));
                replies.extend(Message::reply(&reply, 0)?.frames());
                replies.drain(..).for_each(|frame| self.conversation.push(&frame));
            }
        }
        for frame in &tell {
            self.conversation.push(frame);
        }
        let doors = &mut self.doors;
        self.channels.retain(|_, channel| {
            if let (true, Some(door)) = (channel.is_over(), channel.door) {
                doors[door].open -= 1;
            }
            !channel.is_over()
        });
        let channels = &self.channels;
        self.outputs.retain(|_, number| channels.contains_key(number));
        for at in 0..self.doors.len() {
            while self.doors[at].open < CONNECTIONS
                && let Some(connection) = accept(&self.doors[at].listener)
            {
                let number = self.number();
                let mut channel = Channel::new(number, connection, true)?;
                channel.door = Some(at);
                self.doors[at].open += 1;
                self.channels.insert(number, channel);
                self.conversation.push(&Frame::Opened(number, at as u32));
                self.is_due = true;
            }
        }
        Ok(())
    }

    fn send(&mut self) {
        let Some(peer) = self.peer.as_mut() else { return };
        if peer.send(&mut self.conversation).is_err() {
            self.lose();
        }
    }
}

impl Peer {
    /// Reads what has come.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let into = match &mut self.stream {
                Some(stream) => &mut stream.buffer,
                None => &mut self.heard,
            };
            if into.len() >= BATCH {
                return Ok(());
            }
            match read(&self.socket, &mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    into.extend_from_slice(&buffer[..n]);
                    self.last = Instant::now();
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether the other end has shown the key.
    fn meet(&mut self, conversation: &mut Reliable) -> io::Result<bool> {
        self.read()?;
        if self.hello.is_some()
            && let Some(theirs) = self.heard.first_chunk::<HELLO>().copied()
            && let Some(hello) = self.hello.take()
        {
            let mut stream = conversation.meet(hello, theirs, &mut self.out)?;
            stream.buffer = self.heard.split_off(HELLO);
            self.stream = Some(stream);
        }
        self.write()?;
        let Some(stream) = &mut self.stream else {
            return Ok(false);
        };
        conversation.greet(stream)
    }

    fn write(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match write(&self.socket, &self.out) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(Errno::EAGAIN) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn send(&mut self, conversation: &mut Reliable) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        conversation.confirm_received(stream, &mut self.out, true)?;
        loop {
            let Some(stream) = &mut self.stream else { return Ok(()) };
            conversation.fill(stream, &mut self.out, BATCH)?;
            if self.out.is_empty() {
                return Ok(());
            }
            self.write()?;
            if !self.out.is_empty() {
                return Ok(());
            }
        }
    }

    fn wanted(&self) -> PollFd<'_> {
        let mut flags = PollFlags::POLLIN;
        flags.set(PollFlags::POLLOUT, !self.out.is_empty());
        PollFd::new(self.socket.as_fd(), flags)
    }
}

fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    accept4(listener.as_raw_fd(), flags).ok().map(sys::own)
}

impl Host for Remote {
    fn wanted(&self) -> Vec<PollFd<'_>> {
        let mut wanted = vec![PollFd::new(self.listener.as_fd(), PollFlags::POLLIN)];
        wanted.extend(self.unknown.iter().chain(&self.peer).map(Peer::wanted));
        wanted.extend(self.channels.values().filter_map(Channel::wanted));
        let open = self.doors.iter().filter(|door| door.open < CONNECTIONS);
        wanted.extend(open.map(|door| PollFd::new(door.listener.as_fd(), PollFlags::POLLIN)));
        wanted
    }

    fn deadline(&self) -> Option<Instant> {
        if self.is_due {
            return Some(Instant::now());
        }
        let shown = self.unknown.iter().map(|peer| peer.since + SHOWN);
        let end = match &self.peer {
            Some(peer) => peer.last + QUIET,
            None => self.alone + ORPHANED,
        };
        shown.chain([end]).min()
    }

    fn hear(&mut self, _ready: &[PollFlags]) -> io::Result<Option<Heard>> {
        self.is_due = false;
        self.accept()?;
        if let Some(peer) = &mut self.peer {
            peer.ended |= peer.read().is_err() || peer.last.elapsed() >= QUIET;
        }
        let request = self.request()?;
        if request.is_some() {
            self.is_due = true;
        } else if self.peer.as_ref().is_some_and(|peer| peer.ended) {
            // What came before its end has been heard.
            self.lose();
        }
        self.move_channels()?;
        self.send();
        if self.said_goodbye || (self.peer.is_none() && self.alone.elapsed() >= ORPHANED) {
            return Ok(Some(Heard::Gone));
        }
        Ok(request.map(|(request, extra)| Heard::Request(request, extra)))
    }

    fn reply(&mut self, reply: Reply, with: Vec<OwnedFd>) -> io::Result<()> {
        self.is_due = true;
        let mut channel = 0;
        match &reply {
            Reply::Ready { .. } => self.doors = with.into_iter().map(|listener| Door { listener, open: 0 }).collect(),
            Reply::Started { id } => {
                for output in with {
                    channel = self.number();
                    self.channels.insert(channel, Channel::new(channel, output, false)?);
                    self.outputs.insert(*id, channel);
                }
            }
            Reply::Exited { id, .. } => {
                if let Some(channel) = self.outputs.get(id).and_then(|number| self.channels.get_mut(number)) {
                    channel.hold(reply);
                    return Ok(());
                }
            }
            _ => {}
        }
        for frame in Message::reply(&reply, channel)?.frames() {
            self.conversation.push(&frame);
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "remote_tests.rs"]
mod tests;
