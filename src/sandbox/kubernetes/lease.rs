//! Who owns pods across machines, where process numbers mean nothing: a Lease a run, renewed as long as it lives.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease as Object;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::client::{self, Cluster, Refused};
use super::pod::Owner;
use super::{CALL, OWNER, remove};
use crate::sandbox::SandboxError;
use crate::sandbox::owner::host_name;

/// How often a Lease is renewed.
const RENEW: Duration = Duration::from_secs(20);
/// How long one holds. Clocks of machines differ, and servers are away for a while.
const HOLDS: Duration = Duration::from_mins(3);
/// Pods without a Lease are another version's, or of a Lease that was deleted: after so long they are left over.
const YOUNG: Duration = Duration::from_mins(15);

/// This run's Lease; it is renewed until this is dropped.
pub(super) struct Lease {
    owner: Owner,
    cluster: Cluster,
    renewing: JoinHandle<()>,
}

/// As the API has times of this kind.
fn now() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

impl Lease {
    /// A new one, of a number that nobody else has.
    pub(super) async fn take(cluster: &Cluster) -> Result<Self, SandboxError> {
        let number = Uuid::now_v7().to_string();
        let name = format!("lego-{number}");
        let failed = |reason: String| SandboxError::Engine {
            what: "the run's Lease could not be made",
            reason,
        };
        let host = nix::unistd::gethostname().unwrap_or_default();
        let object = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": name, "labels": {OWNER: number}},
            "spec": {
                "holderIdentity": format!("{}-{}", host_name(&host.to_string_lossy()), std::process::id()),
                "leaseDurationSeconds": HOLDS.as_secs(), "acquireTime": now(), "renewTime": now(),
            },
        });
        let object: Object = serde_json::from_value(object).map_err(|error| failed(error.to_string()))?;
        let parameters = PostParams::default();
        let made = match client::call(CALL, || cluster.leases.create(&parameters, &object)).await {
            // An earlier attempt got no answer and was carried out.
            Err(Refused::Exists(_)) => client::call(CALL, || cluster.leases.get(&name)).await,
            made => made,
        };
        let made = made.map_err(|refused| failed(refused.to_string()))?;
        let (leases, renewed) = (cluster.leases.clone(), name.clone());
        let renewing = tokio::spawn(async move {
            loop {
                tokio::time::sleep(RENEW).await;
                let patch = Patch::Merge(json!({"spec": {"renewTime": now()}}));
                let parameters = PatchParams::default();
                if let Err(refused) = client::call(HOLDS / 2, || leases.patch(&renewed, &parameters, &patch)).await {
                    tracing::warn!(%refused, lease = renewed, "the run's Lease was not renewed");
                }
            }
        });
        Ok(Self {
            owner: Owner {
                number,
                lease: name,
                uid: made.uid().unwrap_or_default(),
            },
            cluster: cluster.clone(),
            renewing,
        })
    }

    pub(super) fn number(&self) -> &str {
        &self.owner.number
    }

    pub(super) fn owner(&self) -> Owner {
        self.owner.clone()
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.renewing.abort();
        let (leases, name) = (self.cluster.leases.clone(), self.owner.lease.clone());
        // Where nothing runs any more it expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { leases.delete(&name, &DeleteParams::default()).await });
        }
    }
}

/// Whether a Lease has expired at this time.
fn is_over(lease: &Object, now: jiff::Timestamp) -> bool {
    let spec = lease.spec.clone().unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let holds = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0) as u64);
    renewed.is_some_and(|renewed| now.duration_since(renewed).unsigned_abs() > holds && now > renewed)
}

/// Removes the pods of expired Leases, and those; gives the pods' names.
pub(super) async fn reap(cluster: &Cluster) -> Result<Vec<String>, SandboxError> {
    let failed = |refused: Refused| SandboxError::Engine {
        what: "pods of runs that are gone could not be removed",
        reason: refused.to_string(),
    };
    let ours = ListParams::default().labels(OWNER);
    let leases = client::call(CALL, || cluster.leases.list(&ours))
        .await
        .map_err(failed)?;
    let pods = client::call(CALL, || cluster.pods.list(&ours)).await.map_err(failed)?;
    let now = jiff::Timestamp::now();
    let number = |labels: &std::collections::BTreeMap<String, String>| labels.get(OWNER).cloned().unwrap_or_default();
    let mut removed = Vec::new();
    for pod in &pods.items {
        let owner = number(pod.labels());
        let is_left = match leases.items.iter().find(|lease| number(lease.labels()) == owner) {
            Some(lease) => is_over(lease, now),
            None => pod
                .metadata
                .creation_timestamp
                .as_ref()
                .is_some_and(|made| now > made.0 && now.duration_since(made.0).unsigned_abs() > YOUNG),
        };
        if is_left {
            let name = pod.name_any();
            let gone = remove(&cluster.pods, &name, pod.uid()).await;
            gone.map_err(|reason| failed(Refused::Never(reason)))?;
            removed.push(name);
        }
    }
    for lease in leases.items.iter().filter(|lease| is_over(lease, now)) {
        let (name, parameters) = (lease.name_any(), DeleteParams::default());
        match client::call(CALL, || cluster.leases.delete(&name, &parameters)).await {
            Ok(_) | Err(Refused::Missing | Refused::Exists(_)) => {}
            Err(refused) => return Err(failed(refused)),
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_over_when_it_was_not_renewed_for_as_long_as_it_holds() {
        let lease = |renewed: &str| -> Object {
            serde_json::from_value(json!({"metadata": {}, "spec": {"renewTime": renewed, "leaseDurationSeconds": 180}}))
                .unwrap()
        };
        let at = |text: &str| text.parse::<jiff::Timestamp>().unwrap();
        let held = lease("2026-01-01T00:00:00.000000Z");
        assert!(!is_over(&held, at("2026-01-01T00:02:59Z")));
        assert!(is_over(&held, at("2026-01-01T00:03:01Z")));
        // A clock that is behind says nothing.
        assert!(!is_over(&held, at("2025-12-31T00:00:00Z")));
        assert!(!is_over(&Object::default(), at("2026-01-01T00:00:00Z")));
        let parsed = lease(&now());
        assert!(!is_over(&parsed, jiff::Timestamp::now()));
    }
}
