//! The history of the task's repository, out of the agent's reach: the fix is often in the repository's own objects.
//!
//! Before the agent starts, every store that holds objects of that history leaves the sandbox, wherever it lies, and
//! a repository of one commit takes its place. Tests that name commits get back, after the agent has ended, the
//! commits up to the one that the folder came from; what came after it never returns. Runs through `Sandbox` alone.

mod need;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::outcome::{Failure, chain};
use crate::sandbox::{ExecRequest, Isolation, Sandbox};
use crate::trajectory::Outcome;

pub(super) use need::tests_need_it;

const REMOVE: &str = concat!(include_str!("private_git.sh"), include_str!("remove.sh"));
const RESTORE: &str = concat!(include_str!("private_git.sh"), include_str!("restore.sh"));
/// Where the kept commits pass through inside.
const PASSAGE: &str = "/tmp/lego-history";
/// Time for either script.
const LIMIT: Duration = Duration::from_mins(5);

/// What was taken out of one sandbox.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The repository's folder, as commands inside find it; `None` where there was none.
    top: Option<String>,
    /// Host folder with the commits that the tests need.
    kept: Option<PathBuf>,
}

impl History {
    /// Takes the history out. With `keep`, a host folder, the commits that the tests need are kept there.
    ///
    /// # Errors
    /// Where something of it could not be removed or no new repository could be made: no agent may start then.
    pub(super) async fn take(sandbox: &dyn Sandbox, workdir: &str, keep: Option<&Path>) -> Result<Self, Failure> {
        let passage = sandbox.path(PASSAGE);
        let mut request = ExecRequest::as_root(REMOVE);
        request.argv.extend([
            "harden".to_owned(),
            sandbox.path(workdir),
            keep.map(|_| passage.clone()).unwrap_or_default(),
        ]);
        // Without namespaces the root is the host's own: only the sandbox's folders are searched then.
        if !matches!(sandbox.isolation(), Isolation::Weak(_)) {
            request.argv.push("/".to_owned());
        }
        request.timeout = LIMIT;
        let ran = sandbox.exec(request).await.map_err(|error| Failure::setup(&error))?;
        if ran.exit_code != 0 {
            return Err(Failure {
                outcome: Outcome::EnvSetupFailed,
                reason: format!(
                    "the repository's history could not be taken out of the sandbox (exit code {}): {}",
                    ran.exit_code,
                    ran.output.trim()
                ),
                retry: ran.timed_out,
            });
        }
        let top = ran.output.lines().find_map(|line| line.strip_prefix("top "));
        let mut history = Self {
            top: top.map(str::to_owned),
            kept: None,
        };
        if let (Some(keep), Some(_)) = (keep, &history.top) {
            match sandbox.download(PASSAGE, keep).await {
                Ok(()) => history.kept = Some(keep.to_owned()),
                // A repository without a commit has nothing to keep.
                Err(crate::sandbox::SandboxError::NotFound { .. }) => {}
                Err(error) => return Err(Failure::setup(&error)),
            }
            let mut clear = ExecRequest::as_root("rm -rf \"$0\"");
            clear.argv.push(passage);
            sandbox.exec(clear).await.map_err(|error| Failure::setup(&error))?;
        }
        Ok(history)
    }

    /// Whether there was one.
    pub(super) fn is_gone(&self) -> bool {
        self.top.is_some()
    }

    /// Ends what the agent set up in the repository (hooks, settings), and gives the tests the commits they need.
    ///
    /// # Errors
    /// Where the commits could not be put back.
    pub(super) async fn restore(&self, sandbox: &dyn Sandbox) -> Result<(), Failure> {
        let Some(top) = &self.top else { return Ok(()) };
        let infrastructure = |error: &dyn std::error::Error| Failure::infrastructure(chain(error));
        let mut passage = String::new();
        if let Some(kept) = &self.kept {
            passage = sandbox.path(PASSAGE);
            let mut clear = ExecRequest::as_root("rm -rf \"$0\"");
            clear.argv.push(passage.clone());
            sandbox.exec(clear).await.map_err(|error| infrastructure(&error))?;
            sandbox
                .upload(kept, PASSAGE)
                .await
                .map_err(|error| infrastructure(&error))?;
        }
        let mut request = ExecRequest::as_root(RESTORE);
        request
            .argv
            .extend(["restore".to_owned(), top.clone(), passage.clone()]);
        request.timeout = LIMIT;
        let ran = sandbox.exec(request).await.map_err(|error| infrastructure(&error))?;
        if ran.exit_code != 0 && !passage.is_empty() {
            return Err(Failure::infrastructure(format!(
                "the commits that the tests need could not be put back: {}",
                ran.output.trim()
            )));
        }
        Ok(())
    }
}
