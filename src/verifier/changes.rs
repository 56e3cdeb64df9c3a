//! What the agent changed in the working folder: names, and contents on the host. Nothing of it is trusted.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;

use crate::sandbox::{ExecRequest, Sandbox, SandboxError};

/// Bytes of a working folder that are looked at.
const LIMIT: u64 = 2 << 30;

/// Files and links of the working folder that were added, changed or removed; git's own are left out.
#[derive(Debug)]
pub struct Changes {
    paths: Vec<String>,
    /// Those that are there, as they are; `None` where the folder is larger than is looked at.
    files: Option<TempDir>,
}

impl Changes {
    /// Names of what differs from the start, before an agent has begun: what the set-up itself removed.
    ///
    /// # Errors
    /// When the sandbox cannot say.
    pub async fn names(sandbox: &dyn Sandbox) -> Result<Vec<String>, SandboxError> {
        let mut paths = sandbox.snapshot_diff().await?;
        paths.retain(|path| !path.split('/').any(|part| part == ".git"));
        Ok(paths)
    }

    /// What is different now, without what was gone already in `before`. Contents go to a folder below `near`.
    ///
    /// # Errors
    /// When the sandbox cannot say. A folder larger than 2 GiB, or one that the agent closed, is no error: its contents
    /// are then not known.
    pub async fn of(
        sandbox: &dyn Sandbox,
        workdir: &str,
        before: &[String],
        near: &Path,
    ) -> Result<Self, SandboxError> {
        let mut paths = Self::names(sandbox).await?;
        let failed = |source: io::Error| SandboxError::Transfer {
            name: "changes".to_owned(),
            path: workdir.to_owned(),
            source,
        };
        let folder = tempfile::tempdir_in(near).map_err(failed)?;
        let files = folder.path().join("files");
        let whole = match sandbox.download_entries(workdir, &paths, &files, LIMIT).await {
            Ok(()) => true,
            Err(SandboxError::Transfer { .. } | SandboxError::NotFound { .. }) => false,
            Err(error) => return Err(error),
        };
        let before: BTreeSet<&str> = before.iter().map(String::as_str).collect();
        paths.retain(|path| !before.contains(path.as_str()) || files.join(path).symlink_metadata().is_ok());
        Ok(Self {
            paths,
            files: whole.then_some(folder),
        })
    }

    /// Their paths, sorted, those that are gone among them.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Whether the contents are known.
    pub fn is_whole(&self) -> bool {
        self.files.is_some()
    }

    fn folder(&self) -> Option<PathBuf> {
        self.files.as_ref().map(|folder| folder.path().join("files"))
    }

    /// The file on the host, where it is a file and still there.
    pub(super) fn file(&self, path: &str) -> Option<PathBuf> {
        let file = self.folder()?.join(path);
        file.symlink_metadata().ok()?.is_file().then_some(file)
    }

    /// Its text, of files up to `limit` bytes.
    pub(super) fn text(&self, path: &str, limit: u64) -> Option<String> {
        let file = self.file(path)?;
        (fs_err::metadata(&file).ok()?.len() <= limit).then_some(())?;
        Some(String::from_utf8_lossy(&fs_err::read(file).ok()?).into_owned())
    }

    /// The same for whoever keeps the agent's work; `None` also for what is no text.
    pub fn text_of(&self, path: &str, limit: u64) -> Option<String> {
        let file = self.file(path)?;
        (fs_err::metadata(&file).ok()?.len() <= limit).then_some(())?;
        fs_err::read_to_string(file).ok()
    }

    pub(super) fn is_executable(&self, path: &str) -> bool {
        self.file(path)
            .and_then(|file| fs_err::metadata(file).ok())
            .is_some_and(|meta| meta.permissions().mode() & 0o111 != 0)
    }

    /// Makes the same changes in another sandbox that began as this one did, but for paths at or below `without`.
    ///
    /// # Errors
    /// When the contents are not known or cannot be moved.
    pub async fn carry(&self, to: &dyn Sandbox, workdir: &str, without: &[String]) -> Result<(), SandboxError> {
        let failed = |source: io::Error| SandboxError::Transfer {
            name: "changes".to_owned(),
            path: workdir.to_owned(),
            source,
        };
        let Some(files) = self.folder() else {
            return Err(failed(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("the working folder holds more than {LIMIT} bytes"),
            )));
        };
        let carried: Vec<&str> = self
            .paths
            .iter()
            .map(String::as_str)
            .filter(|path| !is_below(path, without))
            .collect();
        for path in self.paths.iter().filter(|path| is_below(path, without)) {
            let file = files.join(path);
            if file.symlink_metadata().is_ok() {
                fs_err::remove_file(file).map_err(failed)?;
            }
        }
        remove(to, &carried).await?;
        to.upload(&files, workdir).await
    }
}

/// Whether a path is one of these, or below one.
pub(super) fn is_below(path: &str, these: &[String]) -> bool {
    these.iter().any(|mine| {
        path == mine
            || path
                .strip_prefix(mine.as_str())
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// Removes paths of the working folder; no link is followed to get there.
pub(super) async fn remove(sandbox: &dyn Sandbox, paths: &[&str]) -> Result<(), SandboxError> {
    if paths.is_empty() {
        return Ok(());
    }
    let mut request = ExecRequest::as_root(
        "xargs -0 sh -c 'for path; do parent=$path; \
        while :; do case $parent in */*) parent=${parent%/*} ;; *) break ;; esac; [ -L \"$parent\" ] && continue 2; done; \
        rm -rf -- \"./$path\"; done' sh",
    );
    request.stdin = Some(paths.iter().flat_map(|path| [*path, "\0"]).collect());
    request.timeout = Duration::from_mins(2);
    let ran = sandbox.exec(request).await?;
    if ran.exit_code == 0 {
        Ok(())
    } else {
        Err(SandboxError::Exec {
            name: "changes".to_owned(),
            reason: format!("old files could not be removed: {}", ran.output.trim()),
        })
    }
}
