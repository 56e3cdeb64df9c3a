//! result.json of a trial, in the shape of Harbor's `TrialResult`, so that Harbor's viewer opens it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::RunDirError;
use crate::task::write_atomically;

/// One trial, for people and for Harbor's viewer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialResult {
    /// Unique for ever.
    pub id: String,
    /// The task's name.
    pub task_name: String,
    /// The trial's name; its folder's.
    pub trial_name: String,
    /// `file://` URL of the trial's folder.
    pub trial_uri: String,
    /// The task's folder.
    pub task_id: TrialTaskRef,
    /// Where the task came from.
    pub source: Option<String>,
    /// SHA-256 of the task.
    pub task_checksum: String,
    /// What was asked for.
    pub config: TrialConfigRef,
    /// The scaffold and the model.
    pub agent_info: AgentInfo,
    /// What the agent used; absent where it never ran.
    pub agent_result: Option<AgentResult>,
    /// What the verifier said; absent where it gave no valid reward.
    pub verifier_result: Option<VerifierResult>,
    /// Where it ran, `shared` or `separate`; absent for a task of several steps.
    pub verifier_environment_mode: Option<String>,
    /// What went wrong.
    pub exception_info: Option<ExceptionInfo>,
    /// When the trial began.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    #[schemars(with = "Option<String>")]
    pub finished_at: Option<Timestamp>,
    /// Starting the sandbox.
    pub environment_setup: Option<TimeSpan>,
    /// Preparing the agent.
    pub agent_setup: Option<TimeSpan>,
    /// The agent's run.
    pub agent_execution: Option<TimeSpan>,
    /// The verifier.
    pub verifier: Option<TimeSpan>,
    /// The steps that an agent worked on, of a task that has several.
    pub step_results: Option<Vec<StepResult>>,
    /// Our own taxonomy, which Harbor's does not have.
    pub outcome: String,
    /// The reward that counts, after the rules of the run; null where there is no valid one.
    pub reward: Option<f32>,
    /// Evidence of reward hacking.
    pub hack_flags: Vec<String>,
    /// Rewards of all runs of the tests, where `verifier.repeats` asked for several; null for a run without one.
    pub verifier_runs: Option<Vec<Option<f32>>>,
    /// Whether those disagree.
    pub flaky: bool,
    /// What the output says of single tests, where the task lists them.
    pub test_report: Option<ReportSummary>,
}

/// Of single tests, in numbers. The report itself is `verifier/report.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReportSummary {
    /// Whose log it was read as: `pytest`, `unittest`, `go`, `cargo`, `jest`.
    pub format: String,
    /// Whether any test ran.
    pub ran: bool,
    /// Whether every listed test passed.
    pub resolved: bool,
    /// Tests that the work is to make pass: passed, and in all.
    pub fail_to_pass: (usize, usize),
    /// Tests that passed before it: passed, and in all.
    pub pass_to_pass: (usize, usize),
}

/// One step of a task that has several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepResult {
    /// Its name.
    pub step_name: String,
    /// What the verifier said of it.
    pub verifier_result: Option<VerifierResult>,
    /// What went wrong.
    pub exception_info: Option<ExceptionInfo>,
    /// The agent's run.
    pub agent_execution: Option<TimeSpan>,
    /// The verifier.
    pub verifier: Option<TimeSpan>,
}

impl TrialResult {
    /// Writes `result.json` into the trial's folder; gives its path.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, RunDirError> {
        let path = folder.join("result.json");
        let text = serde_json::to_string_pretty(self).map_err(|error| RunDirError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        write_atomically(&path, |file| Ok::<_, RunDirError>(file.write_all(text.as_bytes())?))?;
        Ok(path)
    }
}

/// The task's folder.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialTaskRef {
    /// Where it is.
    pub path: String,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrialConfigRef {
    /// The task's folder.
    pub task: TrialTaskRef,
    /// The trial's name.
    pub trial_name: String,
}

/// The scaffold and the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentInfo {
    /// Scaffold.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The model.
    pub model_info: Option<ModelInfo>,
}

/// The model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModelInfo {
    /// Served name.
    pub name: String,
    /// Who serves it.
    pub provider: String,
}

/// What the agent used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AgentResult {
    /// Prompt tokens of all calls.
    pub n_input_tokens: Option<u64>,
    /// Of those, found in a cache.
    pub n_cache_tokens: Option<u64>,
    /// Sampled tokens.
    pub n_output_tokens: Option<u64>,
    /// Cost; none for a model of our own.
    pub cost_usd: Option<f64>,
    /// Token ids, masks and log-probs; ours are in the shards.
    pub rollout_details: Option<Vec<BTreeMap<String, serde_json::Value>>>,
    /// Whatever else the scaffold says.
    pub metadata: Option<BTreeMap<String, serde_json::Value>>,
}

/// What the verifier said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VerifierResult {
    /// Named rewards; `reward` is the scalar.
    pub rewards: Option<BTreeMap<String, f64>>,
}

/// What went wrong.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExceptionInfo {
    /// Class of the failure.
    pub exception_type: String,
    /// What it says.
    pub exception_message: String,
    /// Where in a program of Python; empty here.
    pub exception_traceback: String,
    /// When.
    #[schemars(with = "String")]
    pub occurred_at: Timestamp,
}

/// From when to when.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TimeSpan {
    /// Its start.
    #[schemars(with = "Option<String>")]
    pub started_at: Option<Timestamp>,
    /// Its end.
    #[schemars(with = "Option<String>")]
    pub finished_at: Option<Timestamp>,
}
