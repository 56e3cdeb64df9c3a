//! The replicas of a gateway: added, drained, removed, chosen from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::GatewayOptions;
use super::circuit::{Circuit, Health};
use super::rows::{ReplicaRow, SessionRow};
use super::upstream::Upstream;
use crate::balance::hold::Hold;
use crate::balance::placement::{Candidate, Placement, PrefillRate, Reason, ReplicaId, Wish, stable_hash};
use crate::inference::EngineLoad;
use crate::trajectory::PolicyVersion;

/// A replica that is drained and was not asked for so long has no sessions left, whoever did not end theirs.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// A server of the policy, or of any model.
#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) url: String,
    hash: u64,
    pub(super) upstream: Arc<Upstream>,
    pub(super) circuit: Mutex<Circuit>,
    pub(super) load: Mutex<EngineLoad>,
    pub(super) hold: Option<Arc<Hold>>,
    tokens: AtomicU64,
    /// Tokens of prompts that are new to it, of those that have no answer yet.
    queued: AtomicU64,
    pub(super) rate: Mutex<PrefillRate>,
    requests: AtomicU32,
    /// When its last request ended.
    quiet_since: Mutex<Instant>,
    /// Answers that were asked of it.
    pub(super) answered: AtomicU64,
    /// Requests that it failed.
    pub(super) failed: AtomicU64,
    /// No new sessions; it is removed with its last one.
    draining: AtomicBool,
    /// Whether probes are answered: who waits for it goes elsewhere when they are not.
    pub(super) up: watch::Sender<bool>,
    /// Ends its probes.
    pub(super) removed: CancellationToken,
}

