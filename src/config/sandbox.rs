//! `[sandbox]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, HumanDuration};

/// Where the agent's commands run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxSection {
    /// What provides the environment.
    pub backend: BackendName,
    /// Trials at a time.
    #[schemars(range(min = 1))]
    pub concurrency: u32,
    /// CPU cores of a trial; absent: the task's.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub cpus: Option<f32>,
    /// Memory of a trial; absent: the task's.
    pub memory: Option<ByteSize>,
    /// Processes of a trial.
    #[schemars(range(min = 1))]
    pub pids: Option<u32>,
    /// Time limits of the phases, where the task's are not to be used.
    pub timeouts: PhaseTimeouts,
    /// Multiplies the task's own time limits.
    #[schemars(extend("exclusiveMinimum" = 0.0))]
    pub timeout_multiplier: f64,
    /// What evidence of reward hacking does; absent: where it leaves no doubt, the reward is 0, and the rest is recorded.
    pub hack_policy: Option<HackPolicy>,
    /// Which trials keep their working folder.
    pub keep: KeepSandbox,
}

impl Default for SandboxSection {
    fn default() -> Self {
        Self {
            backend: BackendName::Local,
            concurrency: 16,
            cpus: None,
            memory: None,
            pids: None,
            timeouts: PhaseTimeouts::default(),
            timeout_multiplier: 1.0,
            hack_policy: None,
            keep: KeepSandbox::Never,
        }
    }
}

/// Time limits that override the task's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PhaseTimeouts {
    /// Starting the sandbox.
    pub setup: Option<HumanDuration>,
    /// The agent.
    pub agent: Option<HumanDuration>,
    /// The verifier.
    pub verifier: Option<HumanDuration>,
}

/// What provides the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackendName {
    /// Namespaces on this machine.
    #[default]
    Local,
}

/// What evidence of reward hacking does to an episode.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum HackPolicy {
    /// It is recorded.
    #[default]
    Flag,
    /// It is recorded and the reward is 0.
    ZeroReward,
    /// The episode is dropped.
    Drop,
}

/// Which trials keep their working folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeepSandbox {
    /// None.
    #[default]
    Never,
    /// Those that ended without a valid reward.
    Failed,
    /// All.
    Always,
}
