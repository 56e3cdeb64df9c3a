//! What a connection to a replica goes over: TCP, or TLS on it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// How a replica is spoken to.
#[derive(Clone)]
pub(super) enum Security {
    Plain,
    /// Its certificate is of this name.
    Tls(TlsConnector, ServerName<'static>),
}

impl std::fmt::Debug for Security {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Plain => "Plain",
            Self::Tls(..) => "Tls",
        })
    }
}

impl Security {
    /// TLS with a server that listens at this host and port.
    pub(super) fn tls(config: Arc<ClientConfig>, authority: &str) -> Result<Self, String> {
        let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("`{host}`: {error}"))?;
        Ok(Self::Tls(TlsConnector::from(config), name))
    }

    pub(super) async fn on(&self, stream: TcpStream) -> io::Result<Wire> {
        match self {
            Self::Plain => Ok(Wire::Plain(stream)),
            Self::Tls(connector, name) => {
                let stream = connector.connect(name.clone(), stream).await?;
                Ok(Wire::Tls(Box::new(stream)))
            }
        }
    }
}

/// A connection.
#[derive(Debug)]
pub(super) enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// The same call on whichever it is.
macro_rules! on {
    ($wire:expr, $method:ident, $($argument:expr),*) => {
        match $wire.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Wire::Tls(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_read, context, buffer)
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        on!(self, poll_write, context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        on!(self, poll_write_vectored, context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_flush, context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on!(self, poll_shutdown, context)
    }
}
