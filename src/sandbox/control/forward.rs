//! The only way out of a sandbox: its listener for the proxy, accepted and forwarded by the host.
//!
//! The listener was made inside, in a network that has nothing but loopback; the host took it over.

use std::net::SocketAddr;

use tokio::io::copy_bidirectional;
use tokio::net::TcpStream;
use tokio::task::{JoinHandle, JoinSet};

use super::listener::Listener;

/// Connections of one sandbox at a time; further ones wait.
const CONNECTIONS: usize = 64;

/// Forwards until the task is aborted; the connections end with it.
pub(in crate::sandbox) fn spawn(listener: Listener, proxy: SocketAddr) -> JoinHandle<()> {
    tokio::spawn(async move {
        if let Err(error) = forward(listener, proxy).await {
            tracing::warn!(%error, "a sandbox lost its way to the proxy");
        }
    })
}

async fn forward(listener: Listener, proxy: SocketAddr) -> std::io::Result<()> {
    let mut listener = listener.accepting()?;
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        let mut inside = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            // A refused or broken connection is closed inside too: that is what the client then sees.
            if let Ok(mut outside) = TcpStream::connect(proxy).await {
                let _ = outside.set_nodelay(true);
                let _ = copy_bidirectional(&mut inside, &mut outside).await;
            }
        });
    }
}
