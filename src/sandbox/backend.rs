//! The backend that a run asked for.

use std::path::PathBuf;
use std::sync::Arc;

use super::docker::DockerBackend;
use super::local::LocalBackend;
use super::{Isolation, Sandbox, SandboxError, SandboxSpec};

/// Makes sandboxes. One variant a value of `sandbox.backend`.
#[derive(Debug)]
pub enum Backend {
    /// Namespaces on this machine.
    Local(LocalBackend),
    /// Containers of an engine on this machine.
    Docker(Box<DockerBackend>),
    /// A backend of the documentation that is not built yet, by its name.
    NotBuilt(&'static str),
}

impl Backend {
    fn not_built(name: &'static str) -> SandboxError {
        SandboxError::NotSupported { backend: name }
    }

    /// A fresh sandbox.
    ///
    /// # Errors
    /// When it could not be built.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        match self {
            Self::Local(local) => local.create(spec).await,
            Self::Docker(docker) => docker.create(spec).await,
            Self::NotBuilt(name) => Err(Self::not_built(name)),
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
            Self::NotBuilt(name) => Err(Self::not_built(name)),
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
            Self::NotBuilt(name) => Err(Self::not_built(name)),
        }
    }
}
