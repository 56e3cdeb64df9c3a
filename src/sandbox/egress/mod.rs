//! The gateway to other hosts: an HTTP proxy (CONNECT for TLS) that the sandbox reaches over its own listener, and that
//! lets through what the present phase allows.
//!
//! It runs on the host, so nothing inside can change what it allows, and it needs no right and no firewall. What it must
//! not do: lead to this machine or its private network unless an address or a name was listed for that.

mod hosts;
mod request;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpStream, lookup_host};
use tokio::task::{JoinHandle, JoinSet};

use super::control::listener::{Connection, Listener};
use crate::task::{NetworkMode, NetworkPolicy};

/// Where it answers inside.
pub(in crate::sandbox) const PORT: u16 = 3128;
/// Connections of one sandbox at a time; further ones wait.
const CONNECTIONS: usize = 64;
/// Time for a request's head, for a name's addresses, and for one connection.
const STEP: Duration = Duration::from_secs(15);
/// Most refusals that are remembered.
const REMEMBERED: usize = 100;

/// One sandbox's gateway. It ends when it is dropped.
pub(in crate::sandbox) struct Egress {
    state: Arc<State>,
    server: JoinHandle<()>,
}

struct State {
    policy: Mutex<NetworkPolicy>,
    refused: Mutex<Vec<String>>,
}

impl Egress {
    /// Serves connections of this listener; nothing is let through yet.
    pub(in crate::sandbox) fn spawn(listener: Listener) -> Self {
        let state = Arc::new(State {
            policy: Mutex::new(NetworkPolicy::none()),
            refused: Mutex::default(),
        });
        let serving = Arc::clone(&state);
        let server = tokio::spawn(async move {
            if let Err(error) = serve(listener, serving).await {
                tracing::warn!(%error, "a sandbox lost its way to other hosts");
            }
        });
        Self { state, server }
    }

    /// From now on new connections go by this.
    pub(in crate::sandbox) fn allow(&self, policy: &NetworkPolicy) {
        *self.state.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy.clone();
    }

    /// What was asked for and refused, as `host:port`, in order, the first hundred.
    pub(in crate::sandbox) fn refused(&self) -> Vec<String> {
        let refused = self.state.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.clone()
    }

    /// Variables by which programs inside find it, where anything is let through.
    pub(in crate::sandbox) fn environment(&self) -> BTreeMap<String, String> {
        if self.state.policy().mode == NetworkMode::NoNetwork {
            return BTreeMap::new();
        }
        let proxy = format!("http://127.0.0.1:{PORT}");
        let mut env = BTreeMap::new();
        for (name, value) in [
            ("http_proxy", &proxy),
            ("https_proxy", &proxy),
            ("no_proxy", &"127.0.0.1,localhost,::1".to_owned()),
        ] {
            env.insert(name.to_owned(), value.clone());
            env.insert(name.to_uppercase(), value.clone());
        }
        env
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl State {
    fn policy(&self) -> NetworkPolicy {
        self.policy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refuse(&self, target: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REMEMBERED {
            refused.push(target.to_owned());
        }
    }
}

async fn serve(listener: Listener, state: Arc<State>) -> std::io::Result<()> {
    let mut listener = listener.accepting()?;
    let mut connections = JoinSet::new();
    loop {
        while connections.len() >= CONNECTIONS {
            connections.join_next().await;
        }
        let inside = listener.accept().await?;
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            // A broken connection is closed inside too: that is what the client then sees.
            let _ = connection(inside, &state).await;
        });
    }
}

async fn connection(mut inside: Box<dyn Connection>, state: &State) -> std::io::Result<()> {
    let read = tokio::time::timeout(STEP, request::read(&mut inside)).await;
    let asked = match read {
        Err(_) => return Ok(()),
        Ok(Err(reason)) => return answer(&mut inside, "400 Bad Request", &reason).await,
        Ok(Ok(asked)) => asked,
    };
    let target = format!("{}:{}", asked.host, asked.port);
    let mut outside = match connect(&asked.host, asked.port, &state.policy()).await {
        Ok(outside) => outside,
        Err(Refusal::Forbidden(reason)) => {
            state.refuse(&target);
            return answer(&mut inside, "403 Forbidden", &format!("{target}: {reason}")).await;
        }
        Err(Refusal::Unreachable(reason)) => {
            return answer(&mut inside, "502 Bad Gateway", &format!("{target}: {reason}")).await;
        }
    };
    match &asked.forward {
        None => inside.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?,
        Some(head) => outside.write_all(head).await?,
    }
    outside.write_all(&asked.rest).await?;
    copy_bidirectional(&mut inside, &mut outside).await.map(drop)
}

async fn answer(inside: &mut Box<dyn Connection>, status: &str, reason: &str) -> std::io::Result<()> {
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{reason}\n",
        reason.len() + 1
    );
    inside.write_all(text.as_bytes()).await?;
    inside.shutdown().await
}

enum Refusal {
    Forbidden(&'static str),
    Unreachable(String),
}

async fn connect(host: &str, port: u16, policy: &NetworkPolicy) -> Result<TcpStream, Refusal> {
    let unreachable = |error: std::io::Error| Refusal::Unreachable(error.to_string());
    let late = |_| Refusal::Unreachable(format!("no answer within {STEP:?}"));
    if let Ok(address) = host.parse::<IpAddr>() {
        if !hosts::allows_address(policy, address) {
            return Err(Refusal::Forbidden("this phase of the trial may not reach it"));
        }
        let connected = tokio::time::timeout(STEP, TcpStream::connect((address, port))).await;
        return connected.map_err(late)?.map_err(unreachable);
    }
    let Some(private) = hosts::allows_name(policy, host) else {
        return Err(Refusal::Forbidden("this phase of the trial may not reach it"));
    };
    let found = tokio::time::timeout(STEP, lookup_host((host, port))).await;
    let found: Vec<SocketAddr> = found.map_err(late)?.map_err(unreachable)?.collect();
    let allowed = |address: &&SocketAddr| {
        let listed = private && !address.ip().is_loopback();
        listed || hosts::is_public(address.ip())
    };
    let mut last = Refusal::Forbidden("its addresses are of this machine's own network");
    for address in found.iter().filter(allowed) {
        match tokio::time::timeout(STEP, TcpStream::connect(address)).await {
            Ok(Ok(outside)) => return Ok(outside),
            Ok(Err(error)) => last = unreachable(error),
            Err(elapsed) => last = late(elapsed),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests;
