//! From a plan to what its trial may use: folder, time limits, sandbox.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::image::{image_of, image_of_tests, unfit};
use super::outcome::{Failure, chain};
use super::trial::TrialContext;
use super::{Purpose, TrialPlan};
use crate::config::{HumanDuration, KeepSandbox, SandboxSection};
use crate::proxy::SessionTicket;
use crate::run_dir::RunDir;
use crate::sandbox::{Limits, Network, Sandbox, SandboxError, SandboxSpec};
use crate::task::{NetworkPolicy, Stage, resolve_env};
use crate::trajectory::Outcome;

/// Time for what has no limit of its own: stopping, collecting, tearing down.
pub(super) const TEARDOWN: Duration = Duration::from_secs(30);
/// Time to start a sandbox where neither the run nor the task says otherwise.
pub(super) const SETUP: Duration = Duration::from_mins(10);
/// Time for the agent where neither the run nor the task limits it.
const AGENT: Duration = Duration::from_hours(1);

impl TrialContext {
    /// The trial's folder.
    pub(super) fn folder(&self, plan: &TrialPlan) -> PathBuf {
        let step = RunDir::trials_of(plan.step.into(), plan.purpose == Purpose::Evaluate);
        self.trials.join(step).join(plan.name())
    }

    pub(super) fn agent_limit(&self, stage: &Stage) -> Duration {
        let section = &self.sandbox_section;
        phase_limit(section, section.timeouts.agent, stage.agent_timeout.unwrap_or(AGENT))
    }

    /// Model calls of a session at most. An agent inside is stopped by the proxy, since most have no cap of their own.
    pub(super) fn session_turn_cap(&self) -> Option<u32> {
        let own = self.scaffold.runs_inside().then_some(self.scaffold_section.max_turns);
        own.into_iter().chain(self.turn_cap).min()
    }

    pub(super) fn verifier_limit(&self, stage: &Stage) -> Duration {
        let section = &self.sandbox_section;
        phase_limit(section, section.timeouts.verifier, stage.verifier_timeout)
    }

    /// A fresh sandbox of the trial; `label` tells it from the trial's others. `tests` is the stage whose own
    /// environment and image it is to have, where it has any.
    pub(super) async fn start_sandbox(
        &self,
        plan: &TrialPlan,
        label: &str,
        tests: Option<&Stage>,
    ) -> Result<Arc<dyn Sandbox>, Failure> {
        let setup = self.setup_limit();
        let spec = self.sandbox_spec(plan, label, tests)?;
        match tokio::time::timeout(setup, self.backend.create(spec)).await {
            Ok(Ok(sandbox)) => Ok(sandbox),
            Ok(Err(error)) => Err(Failure::sandbox(&error)),
            Err(_) => Err(Failure::not_ready(format!(
                "the sandbox was not ready within {setup:?}"
            ))),
        }
    }

