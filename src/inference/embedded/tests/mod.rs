//! The embedded engine over a small random model: what it samples, what it costs, how it ends.

mod bounds;
mod cost;
mod experts;
mod interleaving;
mod parity;
mod pausing;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use lego_policy::{HostTensor, ModelConfig, Weights};

use super::{EmbeddedEngine, EmbeddedOptions};
use crate::inference::{Engine, Finish, GenerateRequest, Generation, GenerationEvent, RequestOrigin, Sampling};
use crate::trajectory::{PolicyVersion, SessionKey, TokenId};

const VOCABULARY: usize = 48;
const WINDOW: usize = 512;
const NO_STOP: &[TokenId] = &[];

fn config() -> ModelConfig {
    ModelConfig {
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 2,
        num_key_value_heads: 1,
        head_dim: 16,
        intermediate_size: 64,
        max_position_embeddings: WINDOW,
        ..ModelConfig::tiny(VOCABULARY)
    }
}

/// Random weights, large enough that the distributions are far from uniform.
fn weights(seed: u64) -> Weights {
    let small = Weights::init(config(), seed).unwrap();
    let tensors: BTreeMap<String, HostTensor> = small
        .iter()
        .map(|(name, tensor)| {
            let factor = if tensor.shape.len() > 1 { 8.0 } else { 1.0 };
            let data: Arc<[f32]> = tensor.data.iter().map(|value| value * factor).collect();
            (
                name.to_owned(),
                HostTensor {
                    shape: tensor.shape.clone(),
                    data,
                },
            )
        })
        .collect();
    Weights::from_tensors(config(), tensors).unwrap()
}

fn version(update: u64) -> PolicyVersion {
    PolicyVersion { lineage: 0, update }
}

fn start(options: &EmbeddedOptions) -> EmbeddedEngine {
    EmbeddedEngine::start(&weights(1), version(0), options).unwrap()
}

/// An engine whose cache holds `tokens`.
fn start_with_capacity(tokens: usize, options: &EmbeddedOptions) -> EmbeddedEngine {
    start(&EmbeddedOptions {
        kv_memory: (tokens * config().kv_bytes_per_token()) as u64,
        ..options.clone()
    })
}

/// A prompt that differs with `salt` from its first token on.
fn prompt(salt: u32, length: usize) -> Vec<TokenId> {
    (0..length as u32)
        .map(|i| (salt * 7 + i * (salt + 3) + i * i) % VOCABULARY as u32)
        .collect()
}

fn request(id: &str, prompt: &[TokenId], max_tokens: u32) -> GenerateRequest {
    GenerateRequest {
        id: id.to_owned(),
        session: SessionKey::from(id.split('/').next().unwrap()),
        prompt: prompt.into(),
        sampling: Sampling {
            temperature: 0.9,
            top_p: 1.0,
            top_k: -1,
            max_tokens,
            stop_token_ids: NO_STOP.to_vec(),
            seed: id.bytes().map(u64::from).sum(),
        },
        origin: RequestOrigin::default(),
        routing_from: None,
    }
}

/// Everything a reader got.
#[derive(Debug, Clone, PartialEq)]
struct Answer {
    ids: Vec<TokenId>,
    logprobs: Vec<f32>,
    versions: Vec<PolicyVersion>,
    finish: Finish,
}

impl Answer {
    /// What must not depend on who else was served.
    fn sampled(&self) -> (Vec<TokenId>, Vec<u32>) {
        (
            self.ids.clone(),
            self.logprobs.iter().map(|value| value.to_bits()).collect(),
        )
    }
}

async fn next(generation: &mut Generation) -> Option<GenerationEvent> {
    tokio::time::timeout(Duration::from_secs(20), generation.next())
        .await
        .expect("an event within 20 s")
}

async fn drain(mut generation: Generation) -> Answer {
    let (mut ids, mut logprobs, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match next(&mut generation).await.expect("an end") {
            GenerationEvent::Tokens(delta) => {
                let given = delta.logprobs.unwrap();
                assert_eq!(given.len(), delta.ids.len());
                versions.extend(delta.ids.iter().map(|_| delta.version));
                ids.extend(delta.ids);
                logprobs.extend(given);
            }
            GenerationEvent::Finished(finish) => {
                assert!(next(&mut generation).await.is_none());
                assert_eq!(finish.usage.completion as usize, ids.len());
                return Answer {
                    ids,
                    logprobs,
                    versions,
                    finish,
                };
            }
        }
    }
}

async fn ask(engine: &EmbeddedEngine, request: GenerateRequest) -> Answer {
    drain(engine.generate(request).await.unwrap()).await
}

/// Waits until `holds`; for what the engine's thread does by itself.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("not within 10 s: {what}");
}
