//! run.toml: one file a section, layers, origins, located errors.
//!
//! `RunConfig` is the whole file with its defaults filled in; everything below `commands` takes its
//! sections. Parsing touches no network; the only place that knows the precedence of layers is here.
//! Faults leave as data (`ConfigError`): drawing them is `commands`' business.

mod asynchronous;
mod balance;
mod check;
mod critic;
mod data;
mod engine;
pub mod env;
mod error;
mod evaluation;
mod harbor;
mod load;
mod loaded;
mod lora;
mod policy;
mod proxy;
mod reference;
mod resolve;
mod rollout;
mod rollout_correction;
mod run;
mod sandbox;
mod scaffold;
mod schema;
mod secret;
mod show;
mod source;
mod spelling;
mod starter;
#[cfg(test)]
mod tests;
mod train;
mod tree;
mod unsupported;
mod value;
mod verifier;

pub use asynchronous::AsyncSection;
pub use balance::{BalanceSection, PlacementPolicy, SessionScheduler};
pub use critic::CriticSection;
pub use data::DataSection;
pub use engine::{EngineKind, EngineSection, ReasoningParser, WeightSync};
pub use error::{ConfigError, Fault, Problem};
pub use evaluation::{CheckpointSection, EvalSection, LogSection};
pub use harbor::{HarborApi, HarborSection};
pub use load::{ConfigFile, Layers, Override, load};
pub use loaded::Loaded;
pub use lora::{LoraSection, LoraTargetName};
pub use policy::{DeviceName, DtypeName, PolicySection};
pub use proxy::{BuilderName, CaptureScope, CaptureSection, ProxySection, UnparsedToolCall};
pub use reference::reference;
pub use resolve::{ResolveError, ResolvedTrain};
pub use rollout::{RolloutSection, TailKill};
pub use rollout_correction::{RejectionRule, RolloutCorrectionSection, RolloutIs};
pub use run::RunSection;
pub use sandbox::{
    BackendName, DockerSection, HackPolicy, KeepSandbox, KubernetesSection, PhaseTimeouts, PodToleration,
    SandboxSection,
};
pub use scaffold::{Dialect, ScaffoldSection};
pub use schema::run_schema;
pub use secret::is_secret;
pub use show::ConfigRow;
pub use source::{Location, Source, SourceKind};
pub use spelling::nearest;
pub use starter::starter;
pub use train::{
    AdvantageName, AlgorithmName, ControlName, FilterSection, KlEstimator, LossAggregation, LossName, OverlongPolicy,
    RoutingReplay, SMALLEST_RATE, SchedulerName, TrainSection,
};
pub use value::{ByteSize, HumanDuration, RatioBounds};
pub use verifier::VerifierSection;

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A run, as run.toml describes it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunConfig {
    /// Files below this one: read first, in order; this one's keys win, tables merge, lists are replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("format" = "path"))]
    pub extends: Vec<PathBuf>,
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
    /// How its work is judged.
    pub verifier: VerifierSection,
    /// What serves the policy.
    pub engine: EngineSection,
    /// Its replicas, and its sessions.
    pub balance: BalanceSection,
    /// The API in front of it.
    pub proxy: ProxySection,
    /// What becomes of recorded tokens.
    pub capture: CaptureSection,
    /// Sampling.
    pub rollout: RolloutSection,
    /// The update.
    pub train: TrainSection,
    /// Sampling and updates side by side.
    pub r#async: AsyncSection,
    /// What is left out of it.
    pub filter: FilterSection,
    /// Validation.
    pub eval: EvalSection,
    /// Checkpoints.
    pub checkpoint: CheckpointSection,
    /// Logs.
    pub log: LogSection,
}

impl RunConfig {
    /// Groups that an update takes with `async.enabled`.
    pub fn groups_per_update(&self) -> u32 {
        let groups = self.rollout.groups_per_step;
        match self.r#async.require_batches {
            Some(batches) => self.train.mini_batch.unwrap_or(groups).saturating_mul(batches),
            None => groups,
        }
    }

    /// Whether the engine is asked which experts each token went through.
    pub fn records_routing(&self) -> bool {
        self.capture.routing || self.train.routing_replay == RoutingReplay::R3
    }
}
