//! Engines in other processes: connected to, checked before anything is sampled, and given weights by a folder.

use std::sync::Arc;
use std::time::Duration;

use lego_policy::Weights;

use super::PipelineError;
use super::blocking::blocking;
use super::first::First;
use super::run::tokenizer_dir;
use crate::balance::{Balancing, Replicas};
use crate::config::{EngineKind, RunConfig};
use crate::inference::{
    Engine, EngineError, HostedApi, RemoteOptions, SglangEngine, VllmEngine, check_logprobs, endpoint_problem,
};
use crate::prompt::PromptBuilder;
use crate::train::checkpoint::PublishedWeights;
use crate::trajectory::{Experts, PolicyVersion, TokenId};

/// Longest wait for the next token; shorter than the proxy's, so that the engine's own error is what is told.
const PATIENCE: Duration = Duration::from_mins(9);

/// Texts behind which no model is certain of the next token.
const OPEN_TEXTS: [&str; 3] = ["The", "a", "1"];

/// The servers of a run.
pub(super) struct Servers {
    replicas: Arc<Replicas>,
    /// Absent where nothing is trained.
    weights: Option<PublishedWeights>,
}

impl Servers {
    pub(super) fn engine(&self) -> Arc<dyn Engine> {
        Arc::clone(&self.replicas) as Arc<dyn Engine>
    }

    /// Writes the weights, then has every replica load them; with `drains`, once what it samples has ended.
    pub(super) async fn publish(
        &self,
        version: PolicyVersion,
        weights: Weights,
        drains: bool,
    ) -> Result<(), PipelineError> {
        let Some(store) = self.weights.clone() else {
            return Ok(());
        };
        let needed = self.replicas.folders();
        let folder = blocking(move || store.write(version, &weights, &needed)).await??;
        let published = if drains {
            self.replicas.publish_between(version, &folder).await
        } else {
            self.replicas.publish(version, &folder).await
        };
        Ok(published?)
    }
}

/// Connects to every server of the configuration and checks it; also tells how many tokens fit into all of them.
pub(super) async fn connect(
    config: &RunConfig,
    first: &First,
    prompt: &PromptBuilder,
) -> Result<(Servers, usize), PipelineError> {
    let section = &config.engine;
    let servers = servers(config, first.version())?;
    let probes = OPEN_TEXTS
        .iter()
        .map(|text| Ok(prompt.tokenizer().encode(text)?.into()))
        .collect::<Result<Vec<Arc<[TokenId]>>, crate::prompt::PromptError>>()?;
    let weights = match first {
        First::Model | First::Nobody => None,
        First::Trainer { folder, .. } => Some(PublishedWeights::open(folder, &tokenizer_dir(config))?),
    };
    let (mut engines, mut window) = (Vec::new(), usize::MAX);
    for options in servers {
        let endpoint = options.endpoint.clone();
        let (engine, fits): (Arc<dyn Engine>, usize) = if section.kind == EngineKind::Sglang {
            let engine = SglangEngine::connect(options).await?;
            let fits = engine.window();
            (Arc::new(engine), fits)
        } else {
            let engine = VllmEngine::connect(options).await?;
            let fits = engine.window();
            (Arc::new(engine), fits)
        };
        let (needed, key) = window_needed(config, first);
        if fits < needed {
            let flag = match section.kind {
                EngineKind::Sglang => "--context-length",
                _ => "--max-model-len",
            };
            return Err(EngineError::Invalid(format!(
                "{endpoint} has a window of {fits} tokens, and {key} asks for {needed}: start the server with \
                 `{flag} {needed}`, or ask for less"
            ))
            .into());
        }
        engine.served().await?;
        let after = check_logprobs(engine.as_ref(), &probes).await?;
        if !after && !samples_as_it_is(config) {
            return Err(EngineError::Invalid(format!(
                "{endpoint} gives log-probs before temperature: {}",
                match section.kind {
                    EngineKind::Sglang => "start the server without SGLANG_RETURN_ORIGINAL_LOGPROB",
                    _ => "start the server with `--logprobs-mode processed_logprobs`",
                }
            ))
            .into());
        }
        window = window.min(fits);
        engines.push((endpoint, engine));
    }
    let replicas = Arc::new(Replicas::balanced(engines, Balancing::of(config)));
    Ok((Servers { replicas, weights }, window))
}

