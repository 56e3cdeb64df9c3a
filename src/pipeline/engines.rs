//! The engine that run.toml names, started or connected to, and where new weights go.

use std::sync::Arc;

use lego_policy::Weights;

use super::PipelineError;
use super::blocking::blocking;
use super::first::First;
use super::remote_engines::{self, Servers};
use crate::balance::{Balancing, Replicas};
use crate::config::{EngineKind, RunConfig};
use crate::inference::{EmbeddedEngine, EmbeddedOptions, Engine, PauseMode, RecordedTurn, Recording, ReplayEngine};
use crate::prompt::{Message, PromptBuilder, Role, ToolCall};
use crate::trajectory::PolicyVersion;

/// An engine that runs.
pub(super) struct Started {
    pub engine: Arc<dyn Engine>,
    /// Where new weights go.
    pub serving: Serving,
    /// Tokens that fit.
    pub window: usize,
}

/// Engines by what they take new weights from.
pub(super) enum Serving {
    Embedded(Arc<EmbeddedEngine>),
    Remote(Servers),
    /// Its answers are recorded, or those of a hosted model: weights are nothing to it.
    Fixed,
}

impl Serving {
    /// The same once the answers that are being sampled have ended; those that were asked for meanwhile are sampled by
    /// the new weights. Sampling goes on whatever came of it.
    pub(super) async fn publish_between(&self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        let engine = match self {
            Self::Embedded(engine) => engine,
            Self::Remote(servers) => return servers.publish(version, weights, true).await,
            Self::Fixed => return Ok(()),
        };
        engine.pause(PauseMode::Wait).await?;
        let published = engine.publish_weights(version, weights).await;
        let resumed = engine.resume().await;
        published?;
        Ok(resumed?)
    }

    /// Serves these weights from now on. Sessions stay, caches that older weights filled do not.
    pub(super) async fn publish(&self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        match self {
            Self::Embedded(engine) => Ok(engine.publish_weights(version, weights).await?),
            Self::Remote(servers) => servers.publish(version, weights, false).await,
            Self::Fixed => Ok(()),
        }
    }
}

/// Starts the engine of this configuration, tokens in and out.
pub(super) async fn start(
    config: &RunConfig,
    first: First,
    model_window: usize,
    prompt: &Arc<PromptBuilder>,
) -> Result<Started, PipelineError> {
    match config.engine.kind {
        EngineKind::Embedded => embedded(config, first).await,
        EngineKind::Replay => replay(config, model_window, prompt),
        EngineKind::Vllm | EngineKind::Sglang => {
            let (servers, window) = remote_engines::connect(config, &first, prompt).await?;
            let engine = servers.engine();
            let serving = Serving::Remote(servers);
            if let First::Trainer { weights, version, .. } = first {
                serving.publish(version, weights).await?;
            }
            Ok(Started {
                engine,
                serving,
                window,
            })
        }
        EngineKind::Openai => Err(PipelineError::Config(
            "engine.kind = \"openai\": a hosted API gives no token ids, so that none of its answers can train; sample from \
             `embedded`, `vllm` or `sglang`, and keep this one for `lego rollout` and `lego serve-proxy`"
                .to_owned(),
        )),
    }
}

async fn embedded(config: &RunConfig, first: First) -> Result<Started, PipelineError> {
    let options = EmbeddedOptions::from(&config.engine);
    let version = first.version();
    let weights = match first {
        First::Trainer { weights, .. } => weights,
        First::Model | First::Nobody => {
            let model = config.policy.model.clone();
            blocking(move || Weights::load(&model)).await??
        }
    };
    let engine = Arc::new(EmbeddedEngine::start(&weights, version, &options)?);
    let balancing = Balancing::of(config);
    let alone = Arc::clone(&engine) as Arc<dyn Engine>;
    Ok(Started {
        window: engine.window(),
        engine: if balancing.holds() {
            Arc::new(Replicas::balanced(vec![("embedded".to_owned(), alone)], balancing))
        } else {
            alone
        },
        serving: Serving::Embedded(engine),
    })
}

fn replay(config: &RunConfig, model_window: usize, prompt: &Arc<PromptBuilder>) -> Result<Started, PipelineError> {
    let path = config.engine.recording.clone().ok_or(PipelineError::MissingKey {
        key: "engine.recording",
        why: "the answers that the `replay` engine plays",
    })?;
    let recording = Recording::load(&path).map_err(|error| PipelineError::Config(error.to_string()))?;
    let prompt = Arc::clone(prompt);
    let render = Arc::new(move |turn: &RecordedTurn| {
        let ids = match &turn.raw {
            Some(text) => prompt.written(text),
            None => prompt.answer(&message_of(turn)),
        };
        ids.map_err(|error| error.to_string())
    });
    Ok(Started {
        engine: Arc::new(ReplayEngine::new(recording, render)),
        serving: Serving::Fixed,
        window: model_window,
    })
}

/// A recorded answer as a message of the policy.
fn message_of(turn: &RecordedTurn) -> Message {
    Message {
        tool_calls: turn
            .tool_calls
            .iter()
            .map(|call| {
                ToolCall::new(
                    None,
                    call.name.clone(),
                    serde_json::Value::Object(call.arguments.clone()),
                )
            })
            .collect(),
        ..Message::text(Role::Assistant, turn.content.clone())
    }
}
