//! The working folder's files that belong to the verifier: kept at the start, put back before the tests.

use std::path::Path;

use tempfile::TempDir;

use super::changes::{is_below, remove};
use super::report::TestSpec;
use crate::sandbox::{Sandbox, SandboxError};
use crate::task::{Stage, Task};

/// Key of `[metadata]` with paths below the working folder.
const KEY: &str = "verifier_files";
/// Bytes of a working folder that are looked at.
const LIMIT: u64 = 2 << 30;

/// The files' paths below the working folder, and what they held when the trial began.
#[derive(Debug, Default)]
pub struct Owned {
    paths: Vec<String>,
    kept: Option<TempDir>,
}

/// Which files they are: `metadata.verifier_files`, and the test files that `tests/config.json` names.
pub fn owned_paths(task: &Task, stage: &Stage) -> Vec<String> {
    let said = task.config.metadata.get(KEY).and_then(toml::Value::as_array);
    let mut paths: Vec<String> = said
        .into_iter()
        .flatten()
        .filter_map(toml::Value::as_str)
        .map(|path| path.trim_matches('/').to_owned())
        .collect();
    if let Some(spec) = TestSpec::of(&stage.tests) {
        paths.extend(spec.files());
    }
    paths.retain(|path| !path.is_empty() && !path.split('/').any(|part| part == ".."));
    paths.sort();
    paths.dedup();
    paths
}

impl Owned {
    /// Keeps them, below the host folder `near`, before the agent starts.
    ///
    /// # Errors
    /// When they cannot be copied.
    pub async fn keep(
        sandbox: &dyn Sandbox,
        workdir: &str,
        paths: Vec<String>,
        near: &Path,
    ) -> Result<Self, SandboxError> {
        if paths.is_empty() {
            return Ok(Self::default());
        }
        let kept = tempfile::tempdir_in(near).map_err(|source| SandboxError::Transfer {
            name: "owned".to_owned(),
            path: workdir.to_owned(),
            source,
        })?;
        sandbox
            .download_entries(workdir, &paths, &kept.path().join("files"), LIMIT)
            .await?;
        Ok(Self {
            paths,
            kept: Some(kept),
        })
    }

    /// The paths.
    pub fn paths(&self) -> &[String] {
        &self.paths
    }

    /// Those of the changed paths that are the verifier's.
    pub(super) fn among(&self, changed: &[String]) -> Vec<String> {
        changed
            .iter()
            .filter(|path| is_below(path, &self.paths))
            .cloned()
            .collect()
    }

    /// Puts them back as they were; what was not there goes.
    ///
    /// # Errors
    /// When they cannot be moved.
    pub async fn restore(&self, sandbox: &dyn Sandbox, workdir: &str) -> Result<(), SandboxError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let paths: Vec<&str> = self.paths.iter().map(String::as_str).collect();
        remove(sandbox, &paths).await?;
        sandbox.upload(&kept.path().join("files"), workdir).await
    }
}
