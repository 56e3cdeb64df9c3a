//! A running container, as the rest of the library sees it.

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::container::Container;
use crate::sandbox::control::listing::Listing;
use crate::sandbox::control::{Control, Walls};
use crate::sandbox::runtime::INSIDE;
use crate::sandbox::{Isolation, SandboxError};
use crate::task::{NetworkMode, NetworkPolicy};

/// One sandbox. Dropping it destroys it.
pub(super) struct DockerSandbox {
    control: Control,
    /// The working folder at the start.
    before: Listing,
    /// And whether it has the engine's network.
    container: Mutex<(Container, bool)>,
}

impl DockerSandbox {
    pub(super) fn new(control: Control, before: Listing, container: Container) -> Self {
        Self {
            control,
            before,
            container: Mutex::new((container, false)),
        }
    }
}

#[async_trait]
impl Walls for DockerSandbox {
    fn control(&self) -> &Control {
        &self.control
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        self.control.changes_since(&self.before).await
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        let failed = |reason: String| SandboxError::Engine {
            what: "the files that a container changed could not be listed",
            reason,
        };
        let changed = self.container.lock().await.0.changed().await.map_err(failed)?;
        // The working folder, and where what the init needs is mounted.
        let own = [&self.control.layout.workdir, INSIDE].map(|folder| format!("{}/", folder.trim_end_matches('/')));
        let foreign = |path: &String| !own.iter().any(|own| path.starts_with(own));
        Ok(changed.into_iter().filter(foreign).collect())
    }

    fn isolation(&self) -> Isolation {
        Isolation::Container
    }

    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError> {
        let (public, closed) = (policy.mode == NetworkMode::Public, NetworkPolicy::none());
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

    fn proxy_url(&self) -> Option<String> {
        self.control.proxy_url()
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        self.control.close();
        let removed = self.container.lock().await.0.remove().await;
        removed.map_err(|reason| SandboxError::Exec {
            name: self.control.name.clone(),
            reason: format!("it could not be removed: {reason}"),
        })
    }
}
