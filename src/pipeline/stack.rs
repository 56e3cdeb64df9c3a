//! Proxy, engine, sandboxes and scaffold of a run, started together and ended together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lego_policy::Weights;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::engine_gauge::EngineGauge;
use super::engines::Serving;
use super::first::First;
use super::front::{Front, serve};
use super::{PipelineError, PipelineEvent, PipelineObserver};
use crate::config::{BackendName, RunConfig, UnparsedToolCall};
use crate::metrics::StepMetrics;
use crate::proxy::Proxy;
use crate::rollout::{Harbor, HarborAgent, TrialContext, image_of};
use crate::sandbox::docker::{DockerBackend, DockerOptions};
use crate::sandbox::kubernetes::{KubernetesBackend, KubernetesOptions};
use crate::sandbox::local::{LocalBackend, LocalOptions};
use crate::sandbox::{Backend, Image, Isolation, SandboxSpec};
use crate::scaffold::{self, Scaffold};
use crate::shard::ShardMeta;
use crate::task::Task;
use crate::trajectory::PolicyVersion;

/// Time for the proxy's connections to end.
const CLOSE: Duration = Duration::from_secs(10);

/// What a run needs beside its configuration.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// The executable that holds `__sandbox-init`.
    pub init_exe: PathBuf,
    /// Folder for the sandboxes' working copies.
    pub scratch: PathBuf,
    /// Do without namespaces even where they are allowed.
    pub force_weak: bool,
}

impl StackOptions {
    /// Working copies in memory where this machine has a folder for that, since they are many and small.
    pub fn here(init_exe: PathBuf) -> Self {
        let shared_memory = Path::new("/dev/shm");
        let root = if shared_memory.is_dir() {
            shared_memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        Self {
            init_exe,
            scratch: root.join(format!("lego-{}", nix::unistd::geteuid())),
            force_weak: false,
        }
    }
}

/// What it is started for.
#[derive(Clone, Copy)]
pub(super) struct Work<'a> {
    pub run_id: &'a str,
    /// Holds the folders of the trials.
    pub trials: &'a Path,
    /// Whether the agents' changes are kept as patches.
    pub keeps_patches: bool,
    /// One of the tasks: the agent is looked for in its sandbox.
    pub sample: &'a Task,
}

