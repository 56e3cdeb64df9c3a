//! Accepting connections and serving HTTP on them until a stop. Whatever routes there are is the service's business.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Longest time for open connections to end after the shutdown began.
const SHUTDOWN_PATIENCE: Duration = Duration::from_secs(5);

/// Time after which a connection is accepted again where that failed.
const ACCEPT_AGAIN: Duration = Duration::from_secs(1);

/// Serves until `shutdown` completes; then has `ending` end what runs, and gives open connections a few seconds. Who begins
/// a request and does not go on within `patience`, or begins no other, is not waited for.
///
/// # Errors
/// None at present: what cannot be accepted is tried again.
pub(crate) async fn serve<S>(
    listener: TcpListener,
    service_of: impl Fn(SocketAddr) -> S,
    patience: Duration,
    shutdown: impl Future<Output = ()>,
    ending: impl FnOnce(),
) -> io::Result<()>
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Send + 'static,
    S::Future: Send,
{
    let ended = CancellationToken::new();
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(connection(stream, service_of(peer), patience, ended.clone()));
                }
                Err(error) if is_of_one_client(&error) => {}
                Err(error) => {
                    // Too many open files, most likely: some will be closed.
                    tracing::error!(%error, "no connection could be accepted");
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    ending();
    ended.cancel();
    let all = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(SHUTDOWN_PATIENCE, all).await.is_err() {
        tracing::warn!("connections were still open after {SHUTDOWN_PATIENCE:?}");
    }
    Ok(())
}

async fn connection<S>(stream: TcpStream, service: S, patience: Duration, ended: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<Body>, Error = Infallible>,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let served = tokio::select! {
        served = served.as_mut() => served,
        () = ended.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "connection ended");
    }
}

/// Whether only the client that came is concerned.
fn is_of_one_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
