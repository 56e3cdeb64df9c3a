//! What differs between the backends whose sandboxes are driven by an init of ours; the rest is the same for all.

use std::path::Path;

use async_trait::async_trait;

use super::Control;
use crate::sandbox::{ExecOutput, ExecRequest, Isolation, Sandbox, SandboxError};
use crate::task::NetworkPolicy;

/// A backend's part of a running sandbox. Each method means what [`Sandbox`] says of it.
#[async_trait]
pub(in crate::sandbox) trait Walls: Send + Sync {
    fn control(&self) -> &Control;
    fn isolation(&self) -> Isolation;
    fn proxy_url(&self) -> Option<String>;
    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError>;
    async fn system_changes(&self) -> Result<Vec<String>, SandboxError>;
    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError>;
    async fn destroy(&self) -> Result<(), SandboxError>;

    /// The same error with what is known from outside of why it came to that.
    async fn explain(&self, error: SandboxError) -> SandboxError {
        error
    }
}

/// The answer, or the error as the walls explain it.
async fn explained<T>(walls: &impl Walls, answer: Result<T, SandboxError>) -> Result<T, SandboxError> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(error) => Err(walls.explain(error).await),
    }
}

#[async_trait]
impl<W: Walls> Sandbox for W {
    async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError> {
        explained(self, self.control().exec(request).await).await
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        explained(self, self.control().upload(from, to).await).await
    }

    async fn download_within(&self, from: &str, to: &Path, limit: u64) -> Result<(), SandboxError> {
        explained(self, self.control().download_within(from, to, limit).await).await
    }

    async fn download_entries(
        &self,
        root: &str,
        entries: &[String],
        to: &Path,
        limit: u64,
    ) -> Result<(), SandboxError> {
        explained(self, self.control().download_entries(root, entries, to, limit).await).await
    }

    async fn end_processes(&self) -> Result<usize, SandboxError> {
        explained(self, self.control().end_processes().await).await
    }

    async fn reset_dir(&self, path: &str) -> Result<(), SandboxError> {
        explained(self, self.control().reset_dir(path).await).await
    }

    fn workdir(&self) -> &str {
        &self.control().layout.workdir
    }

    fn path(&self, inside: &str) -> String {
        self.control().layout.path(inside)
    }

    fn refused_connections(&self) -> Vec<String> {
        self.control().refused()
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        explained(self, Walls::snapshot_diff(self).await).await
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        Walls::system_changes(self).await
    }

    fn isolation(&self) -> Isolation {
        Walls::isolation(self)
    }

    fn proxy_url(&self) -> Option<String> {
        Walls::proxy_url(self)
    }

    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError> {
        Walls::set_network(self, policy).await
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        Walls::destroy(self).await
    }
}
