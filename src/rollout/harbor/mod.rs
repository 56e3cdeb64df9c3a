//! Trials that an installed Harbor runs: its environments, its agents, its verifier. Our proxy records the tokens.
//!
//! Nothing of sandbox/, scaffold/ and verifier/ has a part in it, so that none of their defences hold here: what
//! Harbor says of a trial is what there is. Seen with Harbor 0.26.

mod failure;
mod process;
mod result;
mod trial_config;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;

use super::TrialPlan;
use super::outcome::{Failure, chain};
use super::trial::{TrialContext, TrialRecord};
use super::trial_spec::TEARDOWN;
use crate::config::{HarborSection, SandboxSection, ScaffoldSection};
use crate::proxy::{SessionCapture, SessionTicket};
use crate::scaffold::{AgentJob, AgentReport, Scaffold, ScaffoldError};
use crate::trajectory::Outcome;
use process::End;
use result::HarborResult;

/// Time to say its version: Python starts, and its libraries are large.
const PROBE: Duration = Duration::from_mins(2);
/// Time beyond the phases' own limits: its start, the agent's set-up, what it downloads, tearing down.
const BESIDE: Duration = Duration::from_mins(30);
/// What it and its environments wrote, in the trial's folder.
const LOG: &str = "harbor.log";
/// Folder of its own trial folder, in ours.
const FOLDER: &str = "harbor";
/// What people look for in a trial's folder, and Harbor has in its own.
const SHOWN: [&str; 4] = ["agent", "verifier", "artifacts", "steps"];

/// Why Harbor cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HarborError {
    /// No such program.
    #[error(
        "sandbox.harbor.command: `{program}` cannot be started ({source}); install Harbor (`uv tool install harbor`), or \
         write the path of its command"
    )]
    Start {
        /// As written.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is no Harbor, or a broken one.
    #[error("sandbox.harbor.command: `{command} --version` {reason}")]
    Version {
        /// As written.
        command: String,
        /// What happened.
        reason: String,
    },
}

/// Harbor's command, found and ready.
#[derive(Debug, Clone)]
pub struct Harbor {
    section: HarborSection,
    version: String,
}

impl Harbor {
    /// Asks for its version.
    ///
    /// # Errors
    /// Where there is none.
    pub async fn find(section: &HarborSection) -> Result<Self, HarborError> {
        let command = section.command.join(" ");
        let wrong = |reason: String| HarborError::Version {
            command: command.clone(),
            reason,
        };
        let mut asked = command_of(section);
        asked
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let output = tokio::time::timeout(PROBE, asked.output())
            .await
            .map_err(|_| wrong(format!("did not end within {PROBE:?}")))?
            .map_err(|source| HarborError::Start {
                program: section.command.first().cloned().unwrap_or_default(),
                source,
            })?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(wrong(format!("failed ({}): {why}", output.status)));
        }
        let version = said.lines().last().unwrap_or_default().trim().to_owned();
        if version.is_empty() {
            return Err(wrong("said nothing".to_owned()));
        }
        Ok(Self {
            section: section.clone(),
            version,
        })
    }

    /// Its version.
    pub fn version(&self) -> &str {
        &self.version
    }
}

fn command_of(section: &HarborSection) -> Command {
    let mut words = section.command.iter();
    let mut command = Command::new(words.next().map_or("harbor", String::as_str));
    command.args(words);
    command
}

/// The agent as episodes name it. Harbor runs it.
#[derive(Debug, Clone)]
pub struct HarborAgent {
    name: String,
    version: String,
}

impl HarborAgent {
    /// As `harbor` runs it for `[scaffold]`.
    pub fn new(harbor: &Harbor, scaffold: &ScaffoldSection) -> Self {
        Self {
            name: harbor.section.agent(&scaffold.name).to_owned(),
            version: format!("harbor {}", harbor.version()),
        }
    }
}

#[async_trait]
impl Scaffold for HarborAgent {
    fn name(&self) -> &str {
        &self.name
    }

    fn version(&self) -> &str {
        &self.version
    }

    fn runs_inside(&self) -> bool {
        true
    }

    async fn run(&self, _job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        Err(ScaffoldError::Setup {
            agent: self.name.clone(),
            reason: "only Harbor runs it".to_owned(),
        })
    }
}

/// A name that no other trial of this machine has: its containers are named after it.
fn unique(plan: &TrialPlan) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{}-{}", plan.name(), &id[..12])
}

/// One trial of Harbor's.
struct Run<'a> {
    plan: &'a TrialPlan,
    name: String,
    agent: &'a str,
    /// `None` for an agent that calls no model.
    session: Option<&'a SessionTicket>,
}

impl TrialContext {
    /// A whole trial, run by Harbor.
    pub(super) async fn in_harbor(
        &self,
        harbor: &Harbor,
        plan: &TrialPlan,
        record: &mut TrialRecord,
    ) -> Result<Outcome, Failure> {
        let session = self.open_session(plan)?;
        let agent = harbor.section.agent(&self.scaffold_section.name);
        let run = Run {
            plan,
            name: unique(plan),
            agent,
            session: trial_config::calls_a_model(agent).then_some(&session),
        };
        let ran = self.run_harbor(harbor, &run).await;
        let closed = self.close(&session, record).await;
        let result = ran?;
        closed?;
        self.show(plan, &run.name);
        result.times(record);
        let capture = record.capture.clone().unwrap_or_default();
        let judged = failure::outcome(&result, &capture, run.session.is_some());
        if let Err(failure) = &judged
            && failure.outcome == Outcome::VerifierError
            && !plan.cancel.is_cancelled()
        {
            return self.tests_alone(harbor, plan, failure, record).await;
        }
        let outcome = judged?;
        record.verdict = Some(result.verdict().map_err(Failure::verifier)?);
        record.stages = result.stages();
        Ok(outcome)
    }

