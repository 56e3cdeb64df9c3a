//! One request over replicas: begun where its session is, begun again elsewhere as long as nothing was sampled.
//!
//! What is lost after its first token goes back to who asked, who continues it from there.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use async_trait::async_trait;

use super::gate::{self, Inside};
use super::held::InFlight;
use super::{Set, lock};
use crate::balance::hold::Place;
use crate::inference::{EngineError, EngineUsage, EventSource, Finish, GenerateRequest, Generation, GenerationEvent};
use crate::trajectory::FinishReason;

/// A generation at a replica.
pub(super) struct Started {
    at: usize,
    generation: Generation,
    began: Instant,
    /// Its session's place in the replica's cache, until it ends.
    place: Place,
    _inside: Inside,
    _running: Running,
    in_flight: InFlight,
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
    /// Begins a request at its session's replica, or at another one of those that were not tried. Waits where all are out,
    /// and where its turn is held.
    pub(super) async fn begin(
        self: &Arc<Self>,
        request: &GenerateRequest,
        tried: &mut Vec<usize>,
    ) -> Result<Started, EngineError> {
        let mut last = None;
        while tried.len() < self.replicas.len() {
            let Some((at, fresh)) = self.choose(request, tried) else {
                // Whoever has seen a replica fail just now is not made to wait for the others.
                if let Some(error) = last {
                    return Err(error);
                }
                self.wait_for_one(Some(&request.session.0), tried).await?;
                continue;
            };
            let in_flight = InFlight::at(self, at, request.prompt.len() as u64, fresh);
            let Some(place) = self.enter(at, request).await? else {
                continue;
            };
            let Some(inside) = self.pass(at).await? else {
                continue;
            };
            tried.push(at);
            lock(&self.running).insert(request.id.clone(), at);
            let running = Running {
                set: Arc::clone(self),
                id: request.id.clone(),
                at,
            };
            let began = Instant::now();
            match self.replicas[at].engine.generate(request.clone()).await {
                Ok(generation) => {
                    return Ok(Started {
                        at,
                        generation,
                        began,
                        place,
                        _inside: inside,
                        _running: running,
                        in_flight,
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

    /// Waits while the replica loads weights; `None`: it is out.
    async fn pass(&self, at: usize) -> Result<Option<Inside>, EngineError> {
        let replica = &self.replicas[at];
        match tokio::time::timeout(gate::LONGEST, replica.gate.pass()).await {
            Ok(_) if replica.out.load(Ordering::Acquire) => Ok(None),
            Ok(inside) => Ok(Some(inside)),
            Err(_) => Err(EngineError::lost(&format!(
                "{} has loaded weights for {:?}",
                replica.name,
                gate::LONGEST
            ))),
        }
    }

    /// What a generation that ended has told of its session and its replica.
    fn learn(&self, request: &GenerateRequest, started: &mut Started, finish: &Finish, first: Option<Instant>) {
        let usage = finish.usage;
        let tokens = u64::from(usage.prompt) + u64::from(usage.completion);
        started.place.set_tokens(tokens);
        lock(&self.placement).ended(&request.session.0, tokens);
        let Some(first) = first else { return };
        let replica = &self.replicas[started.at];
        let (computed, time) = (usage.prompt.saturating_sub(usage.cached), first - started.began);
        lock(&replica.rate).saw(computed.into(), time.as_secs_f64());
        if let Some(hold) = &replica.hold {
            hold.saw_prefill(computed.into(), time);
        }
    }
}

/// Hands the events of a request on until the end.
pub(super) struct Relay {
    set: Arc<Set>,
    request: GenerateRequest,
    /// `None` once it is over: its place is free then, whoever still holds this.
    started: Option<Started>,
    tried: Vec<usize>,
    given: u32,
    first: Option<Instant>,
    /// Whether it was to begin elsewhere: who was cancelled in that wait wants no other answer.
    lost: bool,
}

impl Relay {
    pub(super) fn new(set: Arc<Set>, request: GenerateRequest, started: Started, tried: Vec<usize>) -> Self {
        Self {
            set,
            request,
            started: Some(started),
            tried,
            given: 0,
            first: None,
            lost: false,
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
        while let Some(started) = &mut self.started {
            let finish = match started.generation.next().await {
                Some(GenerationEvent::Tokens(delta)) => {
                    self.given += delta.ids.len() as u32;
                    self.first.get_or_insert_with(Instant::now);
                    started.in_flight.begun();
                    lock(&self.set.placement).saw(&self.request.session.0, delta.version);
                    let held = self.request.prompt.len() as u64 + u64::from(self.given);
                    started.place.set_tokens(held);
                    return Some(GenerationEvent::Tokens(delta));
                }
                Some(GenerationEvent::Finished(finish)) => finish,
                None => self.ended_without_finish(),
            };
            let mut started = self.started.take()?;
            if finish.reason != FinishReason::Error {
                self.set.learn(&self.request, &mut started, &finish, self.first);
            } else if !self.lost {
                let reason = finish.error.as_deref().unwrap_or("no reason given");
                self.set.lose(started.at, &reason);
                if self.given == 0 && self.tried.len() < self.set.replicas.len() {
                    self.lost = true;
                    drop(started);
                    if let Ok(again) = self.set.begin(&self.request, &mut self.tried).await {
                        self.started = Some(again);
                        self.lost = false;
                        continue;
                    }
                }
            }
            return Some(GenerationEvent::Finished(finish));
        }
        None
    }
}
