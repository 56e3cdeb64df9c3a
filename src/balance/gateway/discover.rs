//! Replicas found by a label selector in a Kubernetes: pods that are ready come, those that end are drained, those that are gone
//! go.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client};

use super::Gateway;

/// Time between looks.
const PERIOD: Duration = Duration::from_secs(3);
/// Longest wait for the cluster's answer.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where replicas are looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovery {
    /// Such as `app=vllm,tier=rollout`.
    pub selector: String,
    /// The port that pods listen on.
    pub port: u16,
    /// `None`: the namespace of the kubeconfig, or of this pod.
    pub namespace: Option<String>,
}

impl FromStr for Discovery {
    type Err = String;

    /// `kubernetes:SELECTOR`, or `kubernetes:NAMESPACE/SELECTOR`, with `@PORT` behind it for another one than 8000.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected `kubernetes:app=vllm`, `kubernetes:namespace/app=vllm@8000`, found `{text}`");
        let rest = text.strip_prefix("kubernetes:").ok_or_else(wrong)?;
        let (rest, port) = match rest.rsplit_once('@') {
            Some((rest, port)) => (rest, port.parse().map_err(|_| wrong())?),
            None => (rest, 8000),
        };
        // A label's name may hold a `/` too, but then behind its first `=` or `,` there is more than a namespace before it.
        let (namespace, selector) = match rest.split_once('/') {
            Some((namespace, selector)) if !namespace.contains(['=', ',', '.', '!', ' ']) => {
                (Some(namespace), selector)
            }
            _ => (None, rest),
        };
        if selector.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            selector: selector.to_owned(),
            port,
            namespace: namespace.map(str::to_owned),
        })
    }
}

/// What became of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Ready,
    Ending,
}

impl Gateway {
    /// Adds and removes replicas as their pods come and go, until it is dropped.
    ///
    /// # Errors
    /// There is no cluster to ask. One that does not answer later is asked again, and what is known stays.
    pub async fn discover(&self, discovery: &Discovery) -> Result<(), String> {
        let client = Client::try_default().await.map_err(|error| error.to_string())?;
        let pods: Api<Pod> = match &discovery.namespace {
            Some(namespace) => Api::namespaced(client, namespace),
            None => Api::default_namespaced(client),
        };
        let mut known = BTreeMap::new();
        let found = found(&pods, discovery).await?;
        self.follow(&mut known, found);
        loop {
            tokio::time::sleep(PERIOD).await;
            match self::found(&pods, discovery).await {
                Ok(found) => self.follow(&mut known, found),
                Err(reason) => tracing::warn!(reason, "pods cannot be listed; what is known stays"),
            }
        }
    }

    fn follow(&self, known: &mut BTreeMap<String, Seen>, found: BTreeMap<String, Seen>) {
        for (url, seen) in &found {
            if known.get(url) == Some(seen) {
                continue;
            }
            match seen {
                Seen::Ready => {
                    if let Err(error) = self.add(url) {
                        tracing::warn!(%error, "a pod cannot be a replica");
                    }
                }
                Seen::Ending => _ = self.0.pool.drain(url),
            }
        }
        for url in known.keys().filter(|url| !found.contains_key(*url)) {
            self.0.pool.remove(url);
        }
        *known = found;
    }
}

/// Pods with an address, by the URL of their replica. One that was ready and is not stays: probes say more of it.
async fn found(pods: &Api<Pod>, discovery: &Discovery) -> Result<BTreeMap<String, Seen>, String> {
    let wanted = ListParams::default().labels(&discovery.selector);
    let listed = tokio::time::timeout(PATIENCE, pods.list(&wanted)).await;
    let listed = listed.map_err(|_| format!("no answer within {PATIENCE:?}"))?;
    let listed = listed.map_err(|error| error.to_string())?;
    Ok(listed.iter().filter_map(|pod| replica(pod, discovery.port)).collect())
}

fn replica(pod: &Pod, port: u16) -> Option<(String, Seen)> {
    let status = pod.status.as_ref()?;
    let address = status.pod_ip.as_ref()?;
    let host = if address.contains(':') {
        format!("[{address}]")
    } else {
        address.clone()
    };
    let url = format!("http://{host}:{port}");
    if pod.metadata.deletion_timestamp.is_some() {
        return Some((url, Seen::Ending));
    }
    let runs = status.phase.as_deref() == Some("Running");
    runs.then_some((url, Seen::Ready))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::balance::gateway::GatewayOptions;

    #[test]
    fn selectors_are_read() {
        let read = |text: &str| text.parse::<Discovery>();
        let plain = read("kubernetes:app=vllm").unwrap();
        assert_eq!(
            (plain.selector.as_str(), plain.port, plain.namespace),
            ("app=vllm", 8000, None)
        );
        let full = read("kubernetes:rl/app=vllm,tier=a@30000").unwrap();
        assert_eq!((full.selector.as_str(), full.port), ("app=vllm,tier=a", 30000));
        assert_eq!(full.namespace.as_deref(), Some("rl"));
        let named = read("kubernetes:app.kubernetes.io/name=vllm").unwrap();
        assert_eq!(
            (named.selector.as_str(), named.namespace),
            ("app.kubernetes.io/name=vllm", None)
        );
        for wrong in ["", "app=vllm", "kubernetes:", "kubernetes:a=b@x", "kubernetes:rl/"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test]
    async fn pods_come_and_go() {
        let pod = |ip: &str, phase: &str, ends: bool| -> Pod {
            let ends = ends.then_some("2026-01-01T00:00:00Z");
            serde_json::from_value(json!({
                "metadata": { "deletionTimestamp": ends }, "status": { "podIP": ip, "phase": phase }
            }))
            .unwrap()
        };
        let gateway = Gateway::new(GatewayOptions::default());
        let mut known = BTreeMap::new();
        let mut follow = |pods: &[Pod]| {
            gateway.follow(&mut known, pods.iter().filter_map(|pod| replica(pod, 8000)).collect());
            let rows = gateway.replicas();
            rows.into_iter().map(|row| row.replica).collect::<Vec<_>>()
        };
        let both = follow(&[
            pod("127.0.0.2", "Running", false),
            pod("fd00::1", "Running", false),
            pod("127.0.0.3", "Pending", false),
        ]);
        assert_eq!(both, ["http://127.0.0.2:8000", "http://[fd00::1]:8000"]);
        assert_eq!(follow(&[pod("127.0.0.2", "Running", true)]), ["http://127.0.0.2:8000"]);
        assert_eq!(follow(&[]), Vec::<String>::new());
    }
}
