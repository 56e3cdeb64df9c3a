//! Several engines that serve the same policy, as one.
//!
//! A session stays with its replica, where its cache is. A replica that fails is taken out, asked again with growing
//! pauses and given the current weights before it is put back; its sessions move. Which replica a session gets is for
//! `placement` to say, when its turn is sent for `hold`, and how new weights come to all of them for `publication`.

mod gate;
mod held;
mod publication;
mod relay;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Notify;

use super::hold::{Hold, HoldSettings};
use super::placement::{Candidate, Placement, PrefillRate, Reason, stable_hash};
use crate::config::{PlacementPolicy, RunConfig, WeightSync};
use crate::inference::{
    Balanced, Engine, EngineError, EngineLoad, GenerateRequest, Generation, PauseMode, ReplicaLoad,
};
use crate::trajectory::{PolicyVersion, SessionKey};
use gate::Gate;
use publication::{Given, Publication};
use relay::Relay;

/// Pauses between questions to a replica that is out.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long a request waits where every replica is out.
const PATIENCE: Duration = Duration::from_secs(20);

/// Engines that serve the same policy.
pub struct Replicas(Arc<Set>);

/// How turns are spread over engines, and when they are sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Balancing {
    /// Which replica serves a turn.
    pub policy: PlacementPolicy,
    /// How turns are held; `None`: not at all.
    pub hold: Option<HoldSettings>,
    /// Whether replicas are given new weights one after the other, while the rest go on sampling.
    pub rolling: bool,
    /// Breaks ties.
    pub seed: u64,
}

impl Balancing {
    /// Of a run.
    pub fn of(config: &RunConfig) -> Self {
        Self {
            policy: config.balance.policy,
            hold: HoldSettings::of(&config.balance),
            rolling: config.engine.weight_sync == WeightSync::Rolling,
            seed: config.run.seed,
        }
    }

    /// Whether turns may be held.
    pub fn holds(&self) -> bool {
        self.hold.is_some()
    }
}

struct Set {
    replicas: Vec<Replica>,
    placement: Mutex<Placement>,
    /// Turns by why their replica was chosen.
    placed: Mutex<HashMap<Reason, u64>>,
    hold: Option<HoldSettings>,
    /// Which replica works on a request.
    running: Mutex<HashMap<String, usize>>,
    /// What all are to serve.
    published: Mutex<Option<Publication>>,
    /// Held while weights are being published to those that are up.
    publishing: tokio::sync::Mutex<()>,
    rolling: bool,
    /// Fires whenever one may be given turns that could not before.
    changed: Notify,
    patience: Duration,
}

struct Replica {
    name: String,
    engine: Arc<dyn Engine>,
    out: AtomicBool,
    given: Mutex<Given>,
    /// Held by whoever has it load weights.
    loading: tokio::sync::Mutex<()>,
    gate: Arc<Gate>,
    /// Holds turns until there is room for them.
    hold: Option<Arc<Hold>>,
    /// The weights that its hold's sessions were computed with.
    cached: Mutex<PolicyVersion>,
    hash: u64,
    in_flight: Mutex<Work>,
    rate: Mutex<PrefillRate>,
}

/// What a replica works on.
#[derive(Debug, Clone, Copy, Default)]
struct Work {
    /// Tokens of prompts.
    tokens: u64,
    requests: u32,
    /// Tokens of prompts that are new to it, of those that have no answer yet.
    queued: u64,
}

impl Replicas {
    /// Of engines with their names, at least one.
    pub fn new(engines: Vec<(String, Arc<dyn Engine>)>) -> Self {
        Self::balanced(engines, Balancing::default())
    }

    /// Of engines with their names, at least one, among which turns are spread so.
    pub fn balanced(engines: Vec<(String, Arc<dyn Engine>)>, balancing: Balancing) -> Self {
        Self::with(engines, balancing, PATIENCE)
    }

