//! The backend that a run asked for.

use std::path::PathBuf;
use std::sync::Arc;

use super::docker::DockerBackend;
use super::kubernetes::KubernetesBackend;
use super::local::LocalBackend;
use super::{Image, Isolation, Sandbox, SandboxError, SandboxSpec};

/// Makes sandboxes. One variant a value of `sandbox.backend`.
#[derive(Debug)]
pub enum Backend {
    /// Namespaces on this machine.
    Local(LocalBackend),
    /// Containers of an engine on this machine.
    Docker(Box<DockerBackend>),
    /// None here: another program makes them and runs the trials in them.
    Elsewhere,
    /// Pods of a cluster.
    Kubernetes(Box<KubernetesBackend>),
}

impl Backend {
    /// A fresh sandbox.
    ///
    /// # Errors
    /// When it could not be built.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        match self {
            Self::Local(local) => local.create(spec).await,
            Self::Docker(docker) => docker.create(spec).await,
            // Boxed: what asks a cluster is large, and every trial would be.
            Self::Kubernetes(kubernetes) => Box::pin(kubernetes.create(spec)).await,
            Self::Elsewhere => Err(SandboxError::Elsewhere),
        }
    }

    /// Makes the image be there before a sandbox asks for it, where the backend keeps images.
    ///
    /// # Errors
    /// When it could not be had.
    pub async fn fetch(&self, image: &Image) -> Result<(), SandboxError> {
        match self {
            Self::Docker(docker) => docker.fetch(image).await,
            Self::Local(_) | Self::Kubernetes(_) | Self::Elsewhere => Ok(()),
        }
    }

    /// What its sandboxes isolate, found by making one.
    ///
    /// # Errors
    /// When none can be made.
    pub async fn isolation(&self) -> Result<Isolation, SandboxError> {
        match self {
            Self::Local(local) => local.isolation().await,
            Self::Docker(docker) => docker.isolation().await,
            Self::Kubernetes(kubernetes) => Box::pin(kubernetes.isolation()).await,
            Self::Elsewhere => Err(SandboxError::Elsewhere),
        }
    }

    /// Removes what killed owners left; gives what was removed.
    ///
    /// # Errors
    /// When it could not be listed or removed.
    pub async fn reap(&self) -> Result<Vec<PathBuf>, SandboxError> {
        match self {
            Self::Local(local) => local.reap().map_err(|source| SandboxError::Reap {
                root: local.root().to_owned(),
                source,
            }),
            Self::Docker(docker) => docker.reap().await,
            Self::Kubernetes(kubernetes) => Box::pin(kubernetes.reap()).await,
            Self::Elsewhere => Ok(Vec::new()),
        }
    }
}

/// Starts a sandbox in a task of its own: were that dropped while an engine makes what it asked for, nobody would know
/// of it.
pub(in crate::sandbox) async fn by_itself<S: Sandbox + 'static>(
    name: String,
    start: impl Future<Output = Result<S, SandboxError>> + Send + 'static,
) -> Result<Arc<dyn Sandbox>, SandboxError> {
    match tokio::spawn(start).await {
        Ok(sandbox) => Ok(Arc::new(sandbox?)),
        Err(error) => Err(SandboxError::Start {
            name,
            reason: error.to_string(),
        }),
    }
}
