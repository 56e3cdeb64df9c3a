//! Sandboxes on this machine: no image, no daemon, no root.
//!
//! Where the kernel allows, each is a process tree of its own in fresh user, mount, pid, network, ipc and
//! uts namespaces (`../init/` builds it); elsewhere a copied folder fenced by landlock, seccomp and limits.
//! Which of the two is found by doing it once. What this backend never does: run anything as the
//! machine's root, or give a sandbox a way out other than the proxy.

mod running;
mod start;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::OnceCell;

use super::control::wire::Mode;
use super::{Isolation, Sandbox, SandboxError, SandboxSpec, owner};
use start::Refusal;

/// The unprivileged user that root becomes inside.
pub(super) const NOBODY: u32 = 65534;
/// Folders of a sandbox without namespaces, below its host folder.
pub(super) const FOLDERS: [&str; 6] = ["work", "logs", "tests", "solution", "tmp", "home"];

const WEAK: &str = "user namespaces are not allowed here: commands run as this machine's user on a copy of the folder, \
    kept from other files by landlock; they see its processes, and its network except for TCP connections; absolute \
    paths such as /logs and /tests are found through LEGO_LOGS_DIR and LEGO_TESTS_DIR";
const WEAKER: &str = "neither user namespaces nor landlock are allowed here: commands run as this machine's user on a \
    copy of the folder and reach its files, its processes and its network; absolute paths such as /logs and /tests are \
    found through LEGO_LOGS_DIR and LEGO_TESTS_DIR";

/// How the local backend works on this machine.
#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The executable whose first argument [`super::INIT_COMMAND`] leads to [`super::init_main`].
    pub init_exe: PathBuf,
    /// Host folder for the sandboxes' own folders; made where it is missing. Without namespaces and as
    /// root it must be reachable for the unprivileged user 65534.
    pub root: PathBuf,
    /// Further host folders that appear inside at their own path, read-only.
    pub read_only: Vec<PathBuf>,
    /// Larger source folders (bytes) become the lower layer of an overlay rather than a copy. An overlay
    /// needs namespaces and files that this user owns; root always copies.
    pub copy_limit: u64,
    /// Do without namespaces even where they are allowed.
    pub force_weak: bool,
}

impl LocalOptions {
    /// Namespaces where they are allowed; folders up to 64 MiB are copied.
    pub fn new(init_exe: impl Into<PathBuf>, root: impl Into<PathBuf>) -> Self {
        Self {
            init_exe: init_exe.into(),
            root: root.into(),
            read_only: Vec::new(),
            copy_limit: 64 << 20,
            force_weak: false,
        }
    }
}

/// Makes sandboxes on this machine.
#[derive(Debug)]
pub struct LocalBackend {
    options: LocalOptions,
    found: OnceCell<Isolation>,
}

impl LocalBackend {
    /// Nothing is started or probed yet.
    pub fn new(options: LocalOptions) -> Self {
        Self {
            options,
            found: OnceCell::new(),
        }
    }

    /// What a sandbox isolates here, found by making one; remembered.
    ///
    /// # Errors
    /// When neither kind of sandbox works, with the system's reason.
    pub async fn isolation(&self) -> Result<Isolation, SandboxError> {
        self.found.get_or_try_init(|| self.probe()).await.copied()
    }

    async fn probe(&self) -> Result<Isolation, SandboxError> {
        let failed = |source: io::Error| SandboxError::Start {
            name: "probe".to_owned(),
            reason: source.to_string(),
        };
        fs_err::create_dir_all(&self.options.root).map_err(failed)?;
        let source = tempfile::tempdir_in(&self.options.root).map_err(failed)?;
        let spec = SandboxSpec::probe(source.path().to_owned());
        if !self.options.force_weak {
            match start::start(&self.options, spec.clone(), Mode::Namespaces).await {
                Ok(sandbox) => {
                    sandbox.destroy().await?;
                    return Ok(Isolation::Namespaces);
                }
                Err(Refusal::Refused(reason)) => tracing::info!(reason, "namespaces are refused here"),
                Err(Refusal::Failed(error)) => return Err(error),
            }
        }
        let sandbox = start::start(&self.options, spec, Mode::Weak).await?;
        sandbox.destroy().await?;
        Ok(sandbox.isolation())
    }

    /// A fresh sandbox.
    ///
    /// # Errors
    /// When it could not be built, or was not ready in time.
    pub async fn create(&self, spec: SandboxSpec) -> Result<Arc<dyn Sandbox>, SandboxError> {
        let mode = match self.isolation().await? {
            Isolation::Weak(_) => Mode::Weak,
            Isolation::Namespaces | Isolation::Container => Mode::Namespaces,
        };
        Ok(Arc::new(start::start(&self.options, spec, mode).await?))
    }

    /// Removes what killed owners left; gives the removed folders. Their processes ended with them.
    ///
    /// # Errors
    /// When the folder cannot be read or something cannot be removed.
    pub fn reap(&self) -> io::Result<Vec<PathBuf>> {
        owner::reap(&self.options.root)
    }

    /// Folders of sandboxes that this process has made and that are not removed yet.
    ///
    /// # Errors
    /// When the folder of the sandboxes cannot be read.
    pub fn own(&self) -> io::Result<Vec<PathBuf>> {
        owner::own(&self.options.root)
    }

    /// Folder of the sandboxes.
    pub fn root(&self) -> &Path {
        &self.options.root
    }
}
