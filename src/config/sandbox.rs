//! `[sandbox]`

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ByteSize, HarborSection, HumanDuration};
use crate::task::NetworkMode;

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
    /// What the agent's network reaches beside the policy; absent: what the task says, else nothing. `allowlist` is the
    /// task's own list.
    pub network: Option<NetworkMode>,
    /// Where images of tasks are that name none: `<registry><task id, lower-cased>`, by the digest of the task index where that
    /// has one. `lego prepare --stage build --push` fills it.
    #[schemars(length(min = 1))]
    pub registry: Option<String>,
    /// Beginnings of image names, and what they are replaced by; the longest that fits counts.
    pub mirror: BTreeMap<String, String>,
    /// The container engine.
    pub docker: DockerSection,
    /// Harbor's command.
    pub harbor: HarborSection,
    /// The cluster.
    pub kubernetes: KubernetesSection,
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
            network: None,
            registry: None,
            mirror: BTreeMap::new(),
            docker: DockerSection::default(),
            harbor: HarborSection::default(),
            kubernetes: KubernetesSection::default(),
        }
    }
}

/// The container engine of backend `docker`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DockerSection {
    /// Its address (`unix:///path`, `tcp://host:port`); absent: `DOCKER_HOST`, else Docker's socket, else Podman's.
    /// TLS as Docker's own client has it: `DOCKER_TLS_VERIFY` and `DOCKER_CERT_PATH`.
    pub host: Option<String>,
    /// Containers that start at the same time.
    #[schemars(range(min = 1, max = 1024))]
    pub starts: u32,
    /// Bytes that images which runs pulled or built may hold in the engine's store: those used longest ago leave for
    /// new ones. Absent: none leaves. What was there before a run asked for it always stays.
    pub image_cache: Option<ByteSize>,
}

impl Default for DockerSection {
    fn default() -> Self {
        Self {
            host: None,
            starts: 4,
            image_cache: None,
        }
    }
}

/// The cluster of backend `kubernetes`: one pod a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KubernetesSection {
    /// File that says how clusters are reached; absent: those of `KUBECONFIG`, else `~/.kube/config`, else the cluster
    /// that lego itself runs in.
    #[schemars(extend("format" = "path"))]
    pub kubeconfig: Option<PathBuf>,
    /// Context in it; absent: its current one.
    pub context: Option<String>,
    /// Namespace of the pods; absent: the context's.
    pub namespace: Option<String>,
    /// Labels that a node must have.
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that pods put up with.
    pub tolerations: Vec<PodToleration>,
    /// Secrets of the namespace by which images are pulled.
    pub pull_secrets: Vec<String>,
    /// Whose account pods have; its token is never mounted into them.
    pub service_account: Option<String>,
    /// The memory that a pod may use, as a multiple of what it asks the cluster for (the trial's).
    #[schemars(range(min = 1.0))]
    pub memory_limit_factor: f64,
    /// An image that holds lego as `/lego`, from which each pod takes what it needs; absent: that is sent to each pod,
    /// whose image then needs `sh`, `head`, `tar` and `gzip`.
    pub runtime_image: Option<String>,
    /// Pods that start at the same time.
    #[schemars(range(min = 1, max = 1024))]
    pub starts: u32,
    /// Time for the cluster to find a node and to pull the image.
    pub start_timeout: HumanDuration,
    /// Run trials also where their commands cannot be kept from the cluster's network: that takes nodes on which a
    /// process may make a user namespace.
    pub allow_unisolated: bool,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        Self {
            kubeconfig: None,
            context: None,
            namespace: None,
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            pull_secrets: Vec::new(),
            service_account: None,
            memory_limit_factor: 1.5,
            runtime_image: None,
            starts: 16,
            start_timeout: HumanDuration(std::time::Duration::from_mins(8)),
            allow_unisolated: false,
        }
    }
}

/// A taint of nodes that a pod puts up with, as in a pod's manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PodToleration {
    /// The taint's key; absent: every taint.
    pub key: Option<String>,
    /// How the value counts: `Equal` (the default) or `Exists`.
    pub operator: Option<String>,
    /// The taint's value.
    pub value: Option<String>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; absent: all of them.
    pub effect: Option<String>,
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
    /// Building an image.
    pub build: Option<HumanDuration>,
}

/// What provides the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackendName {
    /// Namespaces on this machine.
    #[default]
    Local,
    /// Containers of Docker or Podman on this machine.
    Docker,
    /// Trials are run by an installed Harbor, in any environment that it has.
    Harbor,
    /// Pods of a Kubernetes cluster.
    Kubernetes,
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
