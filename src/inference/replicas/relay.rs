//! One request over replicas: begun where its session is, begun again elsewhere as long as nothing was sampled.
//!
//! What is lost after its first token goes back to who asked, who continues it from there.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Set, lock};
use crate::inference::{EngineError, EngineUsage, EventSource, Finish, GenerateRequest, Generation, GenerationEvent};
use crate::trajectory::FinishReason;

/// A generation at a replica.
pub(super) struct Started {
    at: usize,
    generation: Generation,
    _running: Running,
}

/// Forgets where a request runs, at its end.
struct Running {
    set: Arc<Set>,
    id: String,
    at: usize,
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = lock(&self.set.running);
        // It may have been begun elsewhere by now.
        if running.get(&self.id) == Some(&self.at) {
            running.remove(&self.id);
        }
    }
}

impl Set {
    /// Begins a request at its session's replica, or at another one of those that were not tried. Waits where all are out.
    pub(super) async fn begin(
        self: &Arc<Self>,
        request: &GenerateRequest,
        tried: &mut Vec<usize>,
    ) -> Result<Started, EngineError> {
        let mut last = None;
        while tried.len() < self.replicas.len() {
            let up: Vec<usize> = self.up().map(|(at, _)| at).filter(|at| !tried.contains(at)).collect();
            let place = lock(&self.sessions).place(&request.session, &up);
            let Some(at) = place else {
                // Whoever has seen a replica fail just now is not made to wait for the others.
                if let Some(error) = last {
                    return Err(error);
                }
                self.wait_for_one(tried).await?;
                continue;
            };
            tried.push(at);
            lock(&self.running).insert(request.id.clone(), at);
            let running = Running {
                set: Arc::clone(self),
                id: request.id.clone(),
                at,
            };
            match self.replicas[at].engine.generate(request.clone()).await {
                Ok(generation) => {
                    return Ok(Started {
                        at,
                        generation,
                        _running: running,
                    });
                }
                Err(error @ EngineError::Unavailable { .. }) => {
                    self.lose(at, &error);
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or(EngineError::Unavailable {
            reason: "every replica was tried".to_owned(),
            retry_after: None,
        }))
    }
}

/// Hands the events of a request on until the end.
pub(super) struct Relay {
    set: Arc<Set>,
    request: GenerateRequest,
    started: Started,
    tried: Vec<usize>,
    given: u32,
    /// Whether it was to begin elsewhere: who was cancelled in that wait wants no other answer.
    lost: bool,
    over: bool,
}

impl Relay {
    pub(super) fn new(set: Arc<Set>, request: GenerateRequest, started: Started, tried: Vec<usize>) -> Self {
        Self {
            set,
            request,
            started,
            tried,
            given: 0,
            lost: false,
            over: false,
        }
    }

    fn ended_without_finish(&self) -> Finish {
        Finish {
            reason: FinishReason::Error,
            usage: EngineUsage {
                prompt: self.request.prompt.len() as u32,
                cached: 0,
                completion: self.given,
            },
            error: Some("its stream ended without a finish".to_owned()),
            routing: None,
            rejected: false,
        }
    }
}

#[async_trait]
impl EventSource for Relay {
    async fn next(&mut self) -> Option<GenerationEvent> {
        while !self.over {
            let finish = match self.started.generation.next().await {
                Some(GenerationEvent::Tokens(delta)) => {
                    self.given += delta.ids.len() as u32;
                    return Some(GenerationEvent::Tokens(delta));
                }
                Some(GenerationEvent::Finished(finish)) => finish,
                None => self.ended_without_finish(),
            };
            if finish.reason == FinishReason::Error && !self.lost {
                let reason = finish.error.as_deref().unwrap_or("no reason given");
                self.set.lose(self.started.at, &reason);
                if self.given == 0 && self.tried.len() < self.set.replicas.len() {
                    self.lost = true;
                    if let Ok(again) = self.set.begin(&self.request, &mut self.tried).await {
                        self.started = again;
                        self.lost = false;
                        continue;
                    }
                }
            }
            self.over = true;
            return Some(GenerationEvent::Finished(finish));
        }
        None
    }
}
