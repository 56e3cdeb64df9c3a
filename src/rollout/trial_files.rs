//! What a trial leaves in its folder for people and for Harbor's tools: result.json and trajectory.json.
//!
//! The shards are what trains. A trial whose files cannot be written still counts; that is warned of.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::outcome::chain;
use super::trial::{TrialContext, TrialRecord};
use super::{TrialPlan, atif};
use crate::run_dir::{
    AgentInfo, AgentResult, ExceptionInfo, ModelInfo, ReportSummary, RunDirError, StepResult, TimeSpan, TrialConfigRef,
    TrialResult, TrialTaskRef, VerifierResult,
};
use crate::scaffold::{AgentEnd, CutLogs};
use crate::task::write_atomically;
use crate::trajectory::{Episode, Outcome};

/// When the phases of a trial were, each where it was reached.
#[derive(Debug, Clone, Copy, Default)]
pub struct Spans {
    /// Starting the sandbox.
    pub environment_setup: Option<TimeSpan>,
    /// The agent's run.
    pub agent_execution: Option<TimeSpan>,
    /// The verifier, its second try and its control included.
    pub verifier: Option<TimeSpan>,
}

/// From then to now.
pub(super) fn since(began: Timestamp) -> TimeSpan {
    TimeSpan {
        started_at: Some(began),
        finished_at: Some(Timestamp::now()),
    }
}

