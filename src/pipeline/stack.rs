//! Engine, proxy, sandboxes and scaffold of a run, started together and ended together.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lego_policy::{ModelConfig, Weights};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::blocking::blocking;
use super::run::tokenizer_dir;
use super::{PipelineError, PipelineEvent, PipelineObserver};
use crate::config::{BackendName, EngineKind, RunConfig, UnparsedToolCall};
use crate::inference::{EmbeddedEngine, EmbeddedOptions, Engine, RecordedTurn, Recording, ReplayEngine};
use crate::prompt::{PromptBuilder, ToolFormat};
use crate::proxy::{Proxy, ProxyOptions};
use crate::rollout::TrialContext;
use crate::sandbox::local::{LocalBackend, LocalOptions};
use crate::sandbox::{Backend, Isolation};
use crate::scaffold;
use crate::shard::ShardMeta;
use crate::trajectory::{PolicyVersion, SamplingParams};

/// Time for the proxy's connections to end.
const CLOSE: Duration = Duration::from_secs(10);

/// What a run needs beside its configuration.
#[derive(Debug, Clone)]
pub struct StackOptions {
    /// The executable that holds `__sandbox-init`.
    pub init_exe: PathBuf,
    /// Folder for the sandboxes' working copies.
    pub scratch: PathBuf,
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
        }
    }
}

/// All that a trial needs, running.
pub(super) struct Stack {
    pub context: Arc<TrialContext>,
    /// What its shards say of themselves.
    pub shard_meta: ShardMeta,
    engine: Serving,
    stop: CancellationToken,
    server: JoinHandle<std::io::Result<()>>,
}

/// Engines by what they take new weights from.
pub(super) enum Serving {
    Embedded(Arc<EmbeddedEngine>),
    /// Its answers are recorded: weights are nothing to it.
    Replay,
}

impl Stack {
    /// Starts everything. `trials` holds the folders of the trials; `weights` loads what is served first, where the
    /// engine serves weights at all.
    pub(super) async fn start(
        config: &RunConfig,
        options: &StackOptions,
        run_id: &str,
        trials: &Path,
        weights: impl FnOnce() -> Result<Weights, PipelineError> + Send + 'static,
        version: PolicyVersion,
        observer: &PipelineObserver,
    ) -> Result<Self, PipelineError> {
        let prompt = Arc::new(PromptBuilder::load(
            &tokenizer_dir(config),
            config.policy.chat_template.as_deref(),
        )?);
        if config.sandbox.cpus.is_some() {
            return Err(PipelineError::Config(
                "sandbox.cpus: the `local` backend cannot keep a trial to a number of cores; leave the key out, or bound \
                 the trials at a time by `sandbox.concurrency`"
                    .to_owned(),
            ));
        }
        let shape = shape(config)?;
        let (vocabulary, model_window) = (shape.vocab_size, shape.max_position_embeddings);
        let (engine, serving, window) = start_engine(config, weights, model_window, version, &prompt).await?;
        let window = config
            .policy
            .max_model_len
            .map_or(window.min(model_window), |own| window.min(own as usize));
        let listen = config.proxy.listen.clone();
        let listen_error = |source| PipelineError::Listen {
            address: listen.clone(),
            source,
        };
        let listener = TcpListener::bind(&config.proxy.listen).await.map_err(listen_error)?;
        let address = listener.local_addr()?;
        let tool_format = tool_format(config, &prompt)?;
        let model = match config.engine.served_model.as_str() {
            "" => "policy".to_owned(),
            name => name.to_owned(),
        };
        let proxy = Proxy::new(ProxyOptions {
            tool_format,
            window,
            max_tokens: config.rollout.max_tokens,
            sampling: SamplingParams {
                temperature: config.rollout.temperature,
                top_p: config.rollout.top_p,
                top_k: config.rollout.top_k,
            },
            retry_grace: config.proxy.retry_grace.0,
            capture: config.capture.train,
            builder: config.capture.builder,
            ..ProxyOptions::new(engine, Arc::clone(&prompt), &model, &format!("http://{address}"))
        });
        let stop = CancellationToken::new();
        let (served, stopped) = (proxy.clone(), stop.clone());
        let server = tokio::spawn(async move { served.serve(listener, stopped.cancelled_owned()).await });
        let backend = match config.sandbox.backend {
            BackendName::Local => Backend::Local(LocalBackend::new(LocalOptions::new(
                &options.init_exe,
                &options.scratch,
            ))),
        };
        backend.reap()?;
        if let Isolation::Weak(missing) = backend.isolation().await? {
            observer(PipelineEvent::Warning(format!("sandboxes are weak here: {missing}")));
        }
        let shard_meta = ShardMeta {
            run_id: run_id.to_owned(),
            producer: concat!("lego ", env!("CARGO_PKG_VERSION")).to_owned(),
            tokenizer_sha256: prompt.tokenizer().sha256().to_owned(),
            template_sha256: prompt.template().sha256().to_owned(),
            vocab_size: vocabulary as u32,
        };
        let watch = Arc::clone(observer);
        let context = Arc::new(TrialContext {
            run_id: run_id.to_owned(),
            backend,
            scaffold: scaffold::by_name(&config.scaffold).map_err(|error| PipelineError::Config(error.to_string()))?,
            proxy,
            proxy_address: address,
            scaffold_section: config.scaffold.clone(),
            sandbox_section: config.sandbox.clone(),
            max_retries: config.rollout.max_retries,
            reward_unfinished: config.rollout.reward_unfinished,
            unparsed_zeroes_reward: config.capture.unparsed_tool_call == UnparsedToolCall::ZeroReward,
            turn_cap: config.proxy.turn_cap,
            trials: trials.to_owned(),
            model,
            tool_parser: tool_format.map_or_else(String::new, |format| format.name().to_owned()),
            observer: Arc::new(move |event| watch(PipelineEvent::Rollout(event))),
            cancel: CancellationToken::new(),
        });
        Ok(Self {
            context,
            shard_meta,
            engine: serving,
            stop,
            server,
        })
    }

