//! `vllm`: a vLLM server, tokens in and tokens out.
//!
//! It talks to the token route, or where that is absent to completions by ids, and never to one that renders or parses. The server must be started with
//! `VLLM_SERVER_DEV_MODE=1`, `--enable-scale-out` and `--logprobs-mode processed_logprobs`.

mod completions;
#[cfg(test)]
mod tests;
mod tokens;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::prometheus::Metrics;
use super::remote::{
    Abort, CAPACITY, RELOAD, Reading, Remote, RemoteOptions, SHORT, ServerEvents, Shared, Wire, check_model, watch_load,
};
use super::{Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode};
use crate::trajectory::PolicyVersion;

/// A vLLM server.
pub struct VllmEngine {
    remote: Remote,
    patience: Duration,
    window: usize,
    /// Its name for the policy.
    model: String,
    /// Set once the server has said that it has no token route.
    without_tokens: AtomicBool,
    shared: Arc<Shared>,
    /// Ends the polling of the load.
    _polling: DropGuard,
}

impl VllmEngine {
    /// Connects: reads the window and what the server calls its weights, and begins to watch its load.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if it cannot be reached, [`EngineError::Invalid`] if it is not such a server.
    pub async fn connect(options: RemoteOptions) -> Result<Self, EngineError> {
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
        let served: Vec<String> = models["data"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|model| model["id"].as_str().map(str::to_owned))
            .collect();
        check_model(remote.base(), &served, options.model.as_deref())?;
        // A server that does not name its weights can be sampled from, and not be given others.
        let label = weights_label(&remote).await?;
        let shared = Arc::new(Shared::new(label.as_deref().unwrap_or("default"), options.version));
        let cancel = CancellationToken::new();
        tokio::spawn(watch_load(remote.clone(), Arc::clone(&shared), load_of, cancel.clone()));
        Ok(Self {
            remote,
            patience: options.patience,
            window: window as usize,
            model: options.model.or_else(|| served.into_iter().next()).unwrap_or_default(),
            without_tokens: AtomicBool::new(false),
            shared,
            _polling: cancel.drop_guard(),
        })
    }

    /// Tokens that fit, prompt and answer together.
    pub fn window(&self) -> usize {
        self.window
    }

    async fn send_pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let mode = match mode {
            PauseMode::Keep => "keep",
            PauseMode::Wait => "wait",
            PauseMode::Abort => "abort",
        };
        let path = format!("/pause?mode={mode}&clear_cache=false");
        let paused = self.remote.post(&path, &Value::Null, RELOAD).await;
        paused.map(drop).map_err(|error| missing_dev_mode(error, "/pause"))
    }

    async fn send_resume(&self) -> Result<(), EngineError> {
        self.remote.post("/resume", &Value::Null, SHORT).await.map(drop)
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
        let served = weights_label(&self.remote).await?.unwrap_or_default();
        if served == label {
            return Ok(());
        }
        Err(EngineError::Rejected(format!(
            "the server says that it serves weights `{served}`, not `{label}`"
        )))
    }

    /// Sends a request to the token route, or to the next best where there is none.
    async fn open(&self, request: &GenerateRequest) -> Result<(reqwest::Response, Box<dyn Wire>), EngineError> {
        if !self.without_tokens.load(Ordering::Relaxed) {
            let body = tokens::request(request);
            let sent = self.remote.open(tokens::ROUTE, &body, self.patience);
            match sent.await {
                Ok(response) => return Ok((response, Box::new(tokens::Tokens))),
                Err(error) if Remote::answered(&error, 403) => {
                    return Err(EngineError::Invalid(format!(
                        "{error} (start the server with `--enable-scale-out`)"
                    )));
                }
                Err(error) if Remote::answered(&error, 404) => {
                    tracing::warn!(server = self.remote.base(), "no token route: completions are used");
                    self.without_tokens.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let body = completions::request(request, &self.model);
        let response = self.remote.open(completions::ROUTE, &body, self.patience).await?;
        let wire = completions::Completions {
            prompt: Arc::clone(&request.prompt),
            confirmed: false,
        };
        Ok((response, Box::new(wire)))
    }

    fn abortion(&self, request_id: &str) -> Abort {
        let id = if self.without_tokens.load(Ordering::Relaxed) {
            completions::server_id(request_id)
        } else {
            tokens::server_id(request_id)
        };
        Abort {
            path: "/abort_requests",
            body: json!({ "request_ids": [id] }),
        }
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
        let (response, wire) = self.open(&request).await?;
        let (events, receiver) = mpsc::channel(CAPACITY);
        let reading = Reading::new(
            wire,
            self.abortion(&request.id),
            request.prompt.len(),
            events,
            begun,
            Arc::clone(&self.shared),
        );
        tokio::spawn(reading.run(ServerEvents::of(response), self.remote.clone(), self.patience));
        Ok(Generation { events: receiver })
    }

    async fn abort(&self, request_id: &str) {
        self.abortion(request_id).send(&self.remote).await;
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        self.shared.hold(self.send_pause(mode), self.send_resume()).await
    }

    /// The folder must be readable where the server runs. Running generations stand still and go on.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let (pause, reload) = (self.send_pause(PauseMode::Keep), self.reload(version, weights));
        let publication = self
            .shared
            .publication(version, weights, pause, reload, self.send_resume());
        publication.await
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.shared.go_on(self.send_resume()).await
    }

    fn version(&self) -> PolicyVersion {
        self.shared.state().version
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        self.remote.get("/health").await?;
        match weights_label(&self.remote).await? {
            Some(label) => self.shared.state().version_of(&label).map_err(EngineError::Rejected),
            None => Ok(self.version()),
        }
    }

    fn load(&self) -> EngineLoad {
        self.shared.state().load
    }

    fn gives_logprobs(&self) -> bool {
        true
    }
}

/// What the server calls its weights, where it names them.
async fn weights_label(remote: &Remote) -> Result<Option<String>, EngineError> {
    match remote.get("/weight_info").await {
        Ok(info) => Ok(Some(info["weight_version"].as_str().unwrap_or("default").to_owned())),
        Err(error) if Remote::answered(&error, 404) => Ok(None),
        Err(error) => Err(error),
    }
}

fn missing_dev_mode(error: EngineError, path: &str) -> EngineError {
    if Remote::answered(&error, 404) {
        return EngineError::Invalid(format!(
            "{error} (`{path}` is there when the server is started with VLLM_SERVER_DEV_MODE=1)"
        ));
    }
    error
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