    /// With another bound on the wait where every replica is out.
    #[cfg(test)]
    pub(crate) fn with_patience(engines: Vec<(String, Arc<dyn Engine>)>, patience: Duration) -> Self {
        Self::with(engines, Balancing::default(), patience)
    }

    fn with(engines: Vec<(String, Arc<dyn Engine>)>, balancing: Balancing, patience: Duration) -> Self {
        let replicas: Vec<_> = engines
            .into_iter()
            .map(|(name, engine)| Replica {
                hold: balancing.hold.clone().map(|settings| Hold::new(&name, settings)),
                cached: Mutex::new(engine.version()),
                hash: stable_hash(name.as_bytes()),
                in_flight: Mutex::default(),
                rate: Mutex::default(),
                name,
                engine,
                out: AtomicBool::new(false),
                given: Mutex::default(),
                loading: tokio::sync::Mutex::default(),
                gate: Arc::default(),
            })
            .collect();
        Self(Arc::new(Set {
            placement: Mutex::new(Placement::new(balancing.policy, balancing.seed)),
            placed: Mutex::default(),
            hold: balancing.hold,
            replicas,
            running: Mutex::default(),
            published: Mutex::default(),
            publishing: tokio::sync::Mutex::default(),
            rolling: balancing.rolling,
            changed: Notify::new(),
            patience,
        }))
    }

    /// As `publish`, once what is being sampled has ended; where weights are loaded one after the other, each replica for
    /// itself. What is asked for meanwhile is sampled by the new weights.
    ///
    /// # Errors
    /// No replica took them.
    pub async fn publish_between(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        self.0.publish(version, weights, true).await
    }

    /// Folders of weights that a replica may still read: they are not to be removed.
    pub fn folders(&self) -> Vec<PathBuf> {
        self.0.folders()
    }

    /// Those that are not out.
    fn up(&self) -> impl Iterator<Item = (usize, &Replica)> {
        self.0.up()
    }
}

#[async_trait]
impl Engine for Replicas {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let mut tried = Vec::new();
        let started = self.0.begin(&request, &mut tried).await?;
        let relay = Relay::new(Arc::clone(&self.0), request, started, tried);
        Ok(Generation::read_from(relay))
    }

    async fn abort(&self, request_id: &str) {
        let at = lock(&self.0.running).get(request_id).copied();
        if let Some(at) = at {
            self.0.replicas[at].engine.abort(request_id).await;
        }
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        let paused = join_all(self.up().map(|(_, replica)| replica.engine.pause(mode))).await;
        paused.into_iter().collect()
    }

    /// To all replicas at once, or one after the other. One that does not take the weights is out until it does; with none left
    /// it has failed.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        self.0.publish(version, weights, false).await
    }

    async fn resume(&self) -> Result<(), EngineError> {
        let resumed = join_all(self.up().map(|(_, replica)| replica.engine.resume())).await;
        resumed.into_iter().collect()
    }

    fn version(&self) -> PolicyVersion {
        let versions = self.0.replicas.iter().map(|replica| replica.engine.version());
        versions.max().unwrap_or_default()
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        self.0.wait_for_one(None, &[]).await?;
        Ok(self.version())
    }

    fn is_up(&self) -> bool {
        self.up().next().is_some()
    }

    fn end_session(&self, session: &SessionKey) {
        lock(&self.0.placement).end(&session.0);
        for replica in &self.0.replicas {
            if let Some(hold) = &replica.hold {
                hold.release(&session.0);
            }
            replica.engine.end_session(session);
        }
    }

    fn load(&self) -> EngineLoad {
        let loads = self.0.replicas.iter().map(|replica| replica.engine.load());
        loads.fold(EngineLoad::default(), |all, one| EngineLoad {
            running: all.running + one.running,
            waiting: all.waiting + one.waiting,
            kv_used: all.kv_used + one.kv_used,
            kv_capacity: all.kv_capacity + one.kv_capacity,
            prompt_tokens: all.prompt_tokens + one.prompt_tokens,
            cached_tokens: all.cached_tokens + one.cached_tokens,
            sampled_tokens: all.sampled_tokens + one.sampled_tokens,
            computed_tokens: all.computed_tokens + one.computed_tokens,
            preemptions: all.preemptions + one.preemptions,
        })
    }

    fn replicas(&self) -> Vec<ReplicaLoad> {
        let of = |replica: &Replica| ReplicaLoad {
            name: replica.name.clone(),
            is_up: !replica.out.load(Ordering::Acquire),
            in_flight: lock(&replica.in_flight).requests,
            load: replica.engine.load(),
        };
        self.0.replicas.iter().map(of).collect()
    }

    fn balanced(&self) -> Option<Balanced> {
        Some(self.0.balanced())
    }

    fn longest_hold(&self) -> Duration {
        let hold = self.0.hold.as_ref().map_or(Duration::ZERO, HoldSettings::longest);
        if self.0.loads() { hold + gate::LONGEST } else { hold }
    }

    fn gives_logprobs(&self) -> bool {
        self.0.replicas.iter().all(|replica| replica.engine.gives_logprobs())
    }
}