    /// Serves these weights from now on. Sessions stay, caches that older weights filled do not.
    pub(super) async fn publish(&self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        match &self.engine {
            Serving::Embedded(engine) => Ok(engine.publish_weights(version, weights).await?),
            Serving::Replay => Ok(()),
        }
    }

    /// Ends trials that still run, the proxy and the engine.
    pub(super) async fn close(self) {
        self.context.cancel.cancel();
        self.stop.cancel();
        if tokio::time::timeout(CLOSE, self.server).await.is_err() {
            tracing::warn!("the proxy did not end within {CLOSE:?}");
        }
    }
}

/// The policy's shape, without its weights.
pub(super) fn shape(config: &RunConfig) -> Result<ModelConfig, PipelineError> {
    let path = config.policy.model.join("config.json");
    let wrong = |reason: String| PipelineError::Config(format!("policy.model: {reason}"));
    let text = fs_err::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    ModelConfig::from_json(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

pub(super) async fn start_engine(
    config: &RunConfig,
    weights: impl FnOnce() -> Result<Weights, PipelineError> + Send + 'static,
    model_window: usize,
    version: PolicyVersion,
    prompt: &Arc<PromptBuilder>,
) -> Result<(Arc<dyn Engine>, Serving, usize), PipelineError> {
    match config.engine.kind {
        EngineKind::Embedded => {
            let options = EmbeddedOptions {
                kv_memory: config.engine.kv_memory.0,
                max_running: config.engine.max_running as usize,
                ..EmbeddedOptions::default()
            };
            let weights = blocking(weights).await??;
            let engine = Arc::new(EmbeddedEngine::start(&weights, version, &options)?);
            let window = engine.window();
            Ok((
                Arc::clone(&engine) as Arc<dyn Engine>,
                Serving::Embedded(engine),
                window,
            ))
        }
        EngineKind::Replay => {
            let path = config.engine.recording.clone().ok_or(PipelineError::MissingKey {
                key: "engine.recording",
                why: "the answers that the `replay` engine plays",
            })?;
            let recording = Recording::load(&path).map_err(|error| PipelineError::Config(error.to_string()))?;
            let prompt = Arc::clone(prompt);
            let render = Arc::new(move |turn: &RecordedTurn| {
                prompt
                    .answer(&super::collect::message_of(turn))
                    .map_err(|error| error.to_string())
            });
            Ok((
                Arc::new(ReplayEngine::new(recording, render)),
                Serving::Replay,
                model_window,
            ))
        }
    }
}

pub(super) fn tool_format(config: &RunConfig, prompt: &PromptBuilder) -> Result<Option<ToolFormat>, PipelineError> {
    match config.engine.tool_parser.as_str() {
        "auto" => Ok(prompt.detected_tool_format()),
        name => ToolFormat::from_name(name).map(Some).ok_or_else(|| {
            PipelineError::Config(format!(
                "engine.tool_parser: expected `auto` or {}, found `{name}`",
                ToolFormat::all()
                    .map(|format| format!("`{}`", format.name()))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))
        }),
    }
}
