//! How a trial ended, and whose doing that was.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The taxonomy of trial outcomes (rollout shard column `outcome`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The agent ended by itself.
    Completed,
    /// The context or output window was exhausted.
    Overlong,
    /// The turn cap was reached.
    MaxTurnsReached,
    /// The agent ran out of time.
    Timeout,
    /// The agent crashed or exited non-zero: the model's doing.
    AgentError,
    /// The sandbox could not be started, built or set up.
    EnvSetupFailed,
    /// Engine, node, stream or credentials failed.
    InfraError,
    /// The verifier gave no valid reward, twice.
    VerifierError,
    /// Ended by us: tail kill or shutdown.
    Cancelled,
}

impl Outcome {
    /// Every outcome, in the order of the documentation.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::Overlong,
        Self::MaxTurnsReached,
        Self::Timeout,
        Self::AgentError,
        Self::EnvSetupFailed,
        Self::InfraError,
        Self::VerifierError,
        Self::Cancelled,
    ];

    /// The name in shards, metrics and configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Overlong => "overlong",
            Self::MaxTurnsReached => "max_turns_reached",
            Self::Timeout => "timeout",
            Self::AgentError => "agent_error",
            Self::EnvSetupFailed => "env_setup_failed",
            Self::InfraError => "infra_error",
            Self::VerifierError => "verifier_error",
            Self::Cancelled => "cancelled",
        }
    }

    /// The outcome of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| outcome.name() == name)
    }

    /// Whether a reward can stand beside it: the policy's doing is graded, an environment's is not.
    pub fn is_graded(self) -> bool {
        match self {
            Self::Completed | Self::Overlong | Self::MaxTurnsReached | Self::Timeout | Self::AgentError => true,
            Self::EnvSetupFailed | Self::InfraError | Self::VerifierError | Self::Cancelled => false,
        }
    }

    /// Whether the episode ran out of turns, tokens or time before the agent ended by itself.
    pub fn is_unfinished(self) -> bool {
        matches!(self, Self::Overlong | Self::MaxTurnsReached | Self::Timeout)
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Why one generation ended. An abort is not a stop: what it cut never counts as a natural end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The policy sampled a stop token or a stop string.
    Stop,
    /// The token budget or the window ended it.
    Length,
    /// It was aborted, and what was sampled is kept.
    Abort,
    /// The engine failed in mid-generation.
    Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_agree_with_serde() {
        for outcome in Outcome::ALL {
            assert_eq!(serde_json::to_value(outcome).unwrap(), outcome.name());
            assert_eq!(Outcome::from_name(outcome.name()), Some(outcome));
        }
    }
}
