//! Which replica serves a turn. A table over events: it sends nothing and reads no clock, so that a pool of engines, a server
//! in front of others, and a simulation drive the same code.

mod hash;
mod homes;
mod prefixes;
mod rate;
#[cfg(test)]
mod tests;

pub use hash::{BLOCK, blocks_of, joined, stable_hash};
pub use homes::Home;
pub use rate::PrefillRate;

use crate::config::PlacementPolicy;
use crate::trajectory::PolicyVersion;
use homes::Homes;
use prefixes::Prefixes;

/// Names a replica for as long as it is one.
pub type ReplicaId = u32;

/// Load over the mean past which a replica is passed over, however well it fits: `consistent-hash` and `prefix`.
const BOUND: f64 = 1.25;
/// Requests that no bound counts.
const SLACK: f64 = 2.0;

/// A replica that can be chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Which one.
    pub id: ReplicaId,
    /// Of its name, the same in every process.
    pub hash: u64,
    /// Tokens of the requests that it works on.
    pub tokens: u64,
    /// Those requests.
    pub requests: u32,
    /// Tokens of prompts that it has to compute before one that comes now.
    pub queued: u64,
    /// Tokens of prompts that it computes in a second; 0: not known.
    pub rate: f64,
    /// Whether it takes sessions that are not there yet.
    pub opens: bool,
    /// The weights that it samples by; the default where they never change.
    pub version: PolicyVersion,
}

/// A turn that wants a replica.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'a> {
    /// Whose it is; `None`: it has no history.
    pub session: Option<&'a str>,
    /// Tokens of its prompt.
    pub tokens: u64,
    /// Its prompt, as [`blocks_of`] has it.
    pub blocks: &'a [u64],
}

/// Why a replica was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// The session is there.
    Home,
    /// It begins, and this one has the fewest tokens.
    New,
    /// Its replica cannot be chosen any more.
    Orphan,
    /// It has waited for too long where it was, or would have to.
    Moved,
    /// Fewest tokens in flight.
    LeastLoad,
    /// The next one.
    RoundRobin,
    /// The session's hash.
    Hash,
    /// The session's hash, past replicas with too much to do.
    HashPassed,
    /// It has seen most of the prompt.
    Prefix,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Home,
        Self::New,
        Self::Orphan,
        Self::Moved,
        Self::LeastLoad,
        Self::RoundRobin,
        Self::Hash,
        Self::HashPassed,
        Self::Prefix,
    ];

    /// As labels of metrics and headers have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::New => "new",
            Self::Orphan => "orphan",
            Self::Moved => "moved",
            Self::LeastLoad => "least-load",
            Self::RoundRobin => "round-robin",
            Self::Hash => "hash",
            Self::HashPassed => "hash-passed",
            Self::Prefix => "prefix",
        }
    }
}

/// Sessions and their replicas, under one policy.
#[derive(Debug)]
pub struct Placement {
    policy: PlacementPolicy,
    homes: Homes,
    prefixes: Prefixes,
    turns: usize,
    /// Ties that were broken.
    ties: usize,
}

impl Placement {
    /// Without sessions; gateways beside each other take other seeds, so that they do not all begin with the same replica.
    pub fn new(policy: PlacementPolicy, seed: u64) -> Self {
        Self {
            policy,
            homes: Homes::default(),
            prefixes: Prefixes::default(),
            turns: 0,
            ties: seed as usize,
        }
    }

    /// Whether it wants [`Wish::blocks`].
    pub fn reads_blocks(&self) -> bool {
        self.policy == PlacementPolicy::Prefix
    }

    /// Whether one of these may serve a turn of the session.
    pub fn has_place(&self, session: Option<&str>, among: &[Candidate]) -> bool {
        let home = session.and_then(|session| self.homes.get(session));
        among.iter().any(|one| self.may(home, one))
    }

    /// Whether a turn may be sent there: to no older weights than those that sampled its session, and to one that takes no
    /// new sessions only if its own is there.
    fn may(&self, home: Option<Home>, one: &Candidate) -> bool {
        let Some(home) = home else { return one.opens };
        let stays = !matches!(self.policy, PlacementPolicy::LeastLoad | PlacementPolicy::RoundRobin);
        (one.opens || stays && home.replica == one.id) && one.version >= home.version
    }

    /// Chooses one of these, which the session is with from now on; `None`: none may serve it.
    pub fn place(&mut self, wish: &Wish<'_>, among: &[Candidate]) -> Option<(ReplicaId, Reason)> {
        let home = wish.session.and_then(|session| self.homes.get(session));
        let kept: Vec<Candidate>;
        let among = if among.iter().all(|one| self.may(home, one)) {
            among
        } else {
            kept = among.iter().copied().filter(|one| self.may(home, one)).collect();
            &kept
        };
        if among.is_empty() {
            return None;
        }
        let (id, reason) = match self.policy {
            PlacementPolicy::Sticky => self.sticky(wish, among),
            PlacementPolicy::Priced => match self.cheaper(wish, among) {
                Some(id) => (id, Reason::Moved),
                None => self.sticky(wish, among),
            },
            PlacementPolicy::Prefix => self.by_prefix(wish, among),
            PlacementPolicy::LeastLoad => self.least(among, Reason::LeastLoad),
            PlacementPolicy::RoundRobin => {
                self.turns += 1;
                (among[self.turns % among.len()].id, Reason::RoundRobin)
            }
            PlacementPolicy::ConsistentHash => self.by_hash(wish, among),
        };
        if let Some(session) = wish.session {
            self.homes.set(session, id, wish.tokens);
        }
        if self.reads_blocks() {
            self.prefixes.add(wish.blocks, id);
        }
        Some((id, reason))
    }