/// Connects to the hosted API of the configuration.
pub(super) async fn hosted(config: &RunConfig) -> Result<HostedApi, PipelineError> {
    let mut servers = servers(config, PolicyVersion::default())?;
    match (servers.pop(), servers.len()) {
        (Some(options), 0) => Ok(HostedApi::connect(options).await?),
        (_, more) => Err(PipelineError::Config(format!(
            "engine.endpoints: a hosted API has one address, found {}",
            more + 1
        ))),
    }
}

/// How to reach each server of the configuration, at least one.
fn servers(config: &RunConfig, version: PolicyVersion) -> Result<Vec<RemoteOptions>, PipelineError> {
    let section = &config.engine;
    if section.endpoints.is_empty() {
        return Err(PipelineError::MissingKey {
            key: "engine.endpoints",
            why: "the servers to sample from, such as [\"http://host:8000\"]",
        });
    }
    let api_key = section.api_key_env.as_deref().map(key_of).transpose()?;
    let experts = if config.records_routing() && section.kind.is_remote() {
        Some(experts(config)?)
    } else {
        None
    };
    let options = section.endpoints.iter().map(|endpoint| {
        if let Some(problem) = endpoint_problem(endpoint) {
            return Err(PipelineError::Config(format!("engine.endpoints: {problem}")));
        }
        Ok(RemoteOptions {
            endpoint: endpoint.clone(),
            api_key: api_key.clone(),
            ca_file: section.ca_file.clone(),
            experts,
            model: Some(section.served_model.clone()).filter(|name| !name.is_empty()),
            version,
            patience: PATIENCE,
        })
    });
    options.collect()
}

/// The window that the run counts on, and the key that says so.
fn window_needed(config: &RunConfig, first: &First) -> (usize, &'static str) {
    let data = &config.data;
    match (config.policy.max_model_len, first) {
        (Some(length), _) => (length as usize, "policy.max_model_len"),
        (None, First::Model | First::Nobody) => (0, ""),
        (None, First::Trainer { .. }) => (
            (data.max_prompt_tokens + data.max_response_tokens) as usize,
            "data.max_prompt_tokens + data.max_response_tokens",
        ),
    }
}

/// Whether the policy's own distribution is sampled: log-probs before and after it are then the same.
fn samples_as_it_is(config: &RunConfig) -> bool {
    let rollout = &config.rollout;
    let unchanged = |value: f32| (value - 1.0).abs() < f32::EPSILON;
    unchanged(rollout.temperature) && unchanged(rollout.top_p) && rollout.top_k <= 0
}

/// The shape of the policy's mixture of experts, by the names that families of models have for it.
fn experts(config: &RunConfig) -> Result<Experts, PipelineError> {
    let path = config.policy.model.join("config.json");
    let wrong = |reason: &dyn std::fmt::Display| {
        PipelineError::Config(format!("capture.routing: {}: {reason}", path.display()))
    };
    let text = fs_err::read_to_string(&path).map_err(|error| wrong(&error))?;
    let model: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    let number = |names: &[&str]| {
        let found = names.iter().find_map(|name| model[*name].as_u64());
        let number = found
            .and_then(|number| u16::try_from(number).ok())
            .filter(|&number| number > 0);
        number.ok_or_else(|| {
            wrong(&format!(
                "expected a number of `{}`: is the model a mixture of experts?",
                names.join("` or `")
            ))
        })
    };
    Ok(Experts {
        layers: number(&["num_hidden_layers"])?,
        top_k: number(&["num_experts_per_tok"])?,
        count: number(&["num_experts", "num_local_experts", "n_routed_experts"])?,
    })
}

fn key_of(variable: &str) -> Result<String, PipelineError> {
    match std::env::var(variable) {
        Ok(key) if !key.is_empty() => Ok(key),
        _ => Err(PipelineError::Config(format!(
            "engine.api_key_env: the environment variable `{variable}` is not set: export the servers' key in it"
        ))),
    }
}
