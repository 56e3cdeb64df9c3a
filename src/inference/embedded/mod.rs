//! `embedded`: the policy served by this process.
//!
//! One thread owns the model, all caches and all generations (`scheduler`); this file is its asynchronous
//! face. Batching, chunking, cache reuse and preemption change what a generation costs, never what it samples.

mod outbox;
mod pass;
mod plan;
mod pool;
mod scheduler;
mod sequence;
mod shared;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lego_policy::{DecodeModel, KvCache, ModelConfig, Sampler, Weights};
use tokio::sync::{mpsc, oneshot};

use self::outbox::Outbox;
use self::scheduler::{Bounds, Command, Reply, Scheduler};
use self::sequence::Sequence;
use self::shared::{Admission, Shared};
use super::{Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode, Sampling};
use crate::config::EngineSection;
use crate::trajectory::{Experts, PolicyVersion, TokenId};

const COMMANDS: usize = 256;
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// One pass lies between a command and its answer.
const ANSWER: Duration = Duration::from_mins(2);
/// Running generations end within their token budgets.
const DRAIN: Duration = Duration::from_hours(1);

/// Bounds of an embedded engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddedOptions {
    /// Bytes for keys and values.
    pub kv_memory: u64,
    /// Generations in a pass at most.
    pub max_running: usize,
    /// Generations that wait at most; beyond, `generate` is refused.
    pub max_waiting: usize,
    /// Tokens that a pass computes, roughly: what a long prompt may delay the others by.
    pub pass_tokens: usize,
}

impl From<&EngineSection> for EmbeddedOptions {
    fn from(section: &EngineSection) -> Self {
        Self {
            kv_memory: section.kv_memory.0,
            max_running: section.max_running as usize,
            ..Self::default()
        }
    }
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            kv_memory: 1 << 30,
            max_running: 64,
            max_waiting: 1024,
            pass_tokens: 512,
        }
    }
}

/// Serves the policy from this process. Dropping it ends its thread; what runs is told that it was lost.
pub struct EmbeddedEngine {
    commands: mpsc::Sender<Command>,
    shared: Arc<Shared>,
    config: ModelConfig,
    /// What a new generation starts from.
    empty: KvCache,
    window: usize,
    kv_capacity: usize,
    places: usize,
}

impl EmbeddedEngine {
    /// Serves `weights` under `version`.
    ///
    /// # Errors
    /// When the options leave no room for a single token, or no thread can be started.
    pub fn start(weights: &Weights, version: PolicyVersion, options: &EmbeddedOptions) -> Result<Self, EngineError> {
        let config = weights.config().clone();
        let kv_capacity = options.kv_memory as usize / config.kv_bytes_per_token().max(1);
        if kv_capacity < 2 || options.max_running == 0 || options.pass_tokens == 0 {
            return Err(EngineError::Invalid(format!(
                "kv_memory of {} bytes holds {kv_capacity} tokens (at least 2 are needed), max_running is {} and \
                 pass_tokens {} (at least 1 each)",
                options.kv_memory, options.max_running, options.pass_tokens
            )));
        }
        let shared = Arc::new(Shared::default());
        shared.set_version(version);
        let bounds = Bounds {
            max_running: options.max_running,
            pass_tokens: options.pass_tokens,
            kv_capacity,
        };
        let model = DecodeModel::new(weights);
        let empty = model.new_cache();
        let scheduler = Scheduler::new(model, version, bounds, Arc::clone(&shared));
        let (commands, receiver) = mpsc::channel(COMMANDS);
        std::thread::Builder::new()
            .name("lego-engine".to_owned())
            .spawn(move || scheduler.run(receiver))
            .map_err(|error| EngineError::lost(&format!("its thread could not be started: {error}")))?;
        let window = config.max_position_embeddings.min(kv_capacity);
        let places = options.max_running + options.max_waiting;
        Ok(Self {
            commands,
            shared,
            config,
            empty,
            window,
            kv_capacity,
            places,
        })
    }

    /// Tokens of prompt and answer together at most.
    pub fn window(&self) -> usize {
        self.window
    }

    /// As `publish`, without a way over the disk.
    ///
    /// # Errors
    /// When the weights are another model's.
    pub async fn publish_weights(&self, version: PolicyVersion, weights: Weights) -> Result<(), EngineError> {
        self.check_same_model(weights.config(), "memory")?;
        let model = tokio::task::spawn_blocking(move || DecodeModel::new(&weights))
            .await
            .map_err(|error| EngineError::lost(&format!("the weights could not be laid out: {error}")))?;
        self.ask("publish", ANSWER, |reply| Command::Publish(version, model, reply))
            .await
    }

    fn check_same_model(&self, found: &ModelConfig, path: &str) -> Result<(), EngineError> {
        let shape = |config: &ModelConfig| {
            [
                config.vocab_size,
                config.hidden_size,
                config.num_hidden_layers,
                config.num_attention_heads,
                config.num_key_value_heads,
                config.head_dim,
                config.max_position_embeddings,
            ]
        };
        if shape(found) == shape(&self.config) {
            return Ok(());
        }
        let reason = format!(
            "they are another model's: vocabulary, width, layers, heads, kv heads, head width, window are {:?}, served \
             are {:?}",
            shape(found),
            shape(&self.config)
        );
        Err(EngineError::Weights {
            path: path.to_owned(),
            reason,
        })
    }