    /// A turn of the session has ended: it has so many tokens now.
    pub fn ended(&mut self, session: &str, tokens: u64) {
        if let Some(home) = self.homes.get(session) {
            self.homes.set(session, home.replica, tokens);
            self.homes.computed(session);
        }
    }

    /// These weights have sampled something of the session.
    pub fn saw(&mut self, session: &str, version: PolicyVersion) {
        self.homes.saw(session, version);
    }

    /// The session goes on there.
    pub fn move_to(&mut self, session: &str, replica: ReplicaId) {
        let tokens = self.homes.get(session).map_or(0, |home| home.tokens);
        self.homes.set(session, replica, tokens);
    }

    /// The session has ended.
    pub fn end(&mut self, session: &str) -> Option<Home> {
        self.homes.take(session).map(|(_, home)| home)
    }

    /// What the replica had cached is gone.
    pub fn forget_cache(&mut self, replica: ReplicaId) {
        self.prefixes.forget(replica);
        self.homes.forget_cache(replica);
    }

    /// Where a session is.
    pub fn home(&self, session: &str) -> Option<Home> {
        self.homes.get(session)
    }

    /// All sessions, those that were quiet for longest first.
    pub fn sessions(&self) -> impl Iterator<Item = (&str, Home)> {
        self.homes.all()
    }

    /// Sessions of a replica.
    pub fn sessions_of(&self, replica: ReplicaId) -> usize {
        self.homes.sum(replica).sessions
    }

    fn sticky(&mut self, wish: &Wish<'_>, among: &[Candidate]) -> (ReplicaId, Reason) {
        let Some(session) = wish.session else {
            return self.least(among, Reason::LeastLoad);
        };
        let reason = match self.homes.get(session) {
            Some(home) if among.iter().any(|one| one.id == home.replica) => return (home.replica, Reason::Home),
            Some(_) => Reason::Orphan,
            None => Reason::New,
        };
        // Not the tokens in flight alone: sessions that wait for their tools will come back.
        let sums: Vec<_> = among.iter().map(|one| self.homes.sum(one.id)).collect();
        (among[self.fewest(&sums)].id, reason)
    }

    /// A replica that would have the whole context computed before the session's own one comes to what is new of it.
    fn cheaper(&self, wish: &Wish<'_>, among: &[Candidate]) -> Option<ReplicaId> {
        let home = self.homes.get(wish.session?)?;
        let time = |one: &Candidate, tokens: u64| (one.queued + tokens) as f64 / one.rate;
        let own = among.iter().find(|one| one.id == home.replica && one.rate > 0.0)?;
        let stays = time(own, wish.tokens.saturating_sub(home.cached));
        let others = among
            .iter()
            .filter(|one| one.opens && one.rate > 0.0 && one.id != own.id);
        let (goes, id) = others
            .map(|one| (time(one, wish.tokens), one.id))
            .min_by(|one, other| one.0.total_cmp(&other.0))?;
        (goes < stays).then_some(id)
    }

    fn least(&mut self, among: &[Candidate], reason: Reason) -> (ReplicaId, Reason) {
        let loads: Vec<_> = among.iter().map(|one| (one.tokens, one.requests)).collect();
        (among[self.fewest(&loads)].id, reason)
    }

    /// The least of these; of ties each in turn, for always the first would starve the rest.
    fn fewest<T: Ord>(&mut self, loads: &[T]) -> usize {
        let least = loads.iter().min();
        let ties: Vec<usize> = (0..loads.len()).filter(|&at| Some(&loads[at]) == least).collect();
        let at = ties[self.ties % ties.len()];
        self.ties = self.ties.wrapping_add(1);
        at
    }

    fn by_hash(&mut self, wish: &Wish<'_>, among: &[Candidate]) -> (ReplicaId, Reason) {
        let Some(session) = wish.session else {
            return self.least(among, Reason::LeastLoad);
        };
        let session = stable_hash(session.as_bytes());
        let mut ranked: Vec<&Candidate> = among.iter().collect();
        ranked.sort_by_key(|one| std::cmp::Reverse(joined(session, one.hash)));
        let bound = bound(among);
        let at = ranked.iter().position(|one| f64::from(one.requests) <= bound);
        match at {
            None | Some(0) => (ranked[0].id, Reason::Hash),
            Some(at) => (ranked[at].id, Reason::HashPassed),
        }
    }

    fn by_prefix(&mut self, wish: &Wish<'_>, among: &[Candidate]) -> (ReplicaId, Reason) {
        let bound = bound(among);
        let best = among
            .iter()
            .filter(|one| f64::from(one.requests) <= bound)
            .map(|one| {
                (
                    self.prefixes.seen(wish.blocks, one.id),
                    std::cmp::Reverse(one.tokens),
                    one.id,
                )
            })
            .max();
        match best {
            Some((seen, _, id)) if seen > 0 => (id, Reason::Prefix),
            _ => self.sticky(wish, among),
        }
    }
}

/// Requests of one replica that are still no imbalance.
fn bound(among: &[Candidate]) -> f64 {
    let all: f64 = among.iter().map(|one| f64::from(one.requests)).sum();
    all / among.len() as f64 * BOUND + SLACK
}
