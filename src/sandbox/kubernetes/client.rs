//! Reaching the cluster, and calls that a busy server may refuse for a while.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::client::UpgradeConnectionError;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use rand::Rng as _;
use tokio::time::Instant;

use crate::config::KubernetesSection;
use crate::sandbox::SandboxError;
use crate::sandbox::error::whole;

/// Time for the server's first answer.
const ANSWER: Duration = Duration::from_secs(15);
/// Time for one answer.
const CALL: Duration = Duration::from_mins(1);
/// Between two attempts, at first and at most.
const PAUSE: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(20));

/// A cluster, and the namespace in it.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) pods: Api<Pod>,
    pub(super) leases: Api<Lease>,
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refused {
    /// There is no such thing.
    #[error("it is not there")]
    Missing,
    /// There is one already, or it has changed.
    #[error("{0}")]
    Exists(String),
    /// The namespace's quota is used up.
    #[error("{0}")]
    Quota(String),
    /// The server is busy or not there.
    #[error("{0}")]
    Busy(String, Option<Duration>),
    /// It will not.
    #[error("{0}")]
    Never(String),
}

impl Refused {
    pub(super) fn of(error: &Error) -> Self {
        let Error::Api(status) = error else {
            return match error {
                // A stream was refused: the server's words do not come with that.
                Error::UpgradeConnection(UpgradeConnectionError::ProtocolSwitch(code)) => {
                    let words = format!("no stream (HTTP {code})");
                    match code.as_u16() {
                        404 => Self::Missing,
                        401 | 403 => Self::Never(words),
                        _ => Self::Busy(words, None),
                    }
                }
                Error::SerdeError(_) | Error::BuildRequest(_) | Error::Auth(_) => Self::Never(whole(error)),
                _ => Self::Busy(whole(error), None),
            };
        };
        let words = format!("{} (HTTP {})", status.message, status.code);
        let asked = status.details.as_ref().map(|details| details.retry_after_seconds);
        let asked = asked
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into()));
        match status.code {
            404 => Self::Missing,
            409 => Self::Exists(words),
            403 if status.message.contains("exceeded quota") => Self::Quota(words),
            408 | 429 | 500..=599 => Self::Busy(words, asked),
            _ => Self::Never(words),
        }
    }
}

/// Connects, and asks for the server's version.
pub(super) async fn connect(options: &KubernetesSection) -> Result<Cluster, SandboxError> {
    let failed = |reason: String| SandboxError::Engine {
        what: "no cluster can be used",
        reason: format!(
            "{reason}; name a kubeconfig in `sandbox.kubernetes.kubeconfig` or KUBECONFIG, and its context in \
             `sandbox.kubernetes.context`, or run in a pod whose account may make pods"
        ),
    };
    let config = match (&options.kubeconfig, &options.context) {
        (None, None) => Config::infer().await.map_err(|error| failed(whole(&error)))?,
        (path, context) => {
            let file = match path {
                Some(path) => Kubeconfig::read_from(path),
                None => Kubeconfig::read(),
            };
            let wanted = KubeConfigOptions {
                context: context.clone(),
                ..KubeConfigOptions::default()
            };
            let file = file.map_err(|error| failed(whole(&error)))?;
            let config = Config::from_custom_kubeconfig(file, &wanted).await;
            config.map_err(|error| failed(whole(&error)))?
        }
    };
    let mut config = config;
    // What is tried again is counted and bounded here.
    config.default_retry = false;
    let namespace = options.namespace.as_ref().unwrap_or(&config.default_namespace).clone();
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| failed(whole(&error)))?;
    match tokio::time::timeout(ANSWER, client.apiserver_version()).await {
        Err(_) => return Err(failed(format!("{server}: no answer within {ANSWER:?}"))),
        Ok(Err(error)) => return Err(failed(format!("{server}: {}", Refused::of(&error)))),
        Ok(Ok(_)) => {}
    }
    Ok(Cluster {
        pods: Api::namespaced(client.clone(), &namespace),
        leases: Api::namespaced(client.clone(), &namespace),
        client,
        namespace,
    })
}

/// Makes a call, again while the server is busy, within this time. Each attempt is the same call: it must not matter
/// whether one that got no answer was carried out.
pub(super) async fn call<T, F>(within: Duration, make: impl Fn() -> F) -> Result<T, Refused>
where
    F: Future<Output = Result<T, Error>>,
{
    let end = Instant::now() + within;
    let mut pause = PAUSE.0;
    loop {
        let refused = match tokio::time::timeout(CALL, make()).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => Refused::of(&error),
            Err(_) => Refused::Busy(format!("no answer within {CALL:?}"), None),
        };
        let wait = match &refused {
            Refused::Busy(_, asked) => asked.unwrap_or(pause),
            Refused::Quota(_) => pause,
            _ => return Err(refused),
        };
        // Of many that were refused at once, not all come back at once.
        let wait = wait.mul_f64(rand::rng().random_range(1.0..1.5));
        if Instant::now() + wait > end {
            return Err(refused);
        }
        tracing::debug!(%refused, ?wait, "the cluster is asked again");
        tokio::time::sleep(wait).await;
        pause = (pause * 2).min(PAUSE.1);
    }
}
