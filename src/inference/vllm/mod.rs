//! `vllm`: a vLLM server, tokens in and tokens out.
//!
//! It talks to the token route alone and never to one that renders or parses. The server must be started with
//! `VLLM_SERVER_DEV_MODE=1`, `--enable-scale-out` and `--logprobs-mode processed_logprobs`.

mod stream;
#[cfg(test)]
mod tests;
mod wire;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::prometheus::Metrics;
use super::remote::{Remote, SHORT, ServerEvents};
use super::{Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode};
use crate::trajectory::PolicyVersion;
use stream::Reading;

/// Events in a generation's channel; a reader that does not keep up slows its own stream down.
const CAPACITY: usize = 64;
/// Loading weights from disk.
const RELOAD: Duration = Duration::from_mins(30);
const LOAD_PERIOD: Duration = Duration::from_secs(1);

/// How to reach the server. It holds a secret and is not to be printed.
#[derive(Clone)]
pub struct VllmOptions {
    /// Such as `http://127.0.0.1:8000`.
    pub endpoint: String,
    /// Sent as `Authorization: Bearer`.
    pub api_key: Option<String>,
    /// The weights that it serves at first, whatever it calls them.
    pub version: PolicyVersion,
    /// Longest wait for the next token while it is not paused.
    pub patience: Duration,
}

/// A vLLM server.
pub struct VllmEngine {
    remote: Remote,
    patience: Duration,
    window: usize,
    shared: Arc<Shared>,
    /// Ends the polling of the load.
    _polling: DropGuard,
}

/// What running generations look at.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    paused: AtomicBool,
}

#[derive(Debug, Clone)]
struct State {
    version: PolicyVersion,
    /// What the server calls the weights that it had at first.
    first_label: String,
    first_version: PolicyVersion,
    /// Publications that have begun.
    publications: u64,
    load: EngineLoad,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The version that the server calls so.
    fn version_of(&self, label: &str) -> Result<PolicyVersion, String> {
        if label == self.first_label {
            return Ok(self.first_version);
        }
        label
            .parse()
            .map_err(|_| format!("weights `{label}` were not published from here"))
    }
}

impl VllmEngine {
    /// Connects: reads the window and what the server calls its weights, and begins to watch its load.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if it cannot be reached, [`EngineError::Invalid`] if it is not such a server.
    pub async fn connect(options: VllmOptions) -> Result<Self, EngineError> {
        let remote = Remote::new(&options.endpoint, options.api_key)?;
        let models = remote.get("/v1/models").await?;
        let window = models
            .pointer("/data/0/max_model_len")
            .and_then(Value::as_u64)
            .ok_or_else(|| {
                EngineError::Invalid(format!(
                    "{}/v1/models names no `max_model_len`: is it vLLM?",
                    remote.base()
                ))
            })?;
        let info = remote.get("/weight_info").await;
        let info = info.map_err(|error| missing_dev_mode(error, "/weight_info"))?;
        let state = State {
            version: options.version,
            first_label: info["weight_version"].as_str().unwrap_or("default").to_owned(),
            first_version: options.version,
            publications: 0,
            load: EngineLoad::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            paused: AtomicBool::new(false),
        });
        let cancel = CancellationToken::new();
        tokio::spawn(watch_load(remote.clone(), Arc::clone(&shared), cancel.clone()));
        Ok(Self {
            remote,
            patience: options.patience,
            window: window as usize,
            shared,
            _polling: cancel.drop_guard(),
        })
    }

    /// Tokens that fit, prompt and answer together.
    pub fn window(&self) -> usize {
        self.window
    }

    async fn reload(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let label = version.to_string();
        let reload = json!({"method": "reload_weights", "kwargs": {"weights_path": weights}});
        self.remote.post("/collective_rpc", &reload, RELOAD).await?;
        self.remote
            .post("/update_weight_version", &json!({ "new_version": label }), SHORT)
            .await?;
        // What older weights have cached is not what these would have computed.
        self.remote.post("/reset_prefix_cache", &Value::Null, SHORT).await?;
        let info = self.remote.get("/weight_info").await?;
        if info["weight_version"] == label.as_str() {
            return Ok(());
        }
        Err(EngineError::Rejected(format!(
            "the server says that it serves weights {}, not `{label}`",
            info["weight_version"]
        )))
    }
}

