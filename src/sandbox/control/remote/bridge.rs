//! The host's end: plays the init towards [`Link`], and the host towards the init, over one stream after another.

use std::any::Any;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use nix::fcntl::OFlag;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::channels::{Channels, From};
use super::frame::{Assembly, Frame, Message};
use super::reliable::{Reliable, Stream};
use super::seal::{HELLO, Hello, Role};
use super::{CONNECTIONS, PIECE};
use crate::sandbox::control::link::{Link, PATIENCE};
use crate::sandbox::control::listener::Listener;
use crate::sandbox::control::wire::{self, Reply, Request};
use crate::sandbox::sys;

/// Time for one attempt to make a stream.
const ATTEMPT: Duration = Duration::from_secs(30);
/// How long attempts go on after a stream broke.
const AGAIN: Duration = Duration::from_mins(3);
/// Between two attempts, at most.
const PAUSE: Duration = Duration::from_secs(5);
/// How often a silent stream is asked whether it is there.
const ASK: Duration = Duration::from_secs(15);
/// A stream that is silent for so long is none.
const SILENCE: Duration = Duration::from_secs(45);
/// Time to say goodbye.
const GOODBYE: Duration = Duration::from_secs(2);
/// Bytes that are made ready to be sent at a time.
const BATCH: usize = 256 * 1024;

/// A stream to the init, and what it needs to stay.
pub(in crate::sandbox) struct Dialed {
    pub(in crate::sandbox) input: Input,
    pub(in crate::sandbox) output: Output,
    /// Held, not looked at.
    pub(in crate::sandbox) _keep: Box<dyn Any + Send>,
}

/// Why there is no stream.
#[derive(Debug)]
pub(in crate::sandbox) enum Broken {
    /// It may come again.
    Again(String),
    /// There is nobody any more.
    Gone(String),
}

/// Makes streams to one init.
#[async_trait]
pub(in crate::sandbox) trait Dial: Send + Sync + 'static {
    async fn dial(&self) -> Result<Dialed, Broken>;
}

/// What the rest of the host is given.
pub(in crate::sandbox) struct Remote {
    pub(in crate::sandbox) link: Arc<Link>,
    /// In the order in which the setup asks for them.
    pub(in crate::sandbox) listeners: Vec<Listener>,
    /// Why there is nobody any more, once that is so.
    pub(in crate::sandbox) lost: Arc<Mutex<Option<String>>>,
}

struct Bridge {
    local: AsyncFd<OwnedFd>,
    conversation: Reliable,
    channels: Channels,
    assembly: Assembly,
    doors: Vec<mpsc::Sender<DuplexStream>>,
    /// Output channels, by command.
    outputs: HashMap<u64, u32>,
    next: u32,
}

/// A stream as far as it is made: both have told their numbers.
type Greeted = (Dialed, Hello, [u8; HELLO]);
type Attempt = Pin<Box<dyn Future<Output = Result<Greeted, Broken>> + Send>>;

/// The stream that is used.
struct Present {
    dialed: Dialed,
    stream: Stream,
    out: Vec<u8>,
    heard: Instant,
}

impl Remote {
    /// Begins to dial. The init hears the setup by the link that comes back; it is asked for so many `listeners`.
    pub(in crate::sandbox) fn join(dial: Arc<dyn Dial>, listeners: usize) -> io::Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
        let (doors, listeners): (Vec<_>, Vec<_>) = (0..listeners)
            .map(|_| {
                let (door, connections) = mpsc::channel(CONNECTIONS);
                (door, Listener::Channels(connections))
            })
            .unzip();
        let lost = Arc::new(Mutex::new(None));
        let (channels, from) = Channels::new();
        let bridge = Bridge {
            local: sys::watched(ours)?,
            conversation: Reliable::new(Role::Host),
            channels,
            assembly: Assembly::default(),
            doors,
            outputs: HashMap::new(),
            next: 2,
        };
        let why = Arc::clone(&lost);
        tokio::spawn(async move {
            if let Err(reason) = bridge.run(dial, from).await {
                *why.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            }
        });
        // Whoever asks waits as long as streams are tried for.
        let link = Link::new(theirs, AGAIN + PATIENCE)?;
        Ok(Self { link, listeners, lost })
    }
}

async fn attempt(dial: Arc<dyn Dial>, pause: Duration) -> Result<Greeted, Broken> {
    tokio::time::sleep(pause).await;
    let again = |error: io::Error| Broken::Again(error.to_string());
    let greet = async {
        let mut dialed = dial.dial().await?;
        let hello = Hello::new().map_err(again)?;
        dialed.output.write_all(&hello.public).await.map_err(again)?;
        dialed.output.flush().await.map_err(again)?;
        let mut theirs = [0; HELLO];
        dialed.input.read_exact(&mut theirs).await.map_err(again)?;
        Ok((dialed, hello, theirs))
    };
    let late = |_| Broken::Again(format!("no stream within {ATTEMPT:?}"));
    tokio::time::timeout(ATTEMPT, greet).await.map_err(late)?
}

