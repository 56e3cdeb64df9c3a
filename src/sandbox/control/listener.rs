//! A listener of the sandbox's, from which the host accepts: the very socket on this machine, or channels of a stream.

use std::io;
use std::os::fd::OwnedFd;

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// Where connections made inside come out.
pub(in crate::sandbox) enum Listener {
    /// Made inside, taken over by descriptor.
    Socket(OwnedFd),
    /// Accepted inside, carried here.
    Channels(mpsc::Receiver<DuplexStream>),
}

/// One connection made inside.
pub(in crate::sandbox) trait Connection: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Connection for T {}

/// A listener that is waited for.
pub(in crate::sandbox) enum Accepting {
    Socket(TcpListener),
    Channels(mpsc::Receiver<DuplexStream>),
}

impl Listener {
    pub(in crate::sandbox) fn accepting(self) -> io::Result<Accepting> {
        Ok(match self {
            Self::Socket(fd) => Accepting::Socket(TcpListener::from_std(std::net::TcpListener::from(fd))?),
            Self::Channels(channels) => Accepting::Channels(channels),
        })
    }
}

impl Accepting {
    /// The next connection.
    ///
    /// # Errors
    /// When the socket fails.
    pub(in crate::sandbox) async fn accept(&mut self) -> io::Result<Box<dyn Connection>> {
        match self {
            Self::Socket(listener) => {
                let (connection, _) = listener.accept().await?;
                let _ = connection.set_nodelay(true);
                Ok(Box::new(connection))
            }
            Self::Channels(channels) => match channels.recv().await {
                Some(connection) => Ok(Box::new(connection)),
                // The sandbox is gone; whoever waits here is about to be ended too.
                None => std::future::pending().await,
            },
        }
    }
}
