//! A running pod, as the rest of the library sees it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use tokio::sync::watch;

use super::dial;
use super::watcher::{Known, Watcher};
use crate::sandbox::control::container::Entered;
use crate::sandbox::control::listing::Listing;
use crate::sandbox::control::{Control, Walls};
use crate::sandbox::runtime::INSIDE;
use crate::sandbox::{Isolation, SandboxError};
use crate::task::{NetworkMode, NetworkPolicy};

/// How long the cluster may take to say why a pod ended.
const SAID: Duration = Duration::from_secs(10);

/// A pod that is deleted when this is dropped.
pub(super) struct Owned {
    pods: Api<Pod>,
    name: Option<String>,
    pub(super) uid: Option<String>,
    watcher: Watcher,
}

impl Owned {
    pub(super) fn new(pods: Api<Pod>, name: String, watcher: Watcher) -> Self {
        Self {
            pods,
            name: Some(name),
            uid: None,
            watcher,
        }
    }

    async fn remove(&mut self) -> Result<(), String> {
        if let Some(name) = &self.name {
            super::remove(&self.pods, name, self.uid.clone()).await?;
            self.watcher.forget(name);
            self.name = None;
        }
        Ok(())
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        let (pods, uid, watcher) = (self.pods.clone(), self.uid.take(), self.watcher.clone());
        // Where nothing runs any more, the pod's init ends by itself, and its run's Lease expires.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Err(error) = super::remove(&pods, &name, uid).await {
                    tracing::warn!(pod = name, error, "a dropped pod was not removed");
                }
                watcher.forget(&name);
            });
        }
    }
}

/// One sandbox. Dropping it destroys it.
pub(super) struct KubernetesSandbox {
    control: Control,
    /// The working folder at the start.
    before: Listing,
    pod: tokio::sync::Mutex<Owned>,
    known: watch::Receiver<Known>,
    lost: Arc<Mutex<Option<String>>>,
    /// Why its commands cannot be kept from the cluster's network, and whether that is put up with.
    open: Option<String>,
    allow_unisolated: bool,
    /// Whether we ended it.
    is_ours: AtomicBool,
}

impl KubernetesSandbox {
    pub(super) fn new(
        entered: Entered,
        pod: Owned,
        known: watch::Receiver<Known>,
        lost: Arc<Mutex<Option<String>>>,
        allow_unisolated: bool,
    ) -> Self {
        let Entered { control, before, open } = entered;
        // Until it is said otherwise it reaches nothing.
        control.set_nowhere(open.is_none());
        Self {
            control,
            before,
            open,
            allow_unisolated,
            is_ours: AtomicBool::new(false),
            pod: tokio::sync::Mutex::new(pod),
            known,
            lost,
        }
    }
}

/// Where a sandbox is gone: why, as the cluster says, else as the last attempt to reach it ended.
pub(super) fn explain(
    name: &str,
    error: SandboxError,
    known: &watch::Receiver<Known>,
    lost: &Mutex<Option<String>>,
) -> SandboxError {
    if !matches!(
        error,
        SandboxError::Gone(_) | SandboxError::Start { .. } | SandboxError::Timeout { .. }
    ) {
        return error;
    }
    let end = dial::end(&known.borrow());
    let by_inside = end.as_ref().is_some_and(|end| end.by_inside);
    let lost = lost.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match end.map(|end| end.reason).or(lost) {
        Some(reason) => SandboxError::Ended {
            name: name.to_owned(),
            reason,
            by_inside,
        },
        None => error,
    }
}

#[async_trait]
impl Walls for KubernetesSandbox {
    fn control(&self) -> &Control {
        &self.control
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        self.control.changes_since(&self.before).await
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        // The cluster does not say, but process 1 is ours: what is gone it does not see.
        self.control.changed(&[&self.control.layout.workdir, INSIDE]).await
    }

    fn isolation(&self) -> Isolation {
        Isolation::Container
    }

    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError> {
        let (public, closed) = (policy.mode == NetworkMode::Public, NetworkPolicy::none());
        if let Some(reason) = &self.open
            && !public
            && !self.allow_unisolated
        {
            return Err(SandboxError::Engine {
                what: "a pod's commands cannot be kept from the cluster's network",
                reason: format!(
                    "{reason}; allow user namespaces on the nodes, let the task have a public network \
                     (`sandbox.network = \"public\"`), or put up with it by `sandbox.kubernetes.allow_unisolated = true`"
                ),
            });
        }
        self.control.set_nowhere(!public && self.open.is_none());
        // What has a network of its own needs no gateway.
        self.control.allow(if public { &closed } else { policy });
        Ok(())
    }

    fn proxy_url(&self) -> Option<String> {
        self.control.proxy_url()
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        self.is_ours.store(true, Ordering::Relaxed);
        self.control.close();
        let removed = self.pod.lock().await.remove().await;
        removed.map_err(|reason| SandboxError::Exec {
            name: self.control.name.clone(),
            reason: format!("its pod could not be removed: {reason}"),
        })
    }

    async fn explain(&self, error: SandboxError) -> SandboxError {
        if self.is_ours.load(Ordering::Relaxed) {
            return error;
        }
        if matches!(error, SandboxError::Gone(_)) {
            let mut known = self.known.clone();
            let _ = tokio::time::timeout(SAID, known.wait_for(|known| dial::end(known).is_some())).await;
        }
        explain(&self.control.name, error, &self.known, &self.lost)
    }
}
