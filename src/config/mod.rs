//! run.toml: one file a section, layers, origins, located errors.
//!
//! `RunConfig` is the whole file with its defaults filled in; everything below `commands` takes its
//! sections. Parsing touches no network; the only place that knows the precedence of layers is here.

mod data;
mod engine;
mod evaluation;
mod policy;
mod proxy;
mod rollout;
mod run;
mod sandbox;
mod scaffold;
mod train;
mod value;

pub use data::DataSection;
pub use engine::{EngineKind, EngineSection};
pub use evaluation::{CheckpointSection, EvalSection, LogSection};
pub use policy::{DeviceName, DtypeName, PolicySection};
pub use proxy::{BuilderName, CaptureScope, CaptureSection, ProxySection, UnparsedToolCall};
pub use rollout::RolloutSection;
pub use run::RunSection;
pub use sandbox::{BackendName, HackPolicy, KeepSandbox, PhaseTimeouts, SandboxSection};
pub use scaffold::ScaffoldSection;
pub use train::{
    AdvantageName, AlgorithmName, FilterSection, KlEstimator, LossAggregation, LossName, OverlongPolicy,
    SchedulerName, TrainSection,
};
pub use value::{ByteSize, HumanDuration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run, as run.toml describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Name, folder and seed of the run.
    pub run: RunSection,
    /// The model that is trained.
    pub policy: PolicySection,
    /// Tasks to train and validate on.
    pub data: DataSection,
    /// The agent.
    pub scaffold: ScaffoldSection,
    /// Where its commands run.
    pub sandbox: SandboxSection,
    /// What serves the policy.
    pub engine: EngineSection,
    /// The API in front of it.
    pub proxy: ProxySection,
    /// What becomes of recorded tokens.
    pub capture: CaptureSection,
    /// Sampling.
    pub rollout: RolloutSection,
    /// The update.
    pub train: TrainSection,
    /// What is left out of it.
    pub filter: FilterSection,
    /// Validation.
    pub eval: EvalSection,
    /// Checkpoints.
    pub checkpoint: CheckpointSection,
    /// Logs.
    pub log: LogSection,
}
