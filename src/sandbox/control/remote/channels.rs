//! The host's side of channels: each a task that moves bytes between the stream and what the rest of the host reads
//! and writes, no faster than that does.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::frame::Frame;
use super::{PIECE, WINDOW};
use crate::sandbox::control::wire::Reply;

/// What a channel's task is given, in order.
enum Item {
    Data(Vec<u8>),
    End,
    /// Passed on when all before it has been.
    Reply(Reply),
}

/// What comes from channels to whoever holds the stream.
pub(super) enum From {
    /// To be sent.
    Frame(Frame),
    /// To be passed on to who waits for it.
    Reply(Reply),
    /// Nothing passes through this channel any more.
    Over(u32),
}

struct Channel {
    items: mpsc::UnboundedSender<Item>,
    /// Bytes that may be sent.
    credit: Arc<Semaphore>,
    /// Whether the other end takes no more.
    closed: CancellationToken,
}

/// All of one sandbox. Their tasks end with it.
pub(super) struct Channels {
    open: HashMap<u32, Channel>,
    tasks: JoinSet<()>,
    from: mpsc::UnboundedSender<From>,
}

impl Channels {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<From>) {
        let (from, received) = mpsc::unbounded_channel();
        let channels = Self {
            open: HashMap::new(),
            tasks: JoinSet::new(),
            from,
        };
        (channels, received)
    }

    /// A channel whose bytes go to `output`, and whose own come from `input` where it has one.
    pub(super) fn open<R, W>(&mut self, number: u32, input: Option<R>, output: W)
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let (items, received) = mpsc::unbounded_channel();
        let credit = Arc::new(Semaphore::new(WINDOW));
        while self.tasks.try_join_next().is_some() {}
        let closed = CancellationToken::new();
        let (from, may_send, stop) = (self.from.clone(), Arc::clone(&credit), closed.clone());
        self.tasks.spawn(async move {
            let sending = async {
                if let Some(input) = input {
                    stop.run_until_cancelled(send(number, input, &may_send, &from)).await;
                }
            };
            tokio::join!(sending, take(number, received, output, &from));
            let _ = from.send(From::Over(number));
        });
        self.open.insert(number, Channel { items, credit, closed });
    }

    /// What the other end says of a channel. One that is over hears nothing.
    pub(super) fn hear(&mut self, frame: Frame) {
        let (number, item) = match frame {
            Frame::Data(number, bytes) => (number, Item::Data(bytes)),
            Frame::End(number) => (number, Item::End),
            Frame::Closed(number) => {
                if let Some(channel) = self.open.get(&number) {
                    channel.closed.cancel();
                }
                return;
            }
            Frame::Credit(number, bytes) => {
                if let Some(channel) = self.open.get(&number) {
                    channel.credit.add_permits(bytes as usize);
                }
                return;
            }
            _ => return,
        };
        if let Some(channel) = self.open.get(&number) {
            let _ = channel.items.send(item);
        }
    }

    /// Passes a reply on once the bytes before it have been; at once where there is no such channel.
    pub(super) fn after(&self, number: Option<u32>, reply: Reply) {
        let channel = number.and_then(|number| self.open.get(&number));
        let sent = channel.map(|channel| channel.items.send(Item::Reply(reply.clone())));
        if matches!(sent, Some(Ok(()))) {
            return;
        }
        let _ = self.from.send(From::Reply(reply));
    }

    pub(super) fn forget(&mut self, number: u32) {
        self.open.remove(&number);
    }
}

/// Sends what comes from `input`, as far as the other end takes it.
async fn send(number: u32, mut input: impl AsyncRead + Unpin, credit: &Semaphore, from: &mpsc::UnboundedSender<From>) {
    let mut buffer = vec![0; PIECE];
    loop {
        let read = input.read(&mut buffer).await;
        let Ok(n @ 1..) = read else { break };
        let Ok(permit) = credit.acquire_many(n as u32).await else {
            return;
        };
        permit.forget();
        let _ = from.send(From::Frame(Frame::Data(number, buffer[..n].to_vec())));
    }
    let _ = from.send(From::Frame(Frame::End(number)));
}

/// Writes what comes to `output`; replies are passed on in their place.
async fn take(
    number: u32,
    mut items: mpsc::UnboundedReceiver<Item>,
    mut output: impl AsyncWrite + Unpin,
    from: &mpsc::UnboundedSender<From>,
) {
    let (mut taken, mut is_open) = (0, true);
    while let Some(item) = items.recv().await {
        match item {
            Item::Data(bytes) if is_open => {
                let written: io::Result<()> = async {
                    output.write_all(&bytes).await?;
                    output.flush().await
                }
                .await;
                if written.is_err() {
                    is_open = false;
                    let _ = from.send(From::Frame(Frame::Closed(number)));
                }
                taken += bytes.len();
                if taken >= WINDOW / 4 && is_open {
                    let _ = from.send(From::Frame(Frame::Credit(number, taken as u32)));
                    taken = 0;
                }
            }
            Item::Data(_) => {}
            Item::Reply(reply) => drop(from.send(From::Reply(reply))),
            Item::End => break,
        }
    }
    let _ = output.shutdown().await;
    // What is held back for this channel is not lost with it.
    items.close();
    while let Some(item) = items.recv().await {
        if let Item::Reply(reply) = item {
            let _ = from.send(From::Reply(reply));
        }
    }
}
