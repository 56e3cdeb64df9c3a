//! A running container, as the rest of the library sees it.

use std::path::Path;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use super::container::Container;
use crate::sandbox::control::Control;
use crate::sandbox::control::listing::{self, Listing};
use crate::sandbox::{ExecOutput, ExecRequest, Isolation, Sandbox, SandboxError, egress};
use crate::task::{NetworkMode, NetworkPolicy};

/// One sandbox. Dropping it destroys it.
pub(super) struct DockerSandbox {
    control: Control,
    /// The working folder at the start.
    before: Listing,
    /// And whether it has the engine's network.
    container: Mutex<(Container, bool)>,
    forwarder: Option<JoinHandle<()>>,
}

impl DockerSandbox {
    pub(super) fn new(
        control: Control,
        before: Listing,
        container: Container,
        forwarder: Option<JoinHandle<()>>,
    ) -> Self {
        Self {
            control,
            before,
            container: Mutex::new((container, false)),
            forwarder,
        }
    }

    fn cut_off(&self) {
        self.control.link.close();
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
    }
}

#[async_trait]
impl Sandbox for DockerSandbox {
    async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError> {
        self.control.exec(request).await
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        self.control.upload(from, to).await
    }

    async fn download_within(&self, from: &str, to: &Path, limit: u64) -> Result<(), SandboxError> {
        self.control.download_within(from, to, limit).await
    }

    async fn end_processes(&self) -> Result<usize, SandboxError> {
        self.control.end_processes().await
    }

    async fn reset_dir(&self, path: &str) -> Result<(), SandboxError> {
        self.control.reset_dir(path).await
    }

    fn workdir(&self) -> &str {
        &self.control.layout.workdir
    }

    fn path(&self, inside: &str) -> String {
        self.control.layout.path(inside)
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        let now = self.control.list(self.workdir()).await?;
        Ok(listing::changes(&self.before, &now))
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        let failed = |reason: String| SandboxError::Engine {
            what: "the files that a container changed could not be listed",
            reason,
        };
        let changed = self.container.lock().await.0.changed().await.map_err(failed)?;
        let own = format!("{}/", self.workdir().trim_end_matches('/'));
        Ok(changed.into_iter().filter(|path| !path.starts_with(&own)).collect())
    }

    fn isolation(&self) -> Isolation {
        Isolation::Container
    }

    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError> {
        let (public, closed) = (policy.mode == NetworkMode::Public, egress::closed());
        let mut container = self.container.lock().await;
        if container.1 != public {
            container
                .0
                .set_public(public)
                .await
                .map_err(|reason| SandboxError::Engine {
                    what: "a container's network could not be changed",
                    reason,
                })?;
            container.1 = public;
        }
        // What has a network of its own needs no gateway.
        self.control.allow(if public { &closed } else { policy });
        Ok(())
    }

    fn refused_connections(&self) -> Vec<String> {
        self.control.refused()
    }

    fn proxy_url(&self) -> Option<String> {
        self.forwarder
            .as_ref()
            .map(|_| format!("http://127.0.0.1:{}", crate::sandbox::control::PROXY_PORT))
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        self.cut_off();
        let removed = self.container.lock().await.0.remove().await;
        removed.map_err(|reason| SandboxError::Exec {
            name: self.control.name.clone(),
            reason: format!("it could not be removed: {reason}"),
        })
    }
}

impl Drop for DockerSandbox {
    fn drop(&mut self) {
        self.cut_off();
    }
}