    /// The tests gave no reward: where they give one when no agent worked on the task, the agent kept them from it, and
    /// the trial is graded 0; a drop would let it escape a bad grade. Where they do not, the task is broken.
    async fn tests_alone(
        &self,
        harbor: &Harbor,
        plan: &TrialPlan,
        failure: &Failure,
        record: &mut TrialRecord,
    ) -> Result<Outcome, Failure> {
        let control = Run {
            plan,
            name: unique(plan),
            agent: "nop",
            session: None,
        };
        let untouched = self.run_harbor(harbor, &control).await?;
        let judged = failure::outcome(&untouched, &SessionCapture::default(), false)
            .and_then(|_| untouched.verdict().map_err(Failure::verifier));
        match judged {
            Ok(_) => {
                let reason = format!("{}; without an agent they give a reward", failure.reason);
                record.verdict = Some(super::trial_verdict::prevented(&reason));
                Ok(Outcome::AgentError)
            }
            Err(other) => Err(Failure::verifier(format!(
                "{}; without an agent: {}",
                failure.reason, other.reason
            ))),
        }
    }

    /// Starts it, waits for its end, and reads what it says of the trial.
    async fn run_harbor(&self, harbor: &Harbor, run: &Run<'_>) -> Result<HarborResult, Failure> {
        let folder = self.folder(run.plan);
        let broken = |error: std::io::Error| Failure::infrastructure(chain(&error));
        let own = folder.join(FOLDER);
        fs_err::create_dir_all(&own).map_err(broken)?;
        let config = own.join(format!("{}.json", run.name));
        let settings = trial_config::of(self, harbor, run, &own).map_err(|reason| Failure {
            retry: false,
            ..Failure::infrastructure(reason)
        })?;
        fs_err::write(&config, settings.to_string()).map_err(broken)?;
        let mut command = command_of(&harbor.section);
        command.args(["trial", "start"]);
        for file in harbor.section.config.iter().chain([&config]) {
            command.arg("--config").arg(file);
        }
        if let Some(session) = run.session {
            command.env(trial_config::KEY, &session.token);
        }
        let limit = self.harbor_limit(run.plan)?;
        let log = folder.join(LOG);
        let end = process::run(command, &log, limit, &run.plan.cancel)
            .await
            .map_err(broken)?;
        let read = HarborResult::read(&own.join(&run.name));
        match end {
            End::Cancelled => Err(Failure::cancelled()),
            End::OutOfTime => Err(Failure::infrastructure(format!(
                "Harbor did not end the trial within {limit:?}"
            ))),
            End::Exited(status) => read.map_err(|reason| {
                let said = process::last_words(&log);
                Failure::not_ready(format!("Harbor {status}, and {reason}: {said}"))
            }),
        }
    }

    fn harbor_limit(&self, plan: &TrialPlan) -> Result<Duration, Failure> {
        let stages = plan.task.stages().map_err(|error| Failure::setup(&error))?;
        let phases: Duration = stages
            .iter()
            .map(|stage| self.agent_limit(stage) + self.verifier_limit(stage) + TEARDOWN)
            .sum();
        Ok(phases + self.setup_limit() + BESIDE)
    }

    /// Shows the folders of Harbor's trial in ours, where people look for them.
    fn show(&self, plan: &TrialPlan, name: &str) {
        let folder = self.folder(plan);
        for shown in SHOWN {
            let (target, link) = (Path::new(FOLDER).join(name).join(shown), folder.join(shown));
            if !folder.join(&target).is_dir() {
                continue;
            }
            // An earlier attempt's.
            if link.is_symlink() {
                let _ = fs_err::remove_file(&link);
            }
            if let Err(error) = fs_err::os::unix::fs::symlink(&target, &link) {
                tracing::warn!(
                    trial = plan.name(),
                    error = chain(&error),
                    "not shown in the trial's folder"
                );
            }
        }
    }
}

/// Settings of `[sandbox]` and `[scaffold]` that Harbor's trials do not follow.
pub(crate) fn without_effect(sandbox: &SandboxSection, scaffold: &ScaffoldSection) -> Vec<&'static str> {
    [
        ("sandbox.pids", sandbox.pids.is_some()),
        ("sandbox.network", sandbox.network.is_some()),
        ("sandbox.keep", sandbox.keep != SandboxSection::default().keep),
        ("sandbox.timeouts.setup", sandbox.timeouts.setup.is_some()),
        ("scaffold.args", !scaffold.args.is_empty()),
        ("scaffold.dialect", scaffold.dialect.is_some()),
        ("scaffold.command", !scaffold.command.is_empty()),
    ]
    .into_iter()
    .filter(|(_, set)| *set)
    .map(|(key, _)| key)
    .collect()
}