/// All that a trial needs, running.
pub(super) struct Stack {
    pub context: Arc<TrialContext>,
    /// What its shards say of themselves.
    pub shard_meta: ShardMeta,
    /// Absent where nothing of the run's own answers.
    gauge: Option<EngineGauge>,
    engine: Serving,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Stack {
    /// Starts everything, unless it is `stopped` before.
    pub(super) async fn start(
        config: &RunConfig,
        options: &StackOptions,
        work: Work<'_>,
        first: First,
        observer: &PipelineObserver,
        stopped: &CancellationToken,
    ) -> Result<Self, PipelineError> {
        if config.sandbox.cpus.is_some() && config.sandbox.backend == BackendName::Local {
            return Err(PipelineError::Config(
                "sandbox.cpus: the `local` backend cannot keep a trial to a number of cores; leave the key out, or bound \
                 the trials at a time by `sandbox.concurrency`"
                    .to_owned(),
            ));
        }
        if config.sandbox.backend == BackendName::Kubernetes {
            let ignored = [
                (
                    "sandbox.pids",
                    config.sandbox.pids.is_some(),
                    "a cluster bounds the processes of a pod by its kubelets' own setting",
                ),
                (
                    "scaffold.runtime_mount",
                    !config.scaffold.runtime_mount.is_empty(),
                    "a pod has no folders of this machine: put the agent into the tasks' images",
                ),
            ];
            if let Some((key, _, why)) = ignored.iter().find(|(_, is_set, _)| *is_set) {
                return Err(PipelineError::Config(format!(
                    "{key} cannot be kept by the `kubernetes` backend: {why}"
                )));
            }
        }
        let front = Front::open(config, first, stopped).await?;
        let shard_meta = front.shard_meta(work.run_id);
        let model = front.options.model.clone();
        let (window, max_tokens) = (front.options.window, front.options.max_tokens);
        let harbor = match config.sandbox.backend {
            BackendName::Harbor => Some(Harbor::find(&config.sandbox.harbor).await?),
            BackendName::Local | BackendName::Docker | BackendName::Kubernetes => None,
        };
        let scaffold: Arc<dyn Scaffold> = match &harbor {
            Some(harbor) => Arc::new(HarborAgent::new(harbor, &config.scaffold)),
            None => scaffold::by_name(&config.scaffold).map_err(|error| PipelineError::Config(error.to_string()))?,
        };
        let answers = front.options.policy().map(|policy| Arc::clone(&policy.engine));
        let proxy = Proxy::new(front.options);
        let stop = CancellationToken::new();
        let server = serve(&proxy, front.listener, &stop);
        let backend = Arc::new(backend(config, options, work.trials));
        if harbor.is_none() {
            backend.reap().await?;
            if let Isolation::Weak(missing) = backend.isolation().await? {
                observer(PipelineEvent::Warning(format!("sandboxes are weak here: {missing}")));
            }
            if scaffold.runs_inside() {
                let image = image_of(work.sample, &config.sandbox);
                probe(&backend, scaffold.as_ref(), &options.scratch, image).await?;
            }
        }
        let watch = Arc::clone(observer);
        let context = Arc::new(TrialContext {
            run_id: work.run_id.to_owned(),
            backend,
            scaffold,
            harbor,
            proxy,
            proxy_address: front.address,
            scaffold_section: config.scaffold.clone(),
            sandbox_section: config.sandbox.clone(),
            verifier_section: config.verifier.clone(),
            max_retries: config.rollout.max_retries,
            tail_kill: config.rollout.tail_kill,
            reward_unfinished: config.rollout.reward_unfinished,
            unparsed_zeroes_reward: config.capture.unparsed_tool_call == UnparsedToolCall::ZeroReward,
            turn_cap: config.proxy.turn_cap,
            keeps_patches: work.keeps_patches,
            trials: work.trials.to_owned(),
            model,
            window,
            max_tokens,
            tool_parser: front.tool_parser,
            observer: Arc::new(move |event| watch(PipelineEvent::Rollout(event))),
            slots: Arc::new(Semaphore::new(config.sandbox.concurrency as usize)),
            cancel: CancellationToken::new(),
        });
        Ok(Self {
            context,
            shard_meta,
            gauge: answers.map(EngineGauge::start),
            engine: front.serving,
            stop,
            server,
        })
    }

    /// A stretch of sampling begins, of which [`Self::engine_figures`] will tell.
    pub(super) fn sampling_begins(&self) {
        if let Some(gauge) = &self.gauge {
            gauge.begin();
        }
    }

    /// Writes how busy the engines were since a stretch of sampling began, or since this was asked last.
    pub(super) fn engine_figures(&self, metrics: &mut StepMetrics) {
        if let Some(gauge) = &self.gauge {
            gauge.take(metrics);
        }
    }

    /// Serves these weights from now on. Sessions stay, caches that older weights filled do not.
    pub(super) async fn publish(&self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        self.engine.publish(version, weights).await
    }

    /// The same, once the answers that are being sampled have ended.
    pub(super) async fn publish_between(&self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        self.engine.publish_between(version, weights).await
    }

    /// Whether other weights can be served beside those of the run: in this process, to agents that are told where.
    pub(super) fn can_serve_beside(&self, config: &RunConfig) -> bool {
        matches!(self.engine, Serving::Embedded(_))
            && config.proxy.public_url.is_none()
            && self.context.harbor.is_none()
    }

    /// The same sandboxes and the same agent in front of these weights, whatever the run's engine serves.
    pub(super) async fn beside(
        &self,
        config: &RunConfig,
        version: PolicyVersion,
        weights: Weights,
    ) -> Result<Beside, PipelineError> {
        let mut config = config.clone();
        let host = self.context.proxy_address.ip();
        config.proxy.listen = std::net::SocketAddr::new(host, 0).to_string();
        let first = First::Trainer {
            weights,
            version,
            folder: PathBuf::new(),
        };
        let front = Front::open(&config, first, &self.stop).await?;
        let proxy = Proxy::new(front.options);
        let stop = self.stop.child_token();
        let server = serve(&proxy, front.listener, &stop);
        let context = Arc::new(TrialContext {
            proxy,
            proxy_address: front.address,
            ..TrialContext::clone(&self.context)
        });
        Ok(Beside { context, stop, server })
    }

    /// Ends trials that still run, the proxy and the engine.
    pub(super) async fn close(self) {
        self.context.cancel.cancel();
        end(&self.stop, self.server).await;
    }
}

/// Other weights than the run's, served to trials of their own.
pub(super) struct Beside {
    pub context: Arc<TrialContext>,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

impl Beside {
    /// Ends its proxy and its engine.
    pub(super) async fn close(self) {
        end(&self.stop, self.server).await;
    }
}

/// Ends a proxy.
async fn end(stop: &CancellationToken, server: JoinHandle<std::io::Result<()>>) {
    stop.cancel();
    if tokio::time::timeout(CLOSE, server).await.is_err() {
        tracing::warn!("the proxy did not end within {CLOSE:?}");
    }
}

/// What the run's sandboxes are made by; nothing is contacted yet.
fn backend(config: &RunConfig, options: &StackOptions, trials: &Path) -> Backend {
    match config.sandbox.backend {
        BackendName::Local => Backend::Local(LocalBackend::new(LocalOptions {
            read_only: config.scaffold.runtime_mount.clone(),
            force_weak: options.force_weak,
            ..LocalOptions::new(&options.init_exe, &options.scratch)
        })),
        BackendName::Docker => Backend::Docker(Box::new(docker(config, options, trials.join("images")))),
        BackendName::Kubernetes => Backend::Kubernetes(Box::new(KubernetesBackend::new(KubernetesOptions::new(
            &options.init_exe,
            &config.sandbox.kubernetes,
        )))),
        BackendName::Harbor => Backend::Elsewhere,
    }
}

/// The container engine of `[sandbox.docker]`, which keeps what it says while it builds below `build_logs`.
pub(super) fn docker(config: &RunConfig, options: &StackOptions, build_logs: PathBuf) -> DockerBackend {
    DockerBackend::new(DockerOptions {
        read_only: config.scaffold.runtime_mount.clone(),
        host: config.sandbox.docker.host.clone(),
        starts: config.sandbox.docker.starts as usize,
        image_cache: config.sandbox.docker.image_cache.map(|size| size.0),
        build_logs: Some(build_logs),
        ..DockerOptions::new(&options.init_exe, &options.scratch)
    })
}

/// Fails where the agent is not in the sandbox, before the first trial does.
async fn probe(
    backend: &Backend,
    scaffold: &dyn Scaffold,
    scratch: &Path,
    image: Option<Image>,
) -> Result<(), PipelineError> {
    let source = tempfile::tempdir_in(scratch)?;
    let spec = SandboxSpec {
        image,
        ..SandboxSpec::probe(source.path().to_owned())
    };
    let sandbox = backend.create(spec).await?;
    let probed = scaffold.probe(sandbox.as_ref()).await;
    sandbox.destroy().await?;
    Ok(probed?)
}