type Input = Box<dyn AsyncRead + Unpin + Send>;
type Output = Box<dyn AsyncWrite + Unpin + Send>;

async fn read(input: Option<&mut Input>, into: &mut Vec<u8>) -> io::Result<usize> {
    match input {
        Some(input) => {
            into.reserve(PIECE);
            input.read_buf(into).await
        }
        None => std::future::pending().await,
    }
}

async fn write(output: Option<&mut Output>, bytes: &[u8]) -> io::Result<usize> {
    match output {
        Some(output) if !bytes.is_empty() => output.write(bytes).await,
        _ => std::future::pending().await,
    }
}

impl Bridge {
    /// Until the host is done with the sandbox, or nobody is there.
    async fn run(mut self, dial: Arc<dyn Dial>, mut from: mpsc::UnboundedReceiver<From>) -> Result<(), String> {
        let mut attempts: Attempt = Box::pin(attempt(Arc::clone(&dial), Duration::ZERO));
        let mut present: Option<Present> = None;
        let mut alone = Instant::now();
        let mut pause = Duration::from_millis(100);
        let mut tick = tokio::time::interval(ASK);
        let mut leaving: Option<Instant> = None;
        let mut piece = Vec::with_capacity(2 * PIECE);
        loop {
            let left = leaving.unwrap_or_else(|| Instant::now() + ASK);
            let event = {
                let is_alone = present.is_none();
                let (input, output, out): (_, _, &[u8]) = match &mut present {
                    Some(Present { dialed, out, .. }) => (Some(&mut dialed.input), Some(&mut dialed.output), out),
                    None => (None, None, &[]),
                };
                tokio::select! {
                    request = receive(&self.local), if leaving.is_none() => Event::Request(request),
                    from = from.recv() => Event::From(from),
                    greeted = &mut attempts, if is_alone => Event::Greeted(greeted),
                    read = read(input, &mut piece) => Event::Read(read),
                    written = write(output, out) => Event::Written(written),
                    _ = tick.tick() => Event::Tick,
                    () = tokio::time::sleep_until(left), if leaving.is_some() => return Ok(()),
                }
            };
            let mut broken: Option<String> = None;
            match event {
                Event::Request(Ok(Some((request, extra)))) => {
                    self.request(&request, extra).map_err(|error| error.to_string())?;
                }
                Event::Request(_) => {
                    // Without a stream there is nobody to say it to; whoever made the walls removes them.
                    if present.is_none() {
                        return Ok(());
                    }
                    self.conversation.push(&Frame::Goodbye);
                    leaving = Some(Instant::now() + GOODBYE);
                }
                Event::From(Some(From::Frame(frame))) => self.conversation.push(&frame),
                Event::From(Some(From::Reply(reply))) => self.tell(&reply, &[]).await,
                Event::From(Some(From::Over(number))) => self.channels.forget(number),
                Event::From(None) => {}
                Event::Greeted(Ok((dialed, hello, theirs))) => {
                    let mut out = Vec::new();
                    match self.conversation.meet(hello, theirs, &mut out) {
                        Ok(stream) => {
                            let heard = Instant::now();
                            present = Some(Present {
                                dialed,
                                stream,
                                out,
                                heard,
                            });
                        }
                        Err(error) => broken = Some(error.to_string()),
                    }
                }
                Event::Greeted(Err(Broken::Again(reason))) => broken = Some(reason),
                Event::Greeted(Err(Broken::Gone(reason))) => return Err(reason),
                Event::Read(Ok(0)) => broken = Some("the stream ended".to_owned()),
                Event::Read(Ok(_)) => {
                    if let Some(present) = &mut present {
                        present.heard = Instant::now();
                        present.stream.buffer.append(&mut piece);
                    }
                }
                Event::Written(Ok(n)) => {
                    if let Some(present) = &mut present {
                        present.out.drain(..n);
                    }
                }
                Event::Read(Err(error)) | Event::Written(Err(error)) => broken = Some(error.to_string()),
                Event::Tick => {
                    if let Some(present) = &mut present {
                        let silent = present.heard.elapsed();
                        if silent > SILENCE {
                            broken = Some(format!("nothing came for {silent:?}"));
                        } else if present.stream.is_known && silent >= ASK {
                            Reliable::ping(&mut present.stream, &mut present.out).map_err(|error| error.to_string())?;
                        }
                    }
                }
            }
            if let (None, Some(present)) = (&broken, &mut present) {
                match self.converse(present).await {
                    Ok(()) if present.stream.is_known => {
                        alone = Instant::now();
                        pause = Duration::from_millis(100);
                    }
                    Ok(()) => {}
                    Err(error) => broken = Some(error.to_string()),
                }
                if leaving.is_some() && self.conversation.is_done() {
                    return Ok(());
                }
            }
            if let Some(reason) = broken {
                if leaving.is_some() {
                    return Ok(());
                }
                present = None;
                piece.clear();
                if alone.elapsed() > AGAIN {
                    return Err(format!("no stream to its init for {AGAIN:?}: {reason}"));
                }
                tracing::debug!(reason, "a stream to a sandbox broke; another is made");
                attempts = Box::pin(attempt(Arc::clone(&dial), pause));
                pause = (pause * 2).min(PAUSE);
            }
        }
    }