/// What a trial's result says beside its episode.
pub(super) struct Ended {
    spans: Spans,
    exception: Option<(&'static str, String)>,
    verified: bool,
    steps: Option<Vec<StepResult>>,
    runs: Option<Vec<Option<f32>>>,
    flaky: bool,
    report: Option<ReportSummary>,
    /// What its logs lack; `None` where it never ran.
    cut: Option<CutLogs>,
}

impl Ended {
    pub(super) fn of(record: &TrialRecord) -> Self {
        Self {
            spans: record.spans,
            exception: exception(record),
            verified: record.verdict.is_some(),
            steps: steps(record),
            runs: record
                .stages
                .iter()
                .map(|stage| &stage.judged.runs)
                .find(|runs| runs.len() > 1)
                .cloned(),
            flaky: record.stages.iter().any(|stage| stage.judged.is_flaky()),
            report: record
                .verdict
                .as_ref()
                .and_then(|verdict| verdict.report.as_ref())
                .map(crate::verifier::Report::summary),
            cut: record.report.as_ref().map(|report| report.cut),
        }
    }
}

/// The steps as Harbor has them; `None` where the task has none.
fn steps(record: &TrialRecord) -> Option<Vec<StepResult>> {
    // The last may have no verdict; why stands in the trial.
    let unjudged = record.unjudged_step.clone().map(|step_name| StepResult {
        step_name,
        verifier_result: None,
        exception_info: None,
        agent_execution: None,
        verifier: None,
    });
    let steps: Vec<StepResult> = record
        .stages
        .iter()
        .filter_map(|stage| {
            Some(StepResult {
                step_name: stage.step.clone()?,
                verifier_result: Some(VerifierResult {
                    rewards: Some(stage.judged.verdict.rewards.clone()),
                }),
                exception_info: None,
                agent_execution: Some(stage.agent),
                verifier: stage.verifier,
            })
        })
        .chain(unjudged)
        .collect();
    (!steps.is_empty()).then_some(steps)
}

/// Class and message of what went wrong, by the names that Harbor has for them where it has one.
fn exception(record: &TrialRecord) -> Option<(&'static str, String)> {
    let reason = record.reason.clone().unwrap_or_default();
    match record.outcome {
        Outcome::Completed | Outcome::Overlong | Outcome::MaxTurnsReached => None,
        Outcome::Timeout => Some(("AgentTimeoutError", "the agent ran out of time".to_owned())),
        Outcome::AgentError => {
            let said = record.report.as_ref().map(|report| &report.end);
            let Some(AgentEnd::Failed { exit_code, detail }) = said else {
                return Some(("NonZeroAgentExitCodeError", reason));
            };
            let code = exit_code.map_or_else(|| "no exit code".to_owned(), |code| format!("exit code {code}"));
            Some(("NonZeroAgentExitCodeError", format!("{code}: {detail}")))
        }
        Outcome::EnvSetupFailed => Some(("EnvironmentSetupError", reason)),
        Outcome::InfraError => Some(("InfrastructureError", reason)),
        Outcome::VerifierError => Some(("VerifierError", reason)),
        Outcome::Cancelled => Some(("CancelledError", reason)),
    }
}

impl TrialContext {
    /// Writes the trial's result.json and trajectory.json. What fails is warned of.
    pub(super) async fn write_files(&self, plan: &TrialPlan, episode: &Episode, ended: Ended) {
        let folder = self.folder(plan);
        let task = std::sync::Arc::clone(&plan.task);
        let trajectory = atif::trajectory(episode, task.instruction());
        let mut result = result(plan, episode, ended, &folder);
        let written = tokio::task::spawn_blocking(move || -> Result<(), RunDirError> {
            // Hashing a task reads all of its files.
            result.task_checksum = task.checksum().unwrap_or_default();
            fs_err::create_dir_all(&folder)?;
            result.write(&folder)?;
            let path = folder.join("trajectory.json");
            let text = serde_json::to_vec_pretty(&trajectory).map_err(|error| RunDirError::Damaged {
                path: path.clone(),
                reason: error.to_string(),
            })?;
            write_atomically(&path, |file| Ok::<_, RunDirError>(file.write_all(&text)?))?;
            show_to_harbor(&folder)
        })
        .await;
        let failed = match written {
            Ok(Ok(())) => return,
            Ok(Err(error)) => chain(&error),
            Err(error) => error.to_string(),
        };
        tracing::warn!(
            trial = plan.name(),
            error = failed,
            "the trial's result files are not complete"
        );
    }
}

/// Harbor looks for the trajectory below `agent/`; one that the agent itself wrote there stays.
fn show_to_harbor(folder: &Path) -> Result<(), RunDirError> {
    // Of a trial that Harbor ran, the folder is Harbor's own.
    if folder.join("agent").is_symlink() {
        return Ok(());
    }
    let link = folder.join("agent/trajectory.json");
    if link.symlink_metadata().is_ok() {
        return Ok(());
    }
    fs_err::create_dir_all(folder.join("agent"))?;
    Ok(fs_err::os::unix::fs::symlink("../trajectory.json", link)?)
}

fn result(plan: &TrialPlan, episode: &Episode, ended: Ended, folder: &Path) -> TrialResult {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| PathBuf::from(folder));
    let task = TrialTaskRef {
        path: plan.task.dir.display().to_string(),
    };
    let finished_at = Timestamp::now();
    TrialResult {
        id: episode.trial_id.to_string(),
        task_name: plan.task.id.clone(),
        trial_name: plan.name(),
        trial_uri: format!("file://{}", absolute.display()),
        task_id: task.clone(),
        source: Some(plan.data_source.clone()).filter(|source| !source.is_empty()),
        task_checksum: String::new(),
        config: TrialConfigRef {
            task,
            trial_name: plan.name(),
        },
        agent_info: AgentInfo {
            name: episode.agent.clone(),
            version: episode.agent_version.clone(),
            model_info: Some(ModelInfo {
                name: episode.model.clone(),
                provider: "lego".to_owned(),
            }),
        },
        agent_result: ended.cut.map(|cut| AgentResult {
            n_input_tokens: Some(atif::prompt_tokens(&episode.segments)),
            n_output_tokens: Some(episode.audit.sampled_tokens),
            metadata: (cut != CutLogs::default()).then(|| {
                BTreeMap::from([
                    ("log_bytes_left_out".to_owned(), cut.printed.into()),
                    ("log_files_left_out".to_owned(), cut.files.into()),
                ])
            }),
            ..AgentResult::default()
        }),
        verifier_result: ended.verified.then(|| VerifierResult {
            rewards: Some(episode.rewards.clone()),
        }),
        verifier_environment_mode: plan.task.verifier_mode().map(|mode| mode.name().to_owned()),
        exception_info: ended.exception.map(|(class, message)| ExceptionInfo {
            exception_type: class.to_owned(),
            // Of Python alone.
            exception_traceback: String::new(),
            exception_message: message,
            occurred_at: finished_at,
        }),
        started_at: Some(episode.started_at),
        finished_at: Some(finished_at),
        environment_setup: ended.spans.environment_setup,
        agent_setup: None,
        agent_execution: ended.spans.agent_execution,
        verifier: ended.spans.verifier,
        step_results: ended.steps,
        outcome: episode.outcome.name().to_owned(),
        reward: episode.reward,
        hack_flags: episode.hack_flags.clone(),
        verifier_runs: ended.runs,
        flaky: ended.flaky,
        test_report: ended.report,
    }
}
