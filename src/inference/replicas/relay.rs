//! One request over replicas: begun where its session is, begun again elsewhere as long as nothing was sampled.
//!
//! What is lost after its first token goes back to who asked, who continues it from there.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Set, lock};
use crate::inference::{EngineError, EngineUsage, Finish, GenerateRequest, Generation, GenerationEvent};
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

/// Hands the events on until the end. Dropping what reads them aborts the generation.
pub(super) async fn relay(
    set: Arc<Set>,
    request: GenerateRequest,
    mut started: Started,
    mut tried: Vec<usize>,
    events: mpsc::Sender<GenerationEvent>,
) {
    let mut given = 0;
    loop {
        let event = tokio::select! {
            biased;
            () = events.closed() => return,
            event = started.generation.next() => event,
        };
        let finish = match event {
            Some(GenerationEvent::Tokens(delta)) => {
                given += delta.ids.len() as u32;
                if events.send(GenerationEvent::Tokens(delta)).await.is_err() {
                    return;
                }
                continue;
            }
            Some(GenerationEvent::Finished(finish)) => finish,
            None => Finish {
                reason: FinishReason::Error,
                usage: EngineUsage {
                    prompt: request.prompt.len() as u32,
                    cached: 0,
                    completion: given,
                },
                error: Some("its stream ended without a finish".to_owned()),
                routing: None,
                rejected: false,
            },
        };
        if finish.reason == FinishReason::Error {
            set.lose(started.at, &finish.error.as_deref().unwrap_or("no reason given"));
            if given == 0 && tried.len() < set.replicas.len() {
                let again = tokio::select! {
                    biased;
                    () = events.closed() => return,
                    again = set.begin(&request, &mut tried) => again,
                };
                if let Ok(again) = again {
                    started = again;
                    continue;
                }
            }
        }
        let _ = events.send(GenerationEvent::Finished(finish)).await;
        return;
    }
}
