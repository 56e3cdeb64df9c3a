//! A running local sandbox, as the rest of the library sees it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::process::Child;

use crate::sandbox::control::{Control, Walls};
use crate::sandbox::{Isolation, SandboxError, owner, tree};
use crate::task::NetworkPolicy;

/// How long an init may take to end, with all that is inside.
const ENDING: Duration = Duration::from_secs(10);

/// One sandbox. Dropping it destroys it.
pub(super) struct LocalSandbox {
    pub(super) control: Control,
    /// Host folder that the working folder was made from.
    pub(super) source: PathBuf,
    /// Lower folder of an overlay; `None` where the source was copied.
    pub(super) lower: Option<PathBuf>,
    pub(super) child: Mutex<Option<Child>>,
    pub(super) isolation: Isolation,
    pub(super) proxy_url: Option<String>,
}

/// Waits until the init is gone, then removes the folder.
fn tear_down(mut child: Child, folder: &Path) -> io::Result<()> {
    let start = Instant::now();
    let mut killed = false;
    while child.try_wait()?.is_none() {
        if start.elapsed() > ENDING {
            if killed {
                return Err(io::Error::other("its init does not end"));
            }
            killed = true;
            child.start_kill()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    owner::remove(folder)
}

#[async_trait]
impl Walls for LocalSandbox {
    fn control(&self) -> &Control {
        &self.control
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        let (source, scratch, lower) = (
            self.source.clone(),
            self.control.layout.scratch.clone(),
            self.lower.clone(),
        );
        let compared = tokio::task::spawn_blocking(move || match lower {
            Some(lower) => tree::compare_overlay(&lower, &scratch.join("upper")),
            None => tree::compare(&source, &scratch.join("work")),
        });
        let compared = compared.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        compared.map_err(|error| self.control.transfer_error(&self.control.layout.workdir, error))
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        // The system's folders are read-only, or not this user's.
        Ok(Vec::new())
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError> {
        self.control.allow(policy);
        Ok(())
    }

    fn proxy_url(&self) -> Option<String> {
        self.proxy_url.clone()
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = child else { return Ok(()) };
        self.control.close();
        let folder = self.control.layout.scratch.clone();
        let done = tokio::task::spawn_blocking(move || tear_down(child, &folder)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| SandboxError::Exec {
            name: self.control.name.clone(),
            reason: format!("it could not be removed: {error}"),
        })
    }
}

impl Drop for LocalSandbox {
    fn drop(&mut self) {
        self.control.close();
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = child else { return };
        let folder = self.control.layout.scratch.clone();
        let end = move || {
            if let Err(error) = tear_down(child, &folder) {
                tracing::warn!(folder = %folder.display(), %error, "a dropped sandbox was not removed");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}