    /// Hears all that has come, and makes ready what is to be said.
    async fn converse(&mut self, present: &mut Present) -> io::Result<()> {
        while let Some(frame) = self.conversation.next(&mut present.stream)? {
            match frame {
                Frame::Piece(bytes) => drop(self.assembly.add(&bytes, false)?),
                Frame::Last(bytes) => {
                    if let Some(message) = self.assembly.add(&bytes, true)? {
                        self.reply(&message).await?;
                    }
                }
                Frame::Opened(number, door) => {
                    let (ours, theirs) = tokio::io::duplex(PIECE);
                    let (input, output) = tokio::io::split(ours);
                    self.channels.open(number, Some(input), output);
                    // One that nobody takes is closed inside too.
                    // Those of a second network follow in the same order.
                    if let Some(door) = self.doors.get(door as usize % self.doors.len().max(1)) {
                        let _ = door.try_send(theirs);
                    }
                }
                other => self.channels.hear(other),
            }
        }
        self.conversation.fill(&mut present.stream, &mut present.out, BATCH)?;
        let is_idle = present.out.is_empty();
        self.conversation
            .confirm_received(&mut present.stream, &mut present.out, is_idle)
    }

    fn request(&mut self, request: &Request, extra: Option<OwnedFd>) -> io::Result<()> {
        let (mut channel, mut text) = (0, None);
        match (request, extra) {
            (_, None) => {}
            (Request::Exec { .. }, Some(file)) => {
                let mut bytes = Vec::new();
                File::from(file).read_to_end(&mut bytes)?;
                text = Some(bytes);
            }
            (_, Some(stream)) => {
                channel = self.next;
                self.next = self.next.wrapping_add(2);
                let stream = std::os::unix::net::UnixStream::from(stream);
                stream.set_nonblocking(true)?;
                let (input, output) = UnixStream::from_std(stream)?.into_split();
                self.channels.open(channel, Some(input), output);
            }
        }
        for frame in Message::request(request, channel, text)?.frames() {
            self.conversation.push(&frame);
        }
        Ok(())
    }

    async fn reply(&mut self, message: &Message) -> io::Result<()> {
        let reply: Reply = serde_json::from_slice(&message.body)?;
        match &reply {
            Reply::Started { id } => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
                let output = pipe::Sender::from_owned_fd(write)?;
                self.channels.open(message.channel, None::<DuplexStream>, output);
                self.outputs.insert(*id, message.channel);
                self.tell(&reply, &[read.as_fd()]).await;
            }
            Reply::Exited { id, .. } => {
                let output = self.outputs.remove(id);
                self.channels.after(output, reply);
            }
            _ => self.tell(&reply, &[]).await,
        }
        Ok(())
    }

    /// Passes a reply on to the link. Where that is gone, nobody waits for it.
    async fn tell(&self, reply: &Reply, fds: &[BorrowedFd<'_>]) {
        loop {
            let Ok(mut ready) = self.local.writable().await else {
                return;
            };
            if ready
                .try_io(|local| wire::send_reply(local.as_fd(), reply, fds))
                .is_ok()
            {
                return;
            }
        }
    }
}

enum Event {
    Request(io::Result<Option<(Request, Option<OwnedFd>)>>),
    From(Option<From>),
    Greeted(Result<Greeted, Broken>),
    Read(io::Result<usize>),
    Written(io::Result<usize>),
    Tick,
}

/// The next request from the link; `None` when the host is done.
async fn receive(local: &AsyncFd<OwnedFd>) -> io::Result<Option<(Request, Option<OwnedFd>)>> {
    loop {
        let mut ready = local.readable().await?;
        if let Ok(received) = ready.try_io(|local| wire::receive_request(local.as_fd())) {
            return received;
        }
    }
}