impl Set {
    fn up(&self) -> impl Iterator<Item = (usize, &Replica)> {
        let all = self.replicas.iter().enumerate();
        all.filter(|(_, replica)| !replica.out.load(Ordering::Acquire))
    }

    /// Waits until one that was not tried may be given a turn of the session; longer while weights are being loaded.
    async fn wait_for_one(&self, session: Option<&str>, tried: &[usize]) -> Result<(), EngineError> {
        let began = Instant::now();
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let among = self.candidates(tried);
            let is_there = match session {
                Some(_) => lock(&self.placement).has_place(session, &among),
                None => !among.is_empty(),
            };
            if is_there {
                return Ok(());
            }
            let patience = || {
                let loading = if self.loads() { gate::LONGEST } else { Duration::ZERO };
                self.patience.max(loading)
            };
            let left = patience().saturating_sub(began.elapsed());
            // One may have begun to load meanwhile.
            if tokio::time::timeout(left, changed).await.is_err() && began.elapsed() >= patience() {
                return Err(self.nobody(&among));
            }
        }
    }

    /// Nobody could serve a turn, though some are up.
    fn nobody(&self, up: &[Candidate]) -> EngineError {
        let names: Vec<&str> = self.replicas.iter().map(|replica| replica.name.as_str()).collect();
        let was = if up.is_empty() {
            "well"
        } else {
            "well with weights as new as those that sampled the session before"
        };
        EngineError::Unavailable {
            reason: format!("none of {} was {was} within {:?}", names.join(", "), self.patience),
            retry_after: Some(FIRST_PAUSE),
        }
    }

    /// Takes a replica out, and asks it again until it is well.
    fn lose(self: &Arc<Self>, at: usize, error: &dyn std::fmt::Display) {
        let replica = &self.replicas[at];
        if replica.out.swap(true, Ordering::AcqRel) {
            return;
        }
        tracing::warn!(replica = replica.name, %error, "replica taken out");
        // Whoever is held there goes elsewhere.
        if let Some(hold) = &replica.hold {
            hold.clear();
        }
        lock(&self.placement).forget_cache(at as u32);
        let set = Arc::downgrade(self);
        tokio::spawn(async move {
            let mut pause = Duration::ZERO;
            loop {
                tokio::time::sleep(pause).await;
                let Some(set) = set.upgrade() else { return };
                let replica = &set.replicas[at];
                match set.renew(at).await {
                    Ok(()) => {
                        tracing::info!(replica = replica.name, "replica is back");
                        set.changed.notify_waiters();
                        return;
                    }
                    Err(error) => tracing::debug!(replica = replica.name, %error, "replica is still out"),
                }
                pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            }
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
