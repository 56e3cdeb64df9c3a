//! A sandbox before its agent: started, ready, without the history that holds the fix; and what of it is known, so that
//! what the agent did can be told afterwards.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::TrialPlan;
use super::health;
use super::history::{History, tests_need_it};
use super::outcome::Failure;
use super::trial::TrialContext;
use crate::sandbox::{ExecRequest, Sandbox, SandboxError};
use crate::task::{Stage, TaskError};
use crate::verifier::{Changes, Owned, Watch, owned_paths};

/// A sandbox in which an agent may start.
pub(super) struct Ready {
    pub sandbox: Arc<dyn Sandbox>,
    pub stages: Vec<Stage>,
    history: History,
    keep: Option<tempfile::TempDir>,
    /// What differed from the start when the agent began.
    pub before: Vec<String>,
    pub watch: Watch,
    /// The verifier's files, of every stage.
    pub owned: Owned,
}

fn task_failure(error: &TaskError) -> Failure {
    Failure {
        retry: false,
        ..Failure::setup(error)
    }
}

impl TrialContext {
    /// Starts the trial's sandbox and makes it ready for the agent.
    pub(super) async fn set_up(&self, plan: &TrialPlan, attempt: u32) -> Result<Ready, Failure> {
        let stages = plan.task.stages().map_err(|error| task_failure(&error))?;
        fs_err::create_dir_all(self.folder(plan)).map_err(|error| Failure::infrastructure(error.to_string()))?;
        let sandbox = self.start_sandbox(plan, &attempt.to_string(), None).await?;
        let made = self.make_ready(plan, stages, Arc::clone(&sandbox)).await;
        if made.is_err() {
            self.end_sandbox(plan, sandbox.as_ref()).await;
        }
        made
    }

    async fn make_ready(
        &self,
        plan: &TrialPlan,
        stages: Vec<Stage>,
        sandbox: Arc<dyn Sandbox>,
    ) -> Result<Ready, Failure> {
        let (inside, workdir, folder) = (sandbox.as_ref(), sandbox.workdir(), self.folder(plan));
        users_exist(inside, &stages).await?;
        let check = plan.task.config.environment.healthcheck.as_ref();
        health::wait(inside, check, self.setup_limit()).await?;
        let tests: Vec<_> = stages.iter().flat_map(|stage| stage.tests.clone()).collect();
        let keep = folder_for_history(tests_need_it(&plan.task, &tests), &folder)?;
        let history = History::take(inside, workdir, keep.as_ref().map(tempfile::TempDir::path)).await?;
        let owned = stages.iter().flat_map(|stage| owned_paths(&plan.task, stage)).collect();
        let owned = Owned::keep(inside, workdir, owned, &folder)
            .await
            .map_err(|error| Failure::sandbox(&error))?;
        let before = if history.is_gone() {
            Changes::names(inside).await.map_err(|error| Failure::sandbox(&error))?
        } else {
            Vec::new()
        };
        let watch = Watch::look(inside, workdir)
            .await
            .map_err(|error| Failure::sandbox(&error))?;
        Ok(Ready {
            sandbox,
            stages,
            history,
            keep,
            before,
            watch,
            owned,
        })
    }

    /// A sandbox for tests alone: as the task has it, with the agent's changes where there are any. One with an image
    /// of its own has the tests, and none of what the changes were made to.
    pub(super) async fn fresh_for_tests(
        &self,
        plan: &TrialPlan,
        stage: &Stage,
        ready: &Ready,
        label: &str,
        changes: Option<&Changes>,
    ) -> Result<Arc<dyn Sandbox>, Failure> {
        let bundled = stage.tests_image.is_some();
        let tests = Some(stage).filter(|_| changes.is_some() || bundled);
        let own = tests.and_then(|stage| stage.verifier_environment.as_ref());
        let sandbox = self.start_sandbox(plan, label, tests).await?;
        let made = async {
            // Its own working folder may be another.
            let (inside, workdir, folder) = (sandbox.as_ref(), ready.sandbox.workdir(), self.folder(plan));
            let check = own.unwrap_or(&plan.task.config.environment).healthcheck.as_ref();
            health::wait(inside, check, self.setup_limit()).await?;
            if bundled {
                return Ok(());
            }
            let keep = folder_for_history(ready.keep.is_some(), &folder)?;
            let history = History::take(inside, workdir, keep.as_ref().map(tempfile::TempDir::path)).await?;
            if let Some(changes) = changes {
                changes
                    .carry(inside, workdir, ready.owned.paths())
                    .await
                    .map_err(|error| Failure::infrastructure(super::outcome::chain(&error)))?;
            }
            history.restore(inside).await
        };
        if let Err(failure) = made.await {
            self.end_sandbox(plan, sandbox.as_ref()).await;
            return Err(failure);
        }
        Ok(sandbox)
    }

    pub(super) fn setup_limit(&self) -> Duration {
        self.sandbox_section
            .timeouts
            .setup
            .map_or(super::trial_spec::SETUP, |limit| limit.0)
    }
}

/// Fails where the task names a user that is not there: no other try can help.
async fn users_exist(sandbox: &dyn Sandbox, stages: &[Stage]) -> Result<(), Failure> {
    let named = stages.iter().flat_map(|stage| {
        // Tests with an image of their own have its users.
        let verifier = stage
            .verifier_user
            .as_ref()
            .filter(|_| stage.verifier_environment.is_none());
        stage.agent_user.as_ref().into_iter().chain(verifier)
    });
    let named: BTreeSet<&String> = named.filter(|user| !matches!(user.as_str(), "root" | "0")).collect();
    for user in named {
        let mut request = ExecRequest::shell(":");
        request.user = Some(user.clone());
        request.cwd = Some("/".to_owned());
        match sandbox.exec(request).await {
            Ok(_) => {}
            Err(error @ SandboxError::Exec { .. }) => {
                return Err(Failure {
                    retry: false,
                    ..Failure::sandbox(&error)
                });
            }
            Err(error) => return Err(Failure::sandbox(&error)),
        }
    }
    Ok(())
}

fn folder_for_history(needed: bool, near: &Path) -> Result<Option<tempfile::TempDir>, Failure> {
    let made = needed.then(|| tempfile::tempdir_in(near)).transpose();
    made.map_err(|error| Failure::infrastructure(error.to_string()))
}

impl Ready {
    /// Takes the history out again, for the agent of a later stage.
    pub(super) async fn harden_again(&self, workdir: &str) -> Result<(), Failure> {
        History::take(self.sandbox.as_ref(), workdir, None).await.map(drop)
    }

    /// What the tests find where the agent worked: the verifier's own files and the commits they need.
    pub(super) async fn restore(&self, workdir: &str) -> Result<(), Failure> {
        self.history.restore(self.sandbox.as_ref()).await?;
        self.owned
            .restore(self.sandbox.as_ref(), workdir)
            .await
            .map_err(|error| Failure::infrastructure(super::outcome::chain(&error)))
    }
}
