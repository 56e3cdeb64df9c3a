//! What Harbor says of a trial: its result.json.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::rollout::StageRecord;
use crate::rollout::trial::TrialRecord;
use crate::rollout::trial_verdict::Judged;
use crate::run_dir::TimeSpan;
use crate::scaffold::{AgentEnd, AgentReport};
use crate::verifier::{Verdict, named_rewards};

/// Largest result.json.
const LIMIT: u64 = 64 << 20;

/// The parts of Harbor's `TrialResult` that count here.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct HarborResult {
    agent_info: AgentInfo,
    verifier_result: Option<Verified>,
    exception_info: Option<Exception>,
    environment_setup: Option<TimeSpan>,
    agent_setup: Option<TimeSpan>,
    agent_execution: Option<TimeSpan>,
    verifier: Option<TimeSpan>,
    step_results: Option<Vec<Step>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct AgentInfo {
    version: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Verified {
    rewards: Option<Value>,
}

/// What went wrong, by the class of Python that it was.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Exception {
    /// Name of the class.
    pub exception_type: String,
    /// What it says.
    pub exception_message: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Step {
    #[serde(rename = "step_name")]
    name: String,
    verifier_result: Option<Verified>,
    exception_info: Option<Exception>,
    agent_execution: Option<TimeSpan>,
    verifier: Option<TimeSpan>,
}

impl HarborResult {
    /// Reads it from the folder of Harbor's trial.
    pub(super) fn read(folder: &Path) -> Result<Self, String> {
        let path = folder.join("result.json");
        let size = fs_err::metadata(&path)
            .map_err(|error| format!("it left no result ({error})"))?
            .len();
        if size > LIMIT {
            return Err(format!("{} has {size} bytes, expected at most {LIMIT}", path.display()));
        }
        let text = fs_err::read(&path).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| format!("{} is no trial result: {error}", path.display()))
    }

    /// The trial's own exception, else the first of a step.
    pub(super) fn exception(&self) -> Option<&Exception> {
        let of_steps = self
            .step_results
            .iter()
            .flatten()
            .filter_map(|step| step.exception_info.as_ref());
        self.exception_info.iter().chain(of_steps).next()
    }

    /// Whether the agent began to work.
    pub(super) fn agent_ran(&self) -> bool {
        let of_steps = self
            .step_results
            .iter()
            .flatten()
            .filter_map(|step| step.agent_execution);
        let mut spans = self.agent_execution.into_iter().chain(of_steps);
        spans.any(|span| span.started_at.is_some())
    }

    /// What its verifier said of the whole trial.
    ///
    /// # Errors
    /// Why there is no reward.
    pub(super) fn verdict(&self) -> Result<Verdict, String> {
        verdict(self.verifier_result.as_ref(), self.verifier)
    }

    /// Its steps that were judged; one stage where the task has none.
    pub(super) fn stages(&self) -> Vec<StageRecord> {
        let stage = |name: Option<String>, said: Option<&Verified>, agent: Option<TimeSpan>, verifier| {
            Some(StageRecord {
                step: name,
                judged: Judged::once(verdict(said, verifier).ok()?),
                agent: agent.unwrap_or_default(),
                end: AgentEnd::Completed,
                verifier,
            })
        };
        let steps = self.step_results.as_deref().unwrap_or_default();
        if steps.is_empty() {
            let whole = stage(None, self.verifier_result.as_ref(), self.agent_execution, self.verifier);
            return whole.into_iter().collect();
        }
        let each = steps.iter().filter_map(|step| {
            let name = Some(step.name.clone());
            stage(name, step.verifier_result.as_ref(), step.agent_execution, step.verifier)
        });
        each.collect()
    }

    /// Notes when its phases were, and who the agent was.
    pub(super) fn times(&self, record: &mut TrialRecord) {
        let steps = self.step_results.as_deref().unwrap_or_default();
        let over = |own: Option<TimeSpan>, of: fn(&Step) -> Option<TimeSpan>| {
            let spans = own.into_iter().chain(steps.iter().filter_map(of));
            spans.reduce(|all, one| TimeSpan {
                started_at: all.started_at.min(one.started_at).or(one.started_at),
                finished_at: all.finished_at.max(one.finished_at),
            })
        };
        let agent = over(self.agent_execution, |step| step.agent_execution);
        let verifier = over(self.verifier, |step| step.verifier);
        record.spans.environment_setup = self.environment_setup;
        record.spans.agent_execution = agent;
        record.spans.verifier = verifier;
        record.timings.env_setup_s = seconds(self.environment_setup) + seconds(self.agent_setup);
        record.timings.agent_s = seconds(agent);
        record.timings.verify_s = seconds(verifier);
        record.report = Some(AgentReport::uncounted(AgentEnd::Completed));
        record.agent_version.clone_from(&self.agent_info.version);
    }
}

fn seconds(span: Option<TimeSpan>) -> f32 {
    let length = |span: TimeSpan| -> Option<f32> {
        let (began, ended): (Timestamp, Timestamp) = (span.started_at?, span.finished_at?);
        Some((ended.as_microsecond() - began.as_microsecond()) as f32 / 1e6)
    };
    span.and_then(length).unwrap_or(0.0)
}

fn verdict(said: Option<&Verified>, span: Option<TimeSpan>) -> Result<Verdict, String> {
    let rewards = said.and_then(|said| said.rewards.as_ref());
    let rewards = rewards.ok_or_else(|| "the verifier gave no reward".to_owned())?;
    let (reward, rewards) = named_rewards(rewards)?;
    Ok(Verdict {
        reward: reward as f32,
        rewards,
        output: String::new(),
        exit_code: 0,
        duration: Duration::from_secs_f32(seconds(span).max(0.0)),
        flags: Vec::new(),
        report: None,
    })
}

/// No reward at all.
#[cfg(test)]
pub(super) fn with_exception(name: &str, rewards: Option<f64>) -> HarborResult {
    let exception = (!name.is_empty()).then(|| Exception {
        exception_type: name.to_owned(),
        exception_message: "said so".to_owned(),
    });
    HarborResult {
        exception_info: exception,
        agent_execution: Some(TimeSpan {
            started_at: Some(Timestamp::UNIX_EPOCH),
            finished_at: None,
        }),
        verifier_result: rewards.map(|reward| Verified {
            rewards: Some(serde_json::json!({"reward": reward})),
        }),
        ..HarborResult::default()
    }
}