#[async_trait]
impl Engine for VllmEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        if request.prompt.len() >= self.window {
            return Err(EngineError::Window {
                prompt: request.prompt.len(),
                window: self.window,
            });
        }
        let begun = self.shared.state().clone();
        let body = wire::request(&request);
        let sent = self.remote.open("/inference/v1/generate", &body, self.patience);
        let response = sent.await.map_err(|error| match error {
            EngineError::Invalid(reason) if reason.contains("403") => {
                EngineError::Invalid(format!("{reason} (start the server with `--enable-scale-out`)"))
            }
            other => other,
        })?;
        let (events, receiver) = mpsc::channel(CAPACITY);
        let reading = Reading::new(
            request.id,
            request.prompt.len(),
            events,
            begun,
            Arc::clone(&self.shared),
        );
        tokio::spawn(reading.run(ServerEvents::of(response), self.remote.clone(), self.patience));
        Ok(Generation { events: receiver })
    }

    async fn abort(&self, request_id: &str) {
        abort(&self.remote, request_id).await;
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let mode = match mode {
            PauseMode::Keep => "keep",
            PauseMode::Wait => "wait",
            PauseMode::Abort => "abort",
        };
        // Before the call, since no token may come from then on and no reader may lose patience.
        self.shared.paused.store(true, Ordering::Relaxed);
        let path = format!("/pause?mode={mode}&clear_cache=false");
        let paused = self.remote.post(&path, &Value::Null, RELOAD).await;
        if let Err(error) = paused {
            self.resume().await?;
            return Err(missing_dev_mode(error, "/pause"));
        }
        Ok(())
    }

    /// The folder must be readable where the server runs. Running generations stand still and go on.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let was_paused = self.shared.paused.load(Ordering::Relaxed);
        self.shared.state().publications += 1;
        if !was_paused {
            self.pause(PauseMode::Keep).await?;
        }
        let reloaded = self.reload(version, weights).await;
        if reloaded.is_ok() {
            self.shared.state().version = version;
        }
        let resumed = if was_paused { Ok(()) } else { self.resume().await };
        reloaded.map_err(|error| EngineError::Weights {
            path: weights.display().to_string(),
            reason: error.to_string(),
        })?;
        resumed
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.remote.post("/resume", &Value::Null, SHORT).await?;
        self.shared.paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn version(&self) -> PolicyVersion {
        self.shared.state().version
    }

    fn load(&self) -> EngineLoad {
        self.shared.state().load
    }

    fn gives_logprobs(&self) -> bool {
        true
    }
}

async fn abort(remote: &Remote, request_id: &str) {
    let ids = json!({ "request_ids": [wire::server_id(request_id)] });
    if let Err(error) = remote.post("/abort_requests", &ids, SHORT).await {
        tracing::warn!(request = request_id, %error, "generation could not be aborted");
    }
}

fn missing_dev_mode(error: EngineError, path: &str) -> EngineError {
    match error {
        EngineError::Invalid(reason) if reason.contains("404") => EngineError::Invalid(format!(
            "{reason} (`{path}` is there when the server is started with VLLM_SERVER_DEV_MODE=1)"
        )),
        other => other,
    }
}

async fn watch_load(remote: Remote, shared: Arc<Shared>, cancel: CancellationToken) {
    loop {
        if let Ok(Value::String(page)) = remote.get("/metrics").await {
            let load = load_of(&Metrics(&page));
            shared.state().load = load;
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(LOAD_PERIOD) => {}
        }
    }
}

fn load_of(metrics: &Metrics<'_>) -> EngineLoad {
    let count = |names: &[&str]| metrics.sum(names).unwrap_or(0.0).max(0.0) as u64;
    let label = |label| metrics.label("vllm:cache_config_info", label).unwrap_or(0.0);
    let capacity = label("block_size") * label("num_gpu_blocks");
    let used = metrics.sum(&["vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"]);
    let (prompt, cached) = (
        count(&["vllm:prompt_tokens_total"]),
        count(&["vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"]),
    );
    let sampled = count(&["vllm:generation_tokens_total"]);
    EngineLoad {
        running: count(&["vllm:num_requests_running"]) as u32,
        waiting: count(&["vllm:num_requests_waiting"]) as u32,
        kv_used: (used.unwrap_or(0.0) * capacity) as u64,
        kv_capacity: capacity as u64,
        prompt_tokens: prompt,
        cached_tokens: cached,
        sampled_tokens: sampled,
        computed_tokens: prompt.saturating_sub(cached) + sampled,
        preemptions: count(&["vllm:num_preemptions_total"]),
    }
}
