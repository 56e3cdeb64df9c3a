//! What the clients of engines in other processes share: HTTP, the state of a server, the reading of its streams.
//!
//! Nothing here knows the routes or shapes of a particular server.

mod http;
mod routing;
mod server;
mod state;
mod stream;

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::prometheus::Metrics;
use super::{EngineError, EngineLoad};
use crate::trajectory::{Experts, PolicyVersion};

pub(super) use http::{Payload, Refusal, Remote, SHORT, ServerEvents, WithIds};
pub(super) use routing::Asked;
pub(super) use server::{Server, check_label};
use state::{Shared, State};
use stream::Reading;
pub(super) use stream::{Abort, Asking, Fault, News, Span, Wire, parsed, said};

/// Loading weights from disk.
pub(super) const RELOAD: Duration = Duration::from_mins(30);
const LOAD_PERIOD: Duration = Duration::from_secs(1);

/// How to reach a server. It holds a secret and is not to be printed.
#[derive(Clone)]
pub struct RemoteOptions {
    /// Such as `http://127.0.0.1:8000`.
    pub endpoint: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// Certificates of authorities that sign the server's own, in PEM; beside those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The name under which it must serve the policy; `None`: whatever it serves.
    pub model: Option<String>,
    /// The shape of the policy's mixture of experts, where it is one.
    pub experts: Option<Experts>,
    /// The weights that it serves at first, whatever it calls them.
    pub version: PolicyVersion,
    /// Longest wait for the next token while it is not paused.
    pub patience: Duration,
}

/// What is wrong with the address of a server.
pub fn endpoint_problem(endpoint: &str) -> Option<String> {
    let expected = "expected an address such as `http://host:8000`";
    let url = match reqwest::Url::parse(endpoint) {
        Ok(url) => url,
        Err(error) => return Some(format!("{expected}, found `{endpoint}`: {error}")),
    };
    if url.password().is_some() || !url.username().is_empty() {
        return Some(format!(
            "{expected}, found one with a key in it: name its variable in `engine.api_key_env`"
        ));
    }
    let good =
        matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.fragment().is_none();
    (!good).then(|| format!("{expected}, found `{endpoint}`"))
}

/// Refuses a server that does not serve the policy under the name that is asked for.
pub(super) fn check_model(base: &str, served: &[String], wanted: Option<&str>) -> Result<(), EngineError> {
    match wanted {
        Some(name) if !served.iter().any(|other| other == name) => Err(EngineError::Invalid(format!(
            "{base} serves `{}`, not `{name}`: start it with `--served-model-name {name}`, or change `engine.served_model`",
            served.join("`, `")
        ))),
        _ => Ok(()),
    }
}

/// Reads the load off the server's metrics until it is cancelled.
async fn watch_load(
    remote: Remote,
    shared: std::sync::Arc<Shared>,
    load_of: fn(&Metrics<'_>) -> EngineLoad,
    cancel: CancellationToken,
) {
    loop {
        if let Ok(serde_json::Value::String(page)) = remote.get("/metrics").await {
            shared.state().load = load_of(&Metrics(&page));
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(LOAD_PERIOD) => {}
        }
    }
}

#[cfg(test)]
mod tls_tests;

#[cfg(test)]
mod tests {
    use super::endpoint_problem;

    #[test]
    fn addresses_are_told_from_what_is_none() {
        for good in ["http://127.0.0.1:8000", "https://gpu-1:30000/", "http://[::1]:8000"] {
            assert_eq!(endpoint_problem(good), None, "{good}");
        }
        for wrong in ["gpu-1:8000", "", "http://", "ftp://a", "http://a?b=c", "unix:/run/x"] {
            assert!(endpoint_problem(wrong).is_some(), "{wrong}");
        }
        let secret = endpoint_problem("http://me:hunter2@host:8000").unwrap();
        assert!(
            secret.contains("engine.api_key_env") && !secret.contains("hunter2"),
            "{secret}"
        );
    }
}
