//! A server in front of others that serve the same model: it hands requests on as they came, and says which of the others
//! answers, and when.
//!
//! `key` and `scan` find whose a request is, `pool` holds the replicas and asks `placement` for one, `attempt` sends a request
//! until there is an answer, `answer` hands that on, `health` and `circuit` say who is given requests. No body is read beyond
//! the few fields that are needed, and none is written anew.

mod admin;
mod answer;
mod attempt;
mod circuit;
mod client;
mod discover;
mod health;
mod key;
mod measure;
mod pages;
mod pool;
mod refusal;
mod rows;
mod scan;
mod serve;
#[cfg(test)]
mod tests;
mod upstream;
mod wire;

pub use client::{StatusError, replicas_of};
pub use discover::Discovery;
pub use pages::use_small_pages;
pub use rows::{ReplicaRow, SessionRow};

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::hold::HoldSettings;
use crate::config::PlacementPolicy;
use measure::{Counts, Ratio, Retries};
use pool::Pool;
use upstream::Upstream;
use wire::Security;

/// How a gateway works.
#[derive(Debug, Clone, PartialEq)]
pub struct GatewayOptions {
    /// Which replica serves a turn.
    pub policy: PlacementPolicy,
    /// How turns are held; `None`: not at all.
    pub hold: Option<HoldSettings>,
    /// Header that names a session, before those that are known.
    pub session_header: Option<String>,
    /// Path that replicas are asked for whether they are well.
    pub health_path: String,
    /// Certificates (PEM) of authorities that sign those of `https` replicas, beside the system's own.
    pub ca_file: Option<PathBuf>,
    /// Opens the routes that change something; `None`: whoever is on this machine may.
    pub admin_token: Option<String>,
    /// Longest wait for a connection.
    pub connect: Duration,
    /// Longest wait for the first byte of an answer.
    pub first_byte: Duration,
    /// Longest wait for the next byte of a stream.
    pub idle: Duration,
    /// Longest wait for a replica where none is well, and for more of a request.
    pub patience: Duration,
    /// Requests at a time; more are told to come again.
    pub most_requests: usize,
    /// Time without a byte after which clients of streams are told that one will come.
    pub keep_alive: Duration,
    /// Whether answers say which replica was chosen, and why.
    pub tell_reason: bool,
    /// Whether replicas are asked for `/sess/NAME/…` where clients do: those that are proxies themselves.
    pub keep_path: bool,
    /// Breaks ties.
    pub seed: u64,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            policy: PlacementPolicy::Sticky,
            hold: None,
            session_header: None,
            health_path: "/health".to_owned(),
            ca_file: None,
            admin_token: None,
            connect: Duration::from_secs(2),
            first_byte: Duration::from_mins(30),
            idle: Duration::from_mins(5),
            patience: Duration::from_secs(20),
            most_requests: 8192,
            keep_alive: Duration::from_secs(5),
            tell_reason: false,
            keep_path: false,
            seed: 42,
        }
    }
}

/// What is wrong with the address of a replica.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("replica `{url}`: {reason}")]
pub struct BadReplica {
    url: String,
    reason: String,
}

/// A gateway. Cheap to clone.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    options: GatewayOptions,
    pool: Arc<Pool>,
    counts: Counts,
    ratio: Ratio,
    retries: Retries,
    reads_blocks: bool,
    draining: AtomicBool,
    /// Whom `https` replicas are trusted by; read when the first one is added.
    tls: OnceLock<Result<Arc<rustls::ClientConfig>, String>>,
}

impl Gateway {
    /// Without replicas.
    pub fn new(options: GatewayOptions) -> Self {
        let pool = Arc::new(Pool::new(&options));
        let reads_blocks = pool::lock(&pool.placement).reads_blocks();
        Self(Arc::new(Inner {
            reads_blocks,
            pool,
            counts: Counts::default(),
            ratio: Ratio::default(),
            retries: Retries::default(),
            draining: AtomicBool::new(false),
            tls: OnceLock::new(),
            options,
        }))
    }

    /// Adds a replica and begins to watch it. Needs a tokio runtime. One that is there already is no longer drained.
    ///
    /// # Errors
    /// Its address cannot be used.
    pub fn add(&self, url: &str) -> Result<(), BadReplica> {
        self.0.add(url).map(drop)
    }

    /// Its replicas, as they are now.
    pub fn replicas(&self) -> Vec<ReplicaRow> {
        self.0.pool.rows()
    }
}

impl Inner {
    fn add(&self, url: &str) -> Result<Arc<pool::Replica>, BadReplica> {
        let url = url.trim_end_matches('/');
        let bad = |reason: String| BadReplica {
            url: url.to_owned(),
            reason,
        };
        if let Some(problem) = crate::inference::endpoint_problem(url) {
            return Err(bad(problem));
        }
        let (rest, is_tls) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(bad("expected `http://host:port` or `https://host:port`".to_owned())),
        };
        let (authority, base) = match rest.split_once('/') {
            Some((authority, base)) => (authority, format!("/{base}")),
            None => (rest, String::new()),
        };
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authority = if has_port {
            authority.to_owned()
        } else {
            format!("{authority}:{}", if is_tls { 443 } else { 80 })
        };
        let security = if is_tls {
            let ca_file = self.options.ca_file.as_deref();
            let trusted = self.tls.get_or_init(|| crate::http_client::trust(ca_file));
            let config = trusted
                .clone()
                .map_err(|reason| bad(format!("`--ca-file`: {reason}")))?;
            Security::tls(config, &authority).map_err(bad)?
        } else {
            Security::Plain
        };
        let (replica, is_new) = self
            .pool
            .add(url, Upstream::new(authority, base, security), &self.options);
        if is_new {
            let path: Arc<str> = self.options.health_path.as_str().into();
            tokio::spawn(health::watch(Arc::clone(&self.pool), Arc::clone(&replica), path));
        }
        Ok(replica)
    }
}