    /// What the sandbox reaches from now on.
    pub(super) async fn reach(&self, sandbox: &dyn Sandbox, policy: &NetworkPolicy) -> Result<(), Failure> {
        match tokio::time::timeout(TEARDOWN, sandbox.set_network(policy)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Failure::infrastructure(chain(&error))),
            Err(_) => Err(Failure::infrastructure(format!(
                "the sandbox's network was not changed within {TEARDOWN:?}"
            ))),
        }
    }

    /// Ends a sandbox. One that cannot be removed is warned of, and left to the next start.
    pub(super) async fn end_sandbox(&self, plan: &TrialPlan, sandbox: &dyn Sandbox) {
        match tokio::time::timeout(TEARDOWN, sandbox.destroy()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(trial = plan.name(), error = chain(&error), "sandbox not removed"),
            Err(_) => tracing::warn!(trial = plan.name(), "sandbox not removed within {TEARDOWN:?}"),
        }
    }

    /// Copies the working folder into the trial's folder as `workdir/`, where `sandbox.keep` asks for it.
    pub(super) async fn keep_workdir(&self, plan: &TrialPlan, sandbox: &dyn Sandbox, graded: bool) {
        let wanted = match self.sandbox_section.keep {
            KeepSandbox::Never => false,
            KeepSandbox::Failed => !graded,
            KeepSandbox::Always => true,
        };
        if !wanted {
            return;
        }
        let to = self.folder(plan).join("workdir");
        let inside = sandbox.workdir().to_owned();
        let copied = async {
            // An earlier attempt's.
            if to.exists() {
                fs_err::remove_dir_all(&to).map_err(|source| SandboxError::Transfer {
                    name: plan.name(),
                    path: inside.clone(),
                    source,
                })?;
            }
            sandbox.download(&inside, &to).await
        };
        match tokio::time::timeout(TEARDOWN, copied).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(trial = plan.name(), error = chain(&error), "working folder not kept"),
            Err(_) => tracing::warn!(trial = plan.name(), "working folder not kept within {TEARDOWN:?}"),
        }
    }

    fn sandbox_spec(&self, plan: &TrialPlan, label: &str, tests: Option<&Stage>) -> Result<SandboxSpec, Failure> {
        let section = &self.sandbox_section;
        let own = tests.and_then(|stage| stage.verifier_environment.as_ref());
        let own_image = tests.and_then(|stage| stage.tests_image.as_ref());
        let environment = own.unwrap_or(&plan.task.config.environment);
        let stages = plan.task.stages().map_err(|error| Failure::setup(&error))?;
        let phases: Duration = stages
            .iter()
            .map(|stage| self.agent_limit(stage) + self.verifier_limit(stage) * (1 + self.verifier_section.repeats))
            .sum();
        let mut env = resolved(plan, &environment.env)?;
        env.extend(self.scaffold_section.env.clone());
        if let Some(reason) = unfit(&plan.task, &stages, section) {
            return Err(Failure {
                outcome: Outcome::EnvSetupFailed,
                reason,
                retry: false,
            });
        }
        Ok(SandboxSpec {
            source: plan.task.local_source().unwrap_or_default(),
            image: match own_image {
                Some(own) => Some(image_of_tests(&plan.task, own, section)),
                None => image_of(&plan.task, section),
            },
            workdir: environment
                .workdir
                .clone()
                .or_else(|| plan.task.workdir().filter(|_| own_image.is_none())),
            env,
            limits: Limits {
                cpus: section.cpus.or(environment.cpus.map(|cpus| cpus as f32)),
                memory: section
                    .memory
                    .map(|size| size.0)
                    .or(environment.memory_mb().map(|mb| mb << 20)),
                pids: section.pids,
                disk: environment.storage_mb().map(|mb| mb << 20),
            },
            network: Network::Proxy(self.proxy_address),
            name: format!("{}-{}-{label}", plan.step, plan.name()),
            labels: BTreeMap::from([("run".to_owned(), self.run_id.clone())]),
            lifetime: SETUP + phases + TEARDOWN * 4 * stages.len() as u32,
        })
    }
}

/// The run's own limit, else the task's times the multiplier.
fn phase_limit(section: &SandboxSection, own: Option<HumanDuration>, tasks: Duration) -> Duration {
    own.map_or_else(|| tasks.mul_f64(section.timeout_multiplier), |limit| limit.0)
}

/// The session's base URL as a program inside reaches it.
pub(super) fn url_inside(sandbox: &dyn Sandbox, session: &SessionTicket) -> String {
    match sandbox.proxy_url() {
        Some(proxy) => format!("{}/sess/{}", proxy.trim_end_matches('/'), session.key),
        None => session.url.clone(),
    }
}

/// An environment table of task.toml with the host's variables filled in.
pub(super) fn resolved(
    plan: &TrialPlan,
    table: &BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, Failure> {
    resolve_env(&plan.task.dir.join("task.toml"), table, |name| std::env::var(name).ok()).map_err(|error| Failure {
        retry: false,
        ..Failure::setup(&error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_own_limit_is_the_only_one() {
        let mut section = SandboxSection::default();
        let hours = Duration::from_hours(30);
        assert_eq!(phase_limit(&section, None, hours), hours);
        section.timeout_multiplier = 2.0;
        assert_eq!(phase_limit(&section, None, hours), hours * 2);
        assert_eq!(phase_limit(&section, Some(HumanDuration(hours)), Duration::ZERO), hours);
    }
}
