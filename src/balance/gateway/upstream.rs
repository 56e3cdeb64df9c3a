//! Connections to one replica, kept for the next request.
//!
//! A connection is driven by the task of the request that uses it, and by none while it is idle: nothing is handed from task
//! to task, which is most of what a byte costs on its way.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes};
use axum::http::{Request, Response};
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::wire::{Security, Wire};

/// Idle connections that are kept.
const KEPT: usize = 512;
/// Time for which an idle one is kept: shorter than servers do.
const IDLE: Duration = Duration::from_secs(4);

type Driver = Connection<TokioIo<Wire>, Body>;

/// Where a replica listens.
#[derive(Debug)]
pub(super) struct Upstream {
    /// Host and port.
    pub(super) authority: String,
    /// What stands before every path.
    pub(super) base: String,
    security: Security,
    idle: Mutex<Vec<(Link, Instant)>>,
}

struct Link {
    sender: SendRequest<Body>,
    driver: Driver,
    /// The driver has come to its end.
    closed: bool,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}

impl Link {
    /// Does what can be done now.
    fn drive(&mut self, context: &mut Context<'_>) {
        if !self.closed && Pin::new(&mut self.driver).poll(context).is_ready() {
            self.closed = true;
        }
    }
}

/// Why a replica did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("no connection over TLS: {0} (an authority that the system does not know is named by `--ca-file`)")]
    Tls(io::Error),
    #[error("no connection within {0:?}")]
    ConnectTimeout(Duration),
    #[error("the connection broke: {error}")]
    Broken {
        error: hyper::Error,
        /// Whether requests had been sent over it before: its server may have closed it because it was idle.
        was_kept: bool,
    },
}

impl Upstream {
    pub(super) fn new(authority: String, base: String, security: Security) -> Arc<Self> {
        Arc::new(Self {
            authority,
            base,
            security,
            idle: Mutex::default(),
        })
    }

    /// The same replica, by connections of its own.
    pub(super) fn apart(&self) -> Arc<Self> {
        Self::new(self.authority.clone(), self.base.clone(), self.security.clone())
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Link, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets idle connections: their server is gone.
    pub(super) fn forget(&self) {
        self.idle().clear();
    }

    /// One that is idle and was not closed by the other end.
    fn kept(&self) -> Option<Link> {
        let mut context = Context::from_waker(Waker::noop());
        loop {
            let (mut link, since) = self.idle().pop()?;
            if since.elapsed() > IDLE {
                continue;
            }
            link.drive(&mut context);
            if !link.closed && link.sender.is_ready() {
                return Some(link);
            }
        }
    }

    async fn connect(&self, patience: Duration) -> Result<Link, LinkError> {
        let connected = async {
            let stream = TcpStream::connect(&self.authority).await.map_err(LinkError::Connect)?;
            stream.set_nodelay(true).map_err(LinkError::Connect)?;
            self.security.on(stream).await.map_err(LinkError::Tls)
        };
        let stream = tokio::time::timeout(patience, connected)
            .await
            .map_err(|_| LinkError::ConnectTimeout(patience))??;
        let (sender, driver) = handshake(TokioIo::new(stream))
            .await
            .map_err(|error| broken(error, false))?;
        Ok(Link {
            sender,
            driver,
            closed: false,
        })
    }

    /// Sends a request, and waits for the head of its answer.
    pub(super) async fn send(
        self: &Arc<Self>,
        request: Request<Body>,
        patience: Duration,
        fresh: bool,
    ) -> Result<Response<Answer>, LinkError> {
        let kept = if fresh { None } else { self.kept() };
        let was_kept = kept.is_some();
        let mut link = match kept {
            Some(link) => link,
            None => self.connect(patience).await?,
        };
        let response = {
            let mut sent = std::pin::pin!(link.sender.send_request(request));
            let (driver, closed) = (&mut link.driver, &mut link.closed);
            poll_fn(|context| {
                if !*closed && Pin::new(&mut *driver).poll(context).is_ready() {
                    *closed = true;
                }
                sent.as_mut().poll(context)
            })
            .await
            .map_err(|error| broken(error, was_kept))?
        };
        let upstream = Arc::clone(self);
        Ok(response.map(|body| Answer {
            body,
            link: Some(link),
            upstream,
        }))
    }
}

fn broken(error: hyper::Error, was_kept: bool) -> LinkError {
    LinkError::Broken { error, was_kept }
}

/// The body of an answer, which drives its connection and gives it back at its end.
#[derive(Debug)]
pub(super) struct Answer {
    body: Incoming,
    link: Option<Link>,
    upstream: Arc<Upstream>,
}

impl Answer {
    pub(super) fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut polled = Pin::new(&mut self.body).poll_frame(context);
        if polled.is_pending()
            && let Some(link) = &mut self.link
        {
            link.drive(context);
            polled = Pin::new(&mut self.body).poll_frame(context);
        }
        match &polled {
            Poll::Ready(None) => self.give_back(context),
            Poll::Ready(Some(Ok(_))) if self.body.is_end_stream() => self.give_back(context),
            _ => {}
        }
        polled
    }

    fn give_back(&mut self, context: &mut Context<'_>) {
        let Some(mut link) = self.link.take() else { return };
        link.drive(context);
        if !link.closed && link.sender.is_ready() {
            let mut idle = self.upstream.idle();
            if idle.len() < KEPT {
                idle.push((link, Instant::now()));
            }
        }
    }

    /// All of it, at most so many bytes.
    pub(super) async fn collect(&mut self, most: usize) -> Result<Collected, hyper::Error> {
        let mut parts: Vec<Bytes> = Vec::new();
        let mut length = 0;
        while let Some(frame) = poll_fn(|context| self.poll_frame(context)).await {
            if let Ok(data) = frame?.into_data() {
                length += data.len();
                parts.push(data);
            }
            if length > most {
                return Ok(Collected::TooLong(parts));
            }
        }
        Ok(Collected::Whole(joined(parts)))
    }
}

/// What was read of a body.
pub(super) enum Collected {
    Whole(Bytes),
    /// There is more.
    TooLong(Vec<Bytes>),
}

/// Parts in one piece; one alone is not copied.
pub(super) fn joined(mut parts: Vec<Bytes>) -> Bytes {
    match parts.len() {
        0 => Bytes::new(),
        1 => parts.remove(0),
        _ => parts.concat().into(),
    }
}
