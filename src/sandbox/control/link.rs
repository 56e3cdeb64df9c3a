//! The host's end of the control socket: requests out, replies to whoever waits for them.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

use super::wire::{self, Reply, Request};
use crate::sandbox::sys;

/// Most replies to one request: started, exited.
const REPLIES: usize = 4;
/// How long the init may take to read a request, or to answer one that needs no work.
pub(in crate::sandbox) const PATIENCE: Duration = Duration::from_secs(30);

/// A reply and what came with it.
pub(in crate::sandbox) type Delivery = (Reply, Vec<OwnedFd>);

/// Shared by everything that talks to one init.
pub(in crate::sandbox) struct Link {
    socket: AsyncFd<OwnedFd>,
    /// `None` once the init is gone.
    waiting: Mutex<Option<HashMap<u64, mpsc::Sender<Delivery>>>>,
    next: AtomicU64,
    /// How long an answer that needs no work may take.
    pub(in crate::sandbox) patience: Duration,
}

/// Replies to one request. Dropped early, the command of that request is killed.
pub(in crate::sandbox) struct Replies {
    pub(in crate::sandbox) id: u64,
    link: Arc<Link>,
    received: mpsc::Receiver<Delivery>,
    pub(in crate::sandbox) finished: bool,
}

impl Link {
    /// Takes the socket over; `socket` is non-blocking.
    pub(in crate::sandbox) fn new(socket: OwnedFd, patience: Duration) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            socket: sys::watched(socket)?,
            waiting: Mutex::new(Some(HashMap::new())),
            next: AtomicU64::new(1),
            patience,
        }))
    }

    /// The next message; `None` when the init is gone.
    pub(in crate::sandbox) async fn receive(&self) -> io::Result<Option<Delivery>> {
        loop {
            let mut ready = self.socket.readable().await?;
            if let Ok(message) = ready.try_io(|socket| wire::receive_reply(socket.as_fd())) {
                return message;
            }
        }
    }

    /// Delivers replies until the init is gone; then nobody waits any longer.
    pub(in crate::sandbox) async fn deliver(self: Arc<Self>) {
        while let Ok(Some((reply, fds))) = self.receive().await {
            let id = match &reply {
                Reply::Started { id } | Reply::Exited { id, .. } | Reply::Done { id, .. } | Reply::Error { id, .. } => {
                    *id
                }
                Reply::Ready { .. } | Reply::Failed { .. } => continue,
            };
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(receiver) = waiting.as_ref().and_then(|waiting| waiting.get(&id)) {
                // A full queue means more replies than the protocol has; the receiver is told by its end.
                let _ = receiver.try_send((reply, fds));
            }
        }
        *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Sends a request within `PATIENCE`.
    pub(in crate::sandbox) async fn send(&self, request: &Request, extra: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let extra = extra.map(|fd| fd.try_clone_to_owned()).transpose()?;
        let send = async {
            loop {
                let mut ready = self.socket.writable().await?;
                let extra = extra.as_ref().map(AsFd::as_fd);
                if let Ok(sent) = ready.try_io(|socket| wire::send_request(socket.as_fd(), request, extra)) {
                    return sent;
                }
            }
        };
        tokio::time::timeout(PATIENCE, send)
            .await
            .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Sends the request that `make` builds for a new number; `None` when the init is gone.
    pub(in crate::sandbox) async fn request(
        self: &Arc<Self>,
        make: impl FnOnce(u64) -> Request,
        extra: Option<BorrowedFd<'_>>,
    ) -> Option<io::Result<Replies>> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, received) = mpsc::channel(REPLIES);
        self.waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()?
            .insert(id, sender);
        let replies = Replies {
            id,
            link: Arc::clone(self),
            received,
            finished: false,
        };
        Some(self.send(&make(id), extra).await.map(|()| replies))
    }

    /// Closes both directions: the init ends, and everything inside with it.
    pub(in crate::sandbox) fn close(&self) {
        // Closed already is closed.
        let _ = shutdown(self.socket.as_raw_fd(), Shutdown::Both);
    }
}

impl Replies {
    /// The next reply; `None` when the init is gone or silent for `patience`.
    pub(in crate::sandbox) async fn next(&mut self, patience: Duration) -> io::Result<Delivery> {
        match tokio::time::timeout(patience, self.received.recv()).await {
            Ok(Some(delivery)) => Ok(delivery),
            Ok(None) => Err(io::ErrorKind::BrokenPipe.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if let Some(waiting) = self
            .link
            .waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_mut()
        {
            waiting.remove(&self.id);
        }
        if !self.finished {
            // Nobody waits for the command any more. Should the socket be full, its own time-out ends it.
            let _ = wire::send_request(self.link.socket.as_fd(), &Request::Kill { id: self.id }, None);
        }
    }
}
