//! Sandboxes in the pods of a cluster: one pod a trial, driven by our own init like every other sandbox.
//!
//! The cluster pulls the image and makes the pod; our init is process 1 of its main container, reached over an exec
//! stream that may break and is made anew (`../control/remote`). What it needs to run is put into the pod before by an
//! init container. A run owns its pods by a label with a number of its own and by a Lease that it renews: whoever finds
//! that expired removes them. What it must not do: trust anything but the kubelet's word on how a pod ended.

mod client;
mod dial;
mod lease;
mod pod;
mod rights;
mod running;
mod start;
mod state;
mod watcher;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Preconditions};
use tokio::sync::{OnceCell, Semaphore};

use super::backend::by_itself;
use super::runtime::{self, Runtime};
use super::{Isolation, Sandbox, SandboxError, SandboxSpec};
use crate::config::KubernetesSection;
use client::{Cluster, Refused};
use lease::Lease;
use watcher::Watcher;

/// Label of a pod and of a Lease with the number of the run that owns it.
const OWNER: &str = "lego.owner";
/// The container that the agent works in.
const MAIN: &str = "main";
/// The one before it, which puts our files into the pod.
const RUNTIME: &str = "lego-runtime";
/// Time for one call that is not repeated for other reasons than failures of the server.
const CALL: Duration = Duration::from_mins(1);

/// How pods are made.
#[derive(Debug, Clone)]
pub struct KubernetesOptions {
    /// The executable whose first argument [`super::INIT_COMMAND`] leads to [`super::init_main`].
    pub init_exe: PathBuf,
    /// The cluster, and what its pods are to be.
    pub cluster: KubernetesSection,
}

impl KubernetesOptions {
    /// As a run's file has it.
    pub fn new(init_exe: impl Into<PathBuf>, cluster: &KubernetesSection) -> Self {
        Self {
            init_exe: init_exe.into(),
            cluster: cluster.clone(),
        }
    }
}

/// Makes sandboxes in pods.
pub struct KubernetesBackend {
    options: KubernetesOptions,
    cluster: OnceCell<Cluster>,
    runtime: OnceCell<Payload>,
    own: OnceCell<Own>,
    starting: Arc<Semaphore>,
}

impl std::fmt::Debug for KubernetesBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("KubernetesBackend")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What a pod needs to run our init, and as it is sent.
#[derive(Clone)]
struct Payload {
    runtime: Runtime,
    packed: Arc<Vec<u8>>,
}

/// What this run has in the cluster.
struct Own {
    lease: Lease,
    watcher: Watcher,
}

impl KubernetesBackend {
    /// Nothing is contacted yet.
    pub fn new(options: KubernetesOptions) -> Self {
        Self {
            starting: Arc::new(Semaphore::new((options.cluster.starts as usize).max(1))),
            options,
            cluster: OnceCell::new(),
            runtime: OnceCell::new(),
            own: OnceCell::new(),
        }
    }

    async fn cluster(&self) -> Result<&Cluster, SandboxError> {
        self.cluster
            .get_or_try_init(|| client::connect(&self.options.cluster))
            .await
    }

    async fn payload(&self) -> Result<&Payload, SandboxError> {
        self.runtime
            .get_or_try_init(|| async {
                let runtime = runtime::find(&self.options.init_exe).await?;
                let sent = self.options.cluster.runtime_image.is_none();
                let packing = runtime.clone();
                let packed =
                    tokio::task::spawn_blocking(move || if sent { packing.pack() } else { Ok(Vec::new()) }).await;
                let packed = packed.unwrap_or_else(|error| Err(std::io::Error::other(error)));
                let packed = packed.map_err(|error| SandboxError::Engine {
                    what: "the sandbox's init cannot be prepared",
                    reason: error.to_string(),
                })?;
                Ok(Payload {
                    runtime,
                    packed: Arc::new(packed),
                })
            })
            .await
    }

    /// What its sandboxes keep apart, if the cluster answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn isolation(&self) -> Result<Isolation, SandboxError> {
        self.cluster().await.map(|_| Isolation::Container)
    }

    /// Rights in the namespace that trials need and this process lacks, as `verb resource`; and the namespace.
    ///
    /// # Errors
    /// When the cluster does not say.
    pub async fn missing_rights(&self) -> Result<(Vec<String>, String), SandboxError> {
        let cluster = self.cluster().await?;
        Ok((
            rights::missing(cluster, &self.options.cluster).await?,
            cluster.namespace.clone(),
        ))
    }

    /// A fresh sandbox from the spec's image, which the cluster pulls.
    ///
    /// # Errors
    /// When there is no image, or no pod could be made of it.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let cluster = self.cluster().await?.clone();
        let payload = self.payload().await?.clone();
        let own = self
            .own
            .get_or_try_init(|| async {
                let lease = Lease::take(&cluster).await?;
                let watcher = Watcher::spawn(cluster.pods.clone(), format!("{OWNER}={}", lease.number()));
                Ok::<_, SandboxError>(Own { lease, watcher })
            })
            .await?;
        let permit = Arc::clone(&self.starting).acquire_owned().await;
        let (options, owner, watcher) = (self.options.clone(), own.lease.owner(), own.watcher.clone());
        by_itself(spec.name.clone(), async move {
            let started = start::start(cluster, payload, options, owner, watcher, spec).await;
            drop(permit);
            started
        })
        .await
    }

    /// Removes the pods of runs whose Lease has expired; gives their names.
    ///
    /// # Errors
    /// When they cannot be listed or removed.
    pub async fn reap(&self) -> Result<Vec<PathBuf>, SandboxError> {
        let removed = lease::reap(self.cluster().await?).await?;
        Ok(removed.into_iter().map(PathBuf::from).collect())
    }
}

/// Deletes a pod at once. One that is gone already is fine.
async fn remove(pods: &Api<Pod>, name: &str, uid: Option<String>) -> Result<(), String> {
    let parameters = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: uid.map(|uid| Preconditions {
            uid: Some(uid),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match client::call(CALL, || pods.delete(name, &parameters)).await {
        Ok(_) | Err(Refused::Missing | Refused::Exists(_)) => Ok(()),
        Err(refused) => Err(refused.to_string()),
    }
}
