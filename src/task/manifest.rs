//! The shape of task.toml (Harbor, schema 1.4), without `[environment]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Artifact, EnvironmentConfig, Healthcheck, MinReward, NetworkMode, Seconds, UserName};

/// task.toml.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskConfig {
    /// Version of the format; files of before 1.1 call it `version`.
    #[serde(alias = "version")]
    pub schema_version: Option<String>,
    /// Which task it is.
    pub task: Option<TaskInfo>,
    /// Whatever its author wants to say.
    #[schemars(with = "BTreeMap<String, serde_json::Value>")]
    pub metadata: toml::Table,
    /// Limits of the agent.
    pub agent: AgentConfig,
    /// How the result is judged.
    pub verifier: VerifierConfig,
    /// Where the agent works.
    pub environment: EnvironmentConfig,
    /// The oracle.
    pub solution: SolutionConfig,
    /// Files to keep after the trial.
    pub artifacts: Vec<Artifact>,
    /// Steps of a task that has several.
    pub steps: Vec<StepConfig>,
    /// How the rewards of the steps become one.
    pub multi_step_reward_strategy: MultiStepReward,
    /// Where the task came from.
    pub source: Option<String>,
}

/// Which task it is.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskInfo {
    /// `org/name`.
    pub name: String,
    /// For people.
    pub description: String,
    /// Who wrote it.
    pub authors: Vec<Author>,
    /// For search.
    pub keywords: Vec<String>,
}

/// An author.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct Author {
    /// Name.
    pub name: String,
    /// Address.
    pub email: Option<String>,
}

/// Limits of the agent.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AgentConfig {
    /// Time for the agent.
    pub timeout_sec: Option<Seconds>,
    /// Who it runs as.
    pub user: Option<UserName>,
    /// What the network reaches in this phase.
    pub network_mode: Option<NetworkMode>,
    /// For `allowlist`.
    pub allowed_hosts: Vec<String>,
}

/// How the result is judged.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct VerifierConfig {
    /// Time for the tests; 600 if absent.
    pub timeout_sec: Option<Seconds>,
    /// Environment of the tests.
    pub env: BTreeMap<String, String>,
    /// Who they run as.
    pub user: Option<UserName>,
    /// Whether they run where the agent worked; absent: `separate` with an environment of their own, else `shared`.
    pub environment_mode: Option<VerifierMode>,
    /// What the network reaches in this phase.
    pub network_mode: Option<NetworkMode>,
    /// For `allowlist`.
    pub allowed_hosts: Vec<String>,
    /// Their own environment, for `separate`.
    pub environment: Option<EnvironmentConfig>,
    /// Commands that gather what crosses over, for `separate`.
    pub collect: Vec<CollectStep>,
}

/// Whether the tests run where the agent worked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum VerifierMode {
    /// In the agent's sandbox, after every process of the agent was ended.
    #[default]
    Shared,
    /// In a fresh one, with the agent's changes brought over.
    Separate,
}

impl VerifierMode {
    /// Its name in task.toml.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Separate => "separate",
        }
    }
}

/// A command that gathers what crosses over to the verifier.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct CollectStep {
    /// Shell command in the agent's sandbox.
    pub command: String,
    /// Its time.
    pub timeout_sec: Option<Seconds>,
    /// Who it runs as.
    pub user: Option<UserName>,
    /// Which container of a compose file.
    pub service: Option<String>,
}

/// The oracle.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SolutionConfig {
    /// Environment of `solve.sh`.
    pub env: BTreeMap<String, String>,
}

/// One step of a task that has several.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct StepConfig {
    /// Its folder below `steps/`.
    pub name: String,
    /// Reward below which later steps are not run.
    pub min_reward: Option<MinReward>,
    /// Limits of the agent in this step.
    #[serde(default)]
    pub agent: AgentConfig,
    /// How this step is judged.
    #[serde(default)]
    pub verifier: VerifierConfig,
    /// When the environment is ready for it.
    pub healthcheck: Option<Healthcheck>,
    /// Files to keep after it.
    #[serde(default)]
    pub artifacts: Vec<Artifact>,
}

/// How the rewards of the steps become one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MultiStepReward {
    /// Their mean.
    #[default]
    Mean,
    /// The last step's.
    Final,
}