impl Replica {
    pub(super) fn circuit(&self) -> MutexGuard<'_, Circuit> {
        lock(&self.circuit)
    }

    pub(super) fn requests(&self) -> u32 {
        self.requests.load(Ordering::Relaxed)
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pool {
    replicas: RwLock<Vec<Arc<Replica>>>,
    pub(super) placement: Mutex<Placement>,
    next: AtomicU32,
    /// Fires whenever one may be given requests that could not before.
    pub(super) back: Notify,
    /// Turns by why their replica was chosen.
    pub(super) placed: Mutex<BTreeMap<Reason, u64>>,
}

impl Pool {
    pub(super) fn new(options: &GatewayOptions) -> Self {
        Self {
            replicas: RwLock::default(),
            placement: Mutex::new(Placement::new(options.policy, options.seed)),
            next: AtomicU32::new(0),
            back: Notify::new(),
            placed: Mutex::default(),
        }
    }

    /// The replica of this address, and whether it is new.
    pub(super) fn add(&self, url: &str, upstream: Arc<Upstream>, options: &GatewayOptions) -> (Arc<Replica>, bool) {
        let mut replicas = self.replicas.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = replicas.iter().find(|replica| replica.url == url) {
            there.draining.store(false, Ordering::Relaxed);
            return (Arc::clone(there), false);
        }
        let replica = Arc::new(Replica {
            id: self.next.fetch_add(1, Ordering::Relaxed),
            url: url.to_owned(),
            hash: stable_hash(url.as_bytes()),
            upstream,
            circuit: Mutex::default(),
            load: Mutex::default(),
            hold: options.hold.clone().map(|settings| Hold::new(url, settings)),
            tokens: AtomicU64::new(0),
            queued: AtomicU64::new(0),
            rate: Mutex::default(),
            requests: AtomicU32::new(0),
            quiet_since: Mutex::new(Instant::now()),
            answered: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            draining: AtomicBool::new(false),
            up: watch::channel(false).0,
            removed: CancellationToken::new(),
        });
        replicas.push(Arc::clone(&replica));
        (replica, true)
    }

    pub(super) fn all(&self) -> Vec<Arc<Replica>> {
        self.replicas.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes no new sessions from now on. False: there is no such replica.
    pub(super) fn drain(&self, url: &str) -> bool {
        let all = self.all();
        let found = all.iter().find(|replica| replica.url == url);
        if let Some(replica) = found {
            replica.draining.store(true, Ordering::Relaxed);
        }
        found.is_some()
    }

    /// Takes it out at once: its sessions go elsewhere with their next turn.
    pub(super) fn remove(&self, url: &str) -> bool {
        let mut replicas = self.replicas.write().unwrap_or_else(PoisonError::into_inner);
        let Some(at) = replicas.iter().position(|replica| replica.url == url) else {
            return false;
        };
        let replica = replicas.remove(at);
        drop(replicas);
        replica.removed.cancel();
        self.went_out(&replica);
        true
    }

    /// Removes those that were to be drained and have neither sessions nor requests.
    pub(super) fn remove_drained(&self) {
        for replica in self.all() {
            let has_sessions = || {
                let sessions = lock(&self.placement).sessions_of(replica.id);
                sessions > 0 && lock(&replica.quiet_since).elapsed() < FORGOTTEN
            };
            if replica.draining.load(Ordering::Relaxed) && replica.requests() == 0 && !has_sessions() {
                self.remove(&replica.url);
            }
        }
    }

    /// Its cache and its connections are gone, and whoever waits for it goes elsewhere.
    pub(super) fn went_out(&self, replica: &Replica) {
        replica.upstream.forget();
        if let Some(hold) = &replica.hold {
            hold.clear();
        }
        lock(&self.placement).forget_cache(replica.id);
        replica.up.send_replace(false);
    }

    /// It answers again.
    pub(super) fn came_back(&self, replica: &Replica) {
        replica.up.send_replace(true);
        self.back.notify_waiters();
    }

    /// Chooses a replica for a turn, of those that were not tried, and says how many of its tokens are new to it.
    pub(super) fn choose(&self, wish: &Wish<'_>, tried: &[ReplicaId]) -> Option<(Arc<Replica>, Reason, u64)> {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner);
        let mut placement = lock(&self.placement);
        let home_of = |placement: &Placement| wish.session.and_then(|session| placement.home(session));
        let before = home_of(&placement);
        let (id, reason) = placement.place(wish, &candidates(&replicas, tried))?;
        let fresh = home_of(&placement).map_or(wish.tokens, |home| home.fresh());
        drop(placement);
        if let (Reason::Moved, Some(before), Some(session)) = (reason, before, wish.session)
            && let Some(hold) = replicas
                .iter()
                .find(|one| one.id == before.replica)
                .and_then(|one| one.hold.as_ref())
        {
            // All of its conversations go with it.
            hold.release(session);
        }
        *lock(&self.placed).entry(reason).or_default() += 1;
        let chosen = replicas.iter().find(|replica| replica.id == id)?;
        chosen.circuit().begin();
        Some((Arc::clone(chosen), reason, fresh))
    }

    /// Whether one may be given a turn of the session.
    pub(super) fn has_place(&self, session: Option<&str>) -> bool {
        let replicas = self.replicas.read().unwrap_or_else(PoisonError::into_inner);
        lock(&self.placement).has_place(session, &candidates(&replicas, &[]))
    }

    /// Another replica at which a session of so many tokens would not wait.
    pub(super) fn roomier(&self, than: ReplicaId, tokens: u64) -> Option<Arc<Replica>> {
        let now = Instant::now();
        self.all().into_iter().find(|replica| {
            let has_room = |hold: &Arc<Hold>| hold.has_room_for(tokens);
            replica.id != than
                && !replica.draining.load(Ordering::Relaxed)
                && replica.circuit().takes(now)
                && replica.hold.as_ref().is_some_and(has_room)
        })
    }

    /// The session goes on at this replica.
    pub(super) fn moved(&self, session: &str, to: &Replica) {
        lock(&self.placement).move_to(session, to.id);
        *lock(&self.placed).entry(Reason::Moved).or_default() += 1;
    }

    /// The session has ended. False: it is not known.
    pub(super) fn end_session(&self, session: &str) -> bool {
        let home = lock(&self.placement).end(session);
        for replica in self.all() {
            if let Some(hold) = &replica.hold {
                hold.release(session);
            }
        }
        home.is_some()
    }

    pub(super) fn rows(&self) -> Vec<ReplicaRow> {
        let now = Instant::now();
        let row = |replica: &Arc<Replica>| {
            let sessions = lock(&self.placement).sessions_of(replica.id);
            let load = *lock(&replica.load);
            let circuit = replica.circuit();
            let state = match circuit.health {
                Health::Starting => "starting",
                Health::Out => "out",
                Health::Up if circuit.is_open() => "broken",
                Health::Up if replica.draining.load(Ordering::Relaxed) => "draining",
                Health::Up => "healthy",
            };
            ReplicaRow::new(
                (&replica.url, state, sessions),
                (replica.requests(), load),
                replica.hold.as_ref().map(|hold| hold.figures()),
                circuit.reason.clone(),
                circuit.open_for(now),
            )
        };
        self.all().iter().map(row).collect()
    }

    pub(super) fn sessions(&self) -> Vec<SessionRow> {
        let urls: BTreeMap<ReplicaId, String> = self.all().iter().map(|one| (one.id, one.url.clone())).collect();
        let placement = lock(&self.placement);
        let row = |(session, home): (&str, crate::balance::placement::Home)| SessionRow {
            session: session.to_owned(),
            replica: urls.get(&home.replica).cloned().unwrap_or_default(),
            tokens: home.tokens,
        };
        placement.sessions().map(row).collect()
    }
}

/// Those that may be given requests and were not tried.
fn candidates(replicas: &[Arc<Replica>], tried: &[ReplicaId]) -> Vec<Candidate> {
    let now = Instant::now();
    let well = replicas
        .iter()
        .filter(|replica| !tried.contains(&replica.id) && replica.circuit().takes(now));
    let candidate = |replica: &Arc<Replica>| Candidate {
        id: replica.id,
        hash: replica.hash,
        tokens: replica.tokens.load(Ordering::Relaxed),
        requests: replica.requests(),
        queued: replica.queued.load(Ordering::Relaxed),
        rate: lock(&replica.rate).get(),
        opens: !replica.draining.load(Ordering::Relaxed),
        // What its weights are, and whether they change, is for others to know.
        version: PolicyVersion::default(),
    };
    well.map(candidate).collect()
}

/// Counts a request as its replica's work, as long as it runs.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) replica: Arc<Replica>,
    tokens: u64,
    queued: u64,
}

impl InFlight {
    /// `fresh` of its tokens are new to the replica.
    pub(super) fn at(replica: &Arc<Replica>, tokens: u64, fresh: u64) -> Self {
        replica.tokens.fetch_add(tokens, Ordering::Relaxed);
        replica.requests.fetch_add(1, Ordering::Relaxed);
        replica.queued.fetch_add(fresh, Ordering::Relaxed);
        Self {
            replica: Arc::clone(replica),
            tokens,
            queued: fresh,
        }
    }

    /// Its prompt has been computed: how many tokens of it were new to the replica.
    pub(super) fn begun(&mut self) -> u64 {
        self.replica.queued.fetch_sub(self.queued, Ordering::Relaxed);
        std::mem::take(&mut self.queued)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.begun();
        self.replica.tokens.fetch_sub(self.tokens, Ordering::Relaxed);
        self.replica.requests.fetch_sub(1, Ordering::Relaxed);
        *lock(&self.replica.quiet_since) = Instant::now();
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
