//! `sglang`: an `SGLang` server, tokens in and tokens out (shapes of 0.5).
//!
//! It talks to the server's own `/generate` and never to a route that renders or parses.

#[cfg(test)]
mod tests;
mod wire;

use std::path::Path;

use async_trait::async_trait;
use serde_json::{Value, json};

use super::prometheus::Metrics;
use super::remote::{Abort, RELOAD, Remote, RemoteOptions, SHORT, Server, check_label, check_model};
use super::{Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode};
use crate::trajectory::PolicyVersion;

/// An `SGLang` server.
pub struct SglangEngine {
    server: Server,
}

impl SglangEngine {
    /// Connects: reads the window and what the server calls its weights, and begins to watch its load.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if it cannot be reached, [`EngineError::Invalid`] if it is not such a server.
    pub async fn connect(options: RemoteOptions) -> Result<Self, EngineError> {
        let remote = Remote::new(&options)?;
        let info = remote.get("/get_server_info").await?;
        // The length that was asked for, or what memory allows.
        let window = ["context_length", "max_total_num_tokens"]
            .iter()
            .filter_map(|key| info[*key].as_u64())
            .min()
            .ok_or_else(|| {
                EngineError::Invalid(format!(
                    "{}/get_server_info names neither `context_length` nor `max_total_num_tokens`: is it SGLang?",
                    remote.base()
                ))
            })?;
        let names = [&info["served_model_name"], &info["model_path"]];
        let served = names.iter().find_map(|name| name.as_str()).unwrap_or_default();
        check_model(remote.base(), &[served.to_owned()], options.model.as_deref())?;
        Ok(Self {
            server: Server::watch(remote, window, &label_in(&info), &options, load_of),
        })
    }

    /// Tokens that fit, prompt and answer together.
    pub fn window(&self) -> usize {
        self.server.window
    }

    async fn weights_label(&self) -> Result<String, EngineError> {
        Ok(label_in(&self.server.remote.get("/get_server_info").await?))
    }

    /// With `retract` running generations are computed anew under the new weights, so that no cache of older ones stays.
    async fn send_pause(&self, mode: &str) -> Result<(), EngineError> {
        let body = json!({ "mode": mode });
        let remote = &self.server.remote;
        remote.post("/pause_generation", &body, RELOAD).await.map(drop)
    }

    async fn send_resume(&self) -> Result<(), EngineError> {
        let remote = &self.server.remote;
        remote.post("/continue_generation", &json!({}), SHORT).await.map(drop)
    }

    async fn reload(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let label = version.to_string();
        let update = json!({"model_path": weights, "weight_version": label, "flush_cache": true, "keep_pause": true});
        let remote = &self.server.remote;
        let answer = remote.post("/update_weights_from_disk", &update, RELOAD).await?;
        if answer["success"] == false {
            let message = answer["message"].as_str().unwrap_or("no reason given");
            return Err(EngineError::Rejected(message.to_owned()));
        }
        check_label(&self.weights_label().await?, &label)
    }
}

#[async_trait]
impl Engine for SglangEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let begun = self.server.begin(&request)?;
        let (remote, patience) = (&self.server.remote, self.server.patience);
        let response = remote.open(wire::ROUTE, &wire::request(&request), patience).await?;
        let (wire, abort) = (Box::new(wire::Generate::default()), abortion(&request.id));
        Ok(self.server.read(&request, begun, response, wire, abort))
    }

    async fn abort(&self, request_id: &str) {
        abortion(request_id).send(&self.server.remote).await;
    }

    /// It cannot wait for running generations: `PauseMode::Wait` keeps them.
    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let mode = match mode {
            PauseMode::Keep | PauseMode::Wait => "in_place",
            PauseMode::Abort => "abort",
        };
        let shared = &self.server.shared;
        shared.hold(self.send_pause(mode), self.send_resume()).await
    }

    /// The folder must be readable where the server runs. Running generations are retracted and go on with their keys and
    /// values computed anew, so that no cache of older weights stays.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        let (pause, reload) = (self.send_pause("retract"), self.reload(version, weights));
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
        self.server.remote.get("/health_generate").await?;
        self.server.version_of(&self.weights_label().await?)
    }

    fn load(&self) -> EngineLoad {
        self.server.load()
    }
}

fn abortion(request_id: &str) -> Abort {
    Abort {
        path: "/abort_request",
        body: json!({ "rid": request_id }),
    }
}

/// What the server calls its weights.
fn label_in(info: &Value) -> String {
    info["weight_version"].as_str().unwrap_or("default").to_owned()
}

/// Its metrics, where it was started with `--enable-metrics`.
pub(super) fn load_of(metrics: &Metrics<'_>) -> EngineLoad {
    let count = |name: &str| metrics.sum(&[name]).unwrap_or(0.0).max(0.0) as u64;
    let (prompt, cached) = (count("sglang:prompt_tokens_total"), count("sglang:cached_tokens_total"));
    let sampled = count("sglang:generation_tokens_total");
    EngineLoad {
        running: count("sglang:num_running_reqs") as u32,
        waiting: count("sglang:num_queue_reqs") as u32,
        kv_used: count("sglang:num_used_tokens"),
        kv_capacity: count("sglang:max_total_num_tokens"),
        prompt_tokens: prompt,
        cached_tokens: cached,
        sampled_tokens: sampled,
        computed_tokens: prompt.saturating_sub(cached) + sampled,
        preemptions: count("sglang:num_retracted_reqs_total"),
    }
}
