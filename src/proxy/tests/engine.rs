//! A token-level engine that says what a test tells it to.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use crate::inference::{
    Engine, EngineError, EngineLoad, EngineUsage, Finish, GenerateRequest, Generation, GenerationEvent, PauseMode,
    TokenDelta,
};
use crate::prompt::PromptBuilder;
use crate::trajectory::{Experts, FinishReason, PolicyVersion, RoutedRows};

/// One scripted answer.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) text: String,
    /// The tokens, where they are not those that the text encodes to.
    pub(super) ids: Option<Vec<u32>>,
    /// Sampled by the policy at the end; `Length` answers lack it.
    pub(super) finish: FinishReason,
    /// Tokens that come before the engine waits for `release`.
    pub(super) hold_after: Option<usize>,
    /// Tokens that come before the engine loses the generation; the next scripted answer goes on from there.
    pub(super) lose_after: Option<usize>,
    /// Whether its stream then just ends.
    pub(super) vanish: bool,
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ids: None,
            finish: FinishReason::Stop,
            hold_after: None,
            lose_after: None,
            vanish: false,
        }
    }
}

pub(super) struct ScriptedEngine {
    prompt: Arc<PromptBuilder>,
    answers: Mutex<VecDeque<Answer>>,
    pub(super) requests: Mutex<Vec<GenerateRequest>>,
    running: Mutex<HashMap<String, CancellationToken>>,
    pub(super) release: Arc<Semaphore>,
    pub(super) down: AtomicBool,
    pub(super) most_at_once: AtomicU32,
    now: Arc<AtomicU32>,
}

impl ScriptedEngine {
    pub(super) fn new(prompt: Arc<PromptBuilder>, answers: Vec<Answer>) -> Self {
        Self {
            prompt,
            answers: Mutex::new(answers.into()),
            requests: Mutex::default(),
            running: Mutex::default(),
            release: Arc::new(Semaphore::new(0)),
            down: AtomicBool::new(false),
            most_at_once: AtomicU32::new(0),
            now: Arc::new(AtomicU32::new(0)),
        }
    }

    /// What was asked, in order.
    pub(super) fn prompts(&self) -> Vec<Vec<u32>> {
        self.requests
            .lock()
            .unwrap()
            .iter()
            .map(|request| request.prompt.to_vec())
            .collect()
    }
}

/// Rows that name their positions, of so many tokens.
pub(super) fn routed(from: u32, tokens: u32) -> RoutedRows {
    let experts = Experts {
        layers: 1,
        top_k: 1,
        count: u16::MAX,
    };
    RoutedRows {
        start: from,
        experts,
        rows: (from..tokens - 1).flat_map(|at| (at as u16).to_le_bytes()).collect(),
    }
}

/// A log-prob that only this token of this generation has.
pub(super) fn logprob(generation: usize, at: usize) -> f32 {
    -0.001 - generation as f32 - at as f32 / 1024.0
}

#[async_trait]
impl Engine for ScriptedEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        if self.down.load(Ordering::SeqCst) {
            let retry_after = Some(std::time::Duration::from_secs(7));
            return Err(EngineError::Unavailable {
                reason: "no replica".into(),
                retry_after,
            });
        }
        let answer = self.answers.lock().unwrap().pop_front().expect("an answer is scripted");
        let generation = self.requests.lock().unwrap().len();
        let cancel = CancellationToken::new();
        self.running.lock().unwrap().insert(request.id.clone(), cancel.clone());
        let encoded = || self.prompt.tokenizer().encode(&answer.text).unwrap();
        let mut ids = answer.ids.clone().unwrap_or_else(encoded);
        if answer.finish == FinishReason::Stop {
            ids.push(self.prompt.tokenizer().stops()[0].id);
        }
        ids.truncate(request.sampling.max_tokens as usize);
        let prompt = request.prompt.len() as u32;
        let routing_from = request.routing_from;
        self.requests.lock().unwrap().push(request);
        let (events, receiver) = mpsc::channel(4);
        let (release, now) = (Arc::clone(&self.release), Arc::clone(&self.now));
        self.most_at_once
            .fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::spawn(async move {
            let mut reason = answer.finish;
            let mut sampled = 0;
            for (at, &id) in ids.iter().enumerate() {
                if answer.lose_after == Some(at) {
                    if answer.vanish {
                        now.fetch_sub(1, Ordering::SeqCst);
                        return;
                    }
                    reason = FinishReason::Error;
                    break;
                }
                if answer.hold_after == Some(at) {
                    tokio::select! {
                        permit = release.acquire() => permit.unwrap().forget(),
                        () = cancel.cancelled() => {}
                        () = events.closed() => {}
                    }
                }
                if cancel.is_cancelled() {
                    reason = FinishReason::Abort;
                    break;
                }
                let version = PolicyVersion {
                    lineage: 0,
                    update: generation as u64,
                };
                let delta = TokenDelta {
                    ids: vec![id],
                    logprobs: Some(vec![logprob(generation, at)]),
                    version,
                };
                if events.send(GenerationEvent::Tokens(delta)).await.is_err() {
                    break;
                }
                sampled += 1;
            }
            now.fetch_sub(1, Ordering::SeqCst);
            let usage = EngineUsage {
                prompt,
                cached: 0,
                completion: sampled,
            };
            let _ = events
                .send(GenerationEvent::Finished(Finish {
                    reason,
                    usage,
                    error: None,
                    routing: routing_from.map(|from| routed(from, prompt + sampled)),
                    rejected: false,
                }))
                .await;
        });
        Ok(Generation::of(receiver))
    }

    async fn abort(&self, request_id: &str) {
        if let Some(cancel) = self.running.lock().unwrap().get(request_id) {
            cancel.cancel();
        }
    }

    async fn pause(&self, _: PauseMode) -> Result<(), EngineError> {
        Ok(())
    }

    async fn publish(&self, _: PolicyVersion, _: &Path) -> Result<(), EngineError> {
        Ok(())
    }

    async fn resume(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn version(&self) -> PolicyVersion {
        PolicyVersion::default()
    }

    fn load(&self) -> EngineLoad {
        EngineLoad::default()
    }
}