    async fn send(&self, command: Command) -> Result<(), EngineError> {
        self.commands.send(command).await.map_err(|_| ended())
    }

    /// Ends its thread as a panic would.
    #[cfg(test)]
    pub(crate) async fn vanish(&self) {
        let _ = self.send(Command::Vanish).await;
    }

    async fn ask(
        &self,
        what: &str,
        bound: Duration,
        command: impl FnOnce(Reply) -> Command,
    ) -> Result<(), EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send(command(reply)).await?;
        match tokio::time::timeout(bound, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(EngineError::lost(&format!(
                "its thread ended before it answered `{what}`"
            ))),
            Err(_) => Err(EngineError::lost(&format!("`{what}` was not done within {bound:?}"))),
        }
    }

    /// What the record of a position looks like; `None` for a dense model.
    fn experts(&self) -> Option<Experts> {
        let moe = self.config.moe.as_ref()?;
        Some(Experts {
            layers: self.config.num_hidden_layers as u16,
            top_k: moe.per_token as u16,
            count: moe.experts as u16,
        })
    }

    fn sequence(&self, request: GenerateRequest) -> Result<(Sequence, Generation), EngineError> {
        let prompt = request.prompt.len();
        if prompt == 0 {
            return Err(EngineError::Invalid("the prompt is empty".to_owned()));
        }
        if prompt >= self.window {
            return Err(EngineError::Window {
                prompt,
                window: self.window,
            });
        }
        if let Some(id) = request.prompt.iter().find(|id| **id as usize >= self.config.vocab_size) {
            let vocabulary = self.config.vocab_size;
            return Err(EngineError::Invalid(format!(
                "token {id} is not in the vocabulary of {vocabulary}"
            )));
        }
        if request.sampling.max_tokens == 0 {
            return Err(EngineError::Invalid("max_tokens is 0".to_owned()));
        }
        let sampler = sampler(&request.sampling)?;
        let place = Admission::take(&self.shared, self.places).ok_or_else(|| EngineError::Unavailable {
            reason: format!("{} generations run or wait already", self.places),
            retry_after: Some(RETRY_AFTER),
        })?;
        let (outbox, events) = Outbox::open();
        let sequence = Sequence {
            id: request.id,
            session: request.session,
            tokens: request.prompt.to_vec(),
            prompt_len: prompt,
            cache: self.empty.clone(),
            cached: None,
            budget: (request.sampling.max_tokens as usize).min(self.window - prompt),
            stop: request.sampling.stop_token_ids,
            routing: request
                .routing_from
                .zip(self.experts())
                .map(|(from, experts)| (from as usize, experts)),
            sampler,
            outbox,
            _place: place,
        };
        Ok((sequence, Generation::of(events)))
    }
}

fn ended() -> EngineError {
    EngineError::lost("its thread has ended")
}

fn sampler(sampling: &Sampling) -> Result<Sampler, EngineError> {
    let candidates = match sampling.top_k {
        -1 => 0,
        kept if kept > 0 => kept as usize,
        other => {
            return Err(EngineError::Invalid(format!(
                "top_k is {other}, expected -1 or at least 1"
            )));
        }
    };
    let knobs = lego_policy::Sampling {
        temperature: sampling.temperature,
        top_p: sampling.top_p,
        top_k: candidates,
        min_p: 0.0,
    };
    Sampler::new(knobs, sampling.seed).map_err(|error| EngineError::Invalid(error.to_string()))
}

#[async_trait]
impl Engine for EmbeddedEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let (sequence, generation) = self.sequence(request)?;
        self.send(Command::Generate(Box::new(sequence))).await?;
        Ok(generation)
    }

    async fn abort(&self, request_id: &str) {
        // An engine whose thread has ended has aborted everything.
        let _ = self.send(Command::Abort(request_id.to_owned())).await;
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let bound = if mode == PauseMode::Wait { DRAIN } else { ANSWER };
        self.ask("pause", bound, |reply| Command::Pause(mode, reply)).await
    }

    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let folder = weights.to_owned();
        let path = folder.display().to_string();
        let failed = |reason: String| EngineError::Weights {
            path: path.clone(),
            reason,
        };
        let loaded = tokio::task::spawn_blocking(move || Weights::load(&folder))
            .await
            .map_err(|error| failed(error.to_string()))?
            .map_err(|error| failed(error.to_string()))?;
        self.check_same_model(loaded.config(), &path)?;
        self.publish_weights(version, loaded).await
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.ask("resume", ANSWER, Command::Resume).await
    }

    fn version(&self) -> PolicyVersion {
        self.shared.version()
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        if self.commands.is_closed() {
            return Err(ended());
        }
        Ok(self.version())
    }

    async fn cached(&self, prompt: &[TokenId]) -> Option<u64> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Cached(prompt.into(), reply)).await.ok()?;
        Some(answer.await.ok()? as u64)
    }

    fn load(&self) -> EngineLoad {
        self.shared.load(self.kv_capacity)
    }
}
