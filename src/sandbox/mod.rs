//! One fresh environment per trial, in which a hostile agent may do what it likes.
//!
//! The trait `Sandbox` and its backends. This module runs commands and moves files; it knows nothing
//! of tasks, rewards or models.

mod backend;
mod control;
pub mod docker;
mod egress;
mod error;
mod init;
pub mod kubernetes;
pub mod local;
mod owner;
mod runtime;
mod spec;
mod sys;
mod tree;

pub use backend::Backend;
pub use error::SandboxError;
pub use init::{INIT_COMMAND, init_main};
pub use spec::{ExecOutput, ExecRequest, Image, Isolation, Limits, Network, SandboxSpec, mirrored, registry_of};

use std::path::Path;

use async_trait::async_trait;

use crate::task::NetworkPolicy;

/// PATH of the commands inside, where they set no other.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Working folder where neither the task nor the image names one.
pub const WORKDIR: &str = "/app";

/// Folders that the agent never owned and that `reset_dir` can make anew.
pub const RESERVED: [&str; 5] = [
    "/logs/agent",
    "/logs/verifier",
    "/logs/artifacts",
    "/tests",
    "/solution",
];

/// A running sandbox. Dropping one destroys it; `destroy` also says whether that worked.
#[async_trait]
pub trait Sandbox: Send + Sync {
    /// Runs one command to its end, its output captured up to `request.output_limit`.
    ///
    /// The whole process group is killed at `request.timeout`; there is no hidden limit beside it and
    /// the sandbox's own deadline.
    ///
    /// # Errors
    /// When the command could not be started or its exit status could not be known: that is the
    /// environment's failure. A non-zero exit or a time-out of the command is an `Ok`, and so are a program
    /// or working folder that is not there (exit code 127 or 126): the agent could have removed it.
    async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError>;

    /// Copies a host file or folder to `to` (absolute path inside), creating parents.
    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError>;

    /// Copies a file or folder from inside to the host. A missing source is `SandboxError::NotFound`.
    async fn download(&self, from: &str, to: &Path) -> Result<(), SandboxError> {
        self.download_within(from, to, u64::MAX).await
    }

    /// The same, of at most `limit` bytes: of more, what came first is copied, and the error is one that
    /// [`SandboxError::is_too_large`] knows.
    async fn download_within(&self, from: &str, to: &Path, limit: u64) -> Result<(), SandboxError>;

    /// Copies these entries (files and links, paths relative to the folder `root`) to below the host folder `to`, which
    /// is made. Links stay links: none is followed, and those that lead out of `root` are left out. Entries that are not
    /// there are left out too. At most `limit` bytes of the folder are looked at.
    async fn download_entries(&self, root: &str, entries: &[String], to: &Path, limit: u64)
    -> Result<(), SandboxError>;

    /// Ends every process that runs inside, the sandbox itself excepted. Gives how many had been left
    /// running by commands that had ended.
    async fn end_processes(&self) -> Result<usize, SandboxError>;

    /// Makes one of [`RESERVED`] an empty folder, whatever was done to it: what was there is gone, a
    /// planted link is not followed.
    async fn reset_dir(&self, path: &str) -> Result<(), SandboxError>;

    /// The working folder, by its absolute path inside.
    fn workdir(&self) -> &str;

    /// The path by which commands find an absolute path inside: itself, unless the sandbox is weak.
    fn path(&self, inside: &str) -> String;

    /// Files and links below the workdir that were added, changed or removed since the start, sorted.
    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError>;

    /// Absolute paths of files outside the working folder that are other ones than at the start, as the backend knows it
    /// without the help of anything inside; nothing where the backend keeps them from being changed, or cannot know.
    ///
    /// # Errors
    /// When the backend does not answer.
    async fn system_changes(&self) -> Result<Vec<String>, SandboxError>;

    /// What this sandbox isolates, as it was found to be when it started.
    fn isolation(&self) -> Isolation;

    /// What commands reach from now on, beside the proxy, which they reach always. Ends no connection by itself.
    ///
    /// # Errors
    /// Where the sandbox cannot reach what the policy allows.
    async fn set_network(&self, policy: &NetworkPolicy) -> Result<(), SandboxError>;

    /// Hosts that were asked for and refused, as `host:port`, where that is seen; the first hundred.
    fn refused_connections(&self) -> Vec<String>;

    /// The address under which the proxy answers inside, such as `http://127.0.0.1:8080`.
    fn proxy_url(&self) -> Option<String>;

    /// Removes everything. Idempotent.
    async fn destroy(&self) -> Result<(), SandboxError>;
}
