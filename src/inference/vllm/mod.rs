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

use async_trait::async_trait;
use serde_json::{Value, json};

use super::prometheus::Metrics;
use super::remote::{Abort, RELOAD, Remote, RemoteOptions, SHORT, Server, Wire, check_label, check_model};
use super::{Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode};
use crate::trajectory::PolicyVersion;

/// A vLLM server.
pub struct VllmEngine {
    server: Server,
    /// Its name for the policy.
    model: String,
    /// Set once the server has said that it has no token route.
    without_tokens: AtomicBool,
}

impl VllmEngine {
    /// Connects: reads the window and what the server calls its weights, and begins to watch its load.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if it cannot be reached, [`EngineError::Invalid`] if it is not such a server.
    pub async fn connect(options: RemoteOptions) -> Result<Self, EngineError> {
        let remote = Remote::new(&options)?;
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
        let label = label.as_deref().unwrap_or("default");
        Ok(Self {
            server: Server::watch(remote, window, label, &options, load_of),
            model: options.model.or_else(|| served.into_iter().next()).unwrap_or_default(),
            without_tokens: AtomicBool::new(false),
        })
    }

    /// Tokens that fit, prompt and answer together.
    pub fn window(&self) -> usize {
        self.server.window
    }

    async fn send_pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let mode = match mode {
            PauseMode::Keep => "keep",
            PauseMode::Wait => "wait",
            PauseMode::Abort => "abort",
        };
        let path = format!("/pause?mode={mode}&clear_cache=false");
        let paused = self.server.remote.post(&path, &Value::Null, RELOAD).await;
        paused.map(drop).map_err(|error| missing_dev_mode(error, "/pause"))
    }

    async fn send_resume(&self) -> Result<(), EngineError> {
        self.server.remote.post("/resume", &Value::Null, SHORT).await.map(drop)
    }

    async fn reload(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let label = version.to_string();
        let reload = json!({"method": "reload_weights", "kwargs": {"weights_path": weights}});
        let remote = &self.server.remote;
        remote.post("/collective_rpc", &reload, RELOAD).await?;
        remote
            .post("/update_weight_version", &json!({ "new_version": label }), SHORT)
            .await?;
        // What older weights have cached is not what these would have computed. While anything runs the server keeps it
        // all, unless what runs is to be computed anew as well.
        let reset = "/reset_prefix_cache?reset_running_requests=true";
        if remote.post(reset, &Value::Null, SHORT).await?["success"] == false {
            let kept = "the server keeps what older weights have cached";
            return Err(EngineError::Rejected(kept.to_owned()));
        }
        check_label(&weights_label(remote).await?.unwrap_or_default(), &label)
    }

    /// Sends a request to the token route, or to the next best where there is none.
    async fn open(&self, request: &GenerateRequest) -> Result<(reqwest::Response, Box<dyn Wire>), EngineError> {
        let (remote, patience) = (&self.server.remote, self.server.patience);
        if !self.without_tokens.load(Ordering::Relaxed) {
            let body = tokens::request(request);
            let sent = remote.open(tokens::ROUTE, &body, patience);
            match sent.await {
                Ok(response) => return Ok((response, Box::new(tokens::Tokens))),
                Err(error) if Remote::answered(&error, 403) => {
                    return Err(EngineError::Invalid(format!(
                        "{error} (start the server with `--enable-scale-out`)"
                    )));
                }
                Err(error) if Remote::answered(&error, 404) => {
                    tracing::warn!(server = remote.base(), "no token route: completions are used");
                    self.without_tokens.store(true, Ordering::Relaxed);
                }
                Err(error) => return Err(error),
            }
        }
        let body = completions::request(request, &self.model);
        let response = remote.open(completions::ROUTE, &body, patience).await?;
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
        let begun = self.server.begin(&request)?;
        let (response, wire) = self.open(&request).await?;
        let abort = self.abortion(&request.id);
        Ok(self.server.read(&request, begun, response, wire, abort))
    }

    async fn abort(&self, request_id: &str) {
        self.abortion(request_id).send(&self.server.remote).await;
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let shared = &self.server.shared;
        shared.hold(self.send_pause(mode), self.send_resume()).await
    }

    /// The folder must be readable where the server runs. Running generations stand still and go on; what was
    /// computed for them is computed anew.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let (pause, reload) = (self.send_pause(PauseMode::Keep), self.reload(version, weights));
        let resume = self.send_resume();
        let shared = &self.server.shared;
        let publication = shared.publication(version, weights, pause, reload, resume);
        publication.await
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.server.shared.go_on(self.send_resume()).await
    }

    fn version(&self) -> PolicyVersion {
        self.server.version()
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        self.server.remote.get("/health").await?;
        match weights_label(&self.server.remote).await? {
            Some(label) => self.server.version_of(&label),
            None => Ok(self.version()),
        }
    }

    fn load(&self) -> EngineLoad {
        self.server.load()
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

pub(super) fn load_of(metrics: &Metrics<'_>) -> EngineLoad {
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
