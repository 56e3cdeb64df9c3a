//! The wait of a request between its replica's choice and the engine.

use std::sync::Arc;
use std::time::Duration;

use super::{Candidate, Reason, Replica, Set, lock};
use crate::balance::hold::{Ask, Entered, NotLetGo, Place, Probe};
use crate::balance::placement::{BLOCK, Wish, blocks_of, stable_hash};
use crate::inference::{Balanced, EngineError, GenerateRequest};

/// Blocks of a prompt by which what sessions share is found.
const SHARED_BLOCKS: usize = 64;
/// Blocks of a prompt by which a replica that has seen them is found.
const PREFIX_BLOCKS: usize = 4096;
/// Tokens of a block: their ids are four bytes each.
const BLOCK_TOKENS: f64 = (BLOCK / 4) as f64;

/// When whoever was held for too long may try again.
const COME_AGAIN: Duration = Duration::from_secs(30);

impl Set {
    /// Chooses a replica for a request, of those that were not tried, and says how many tokens are new to it.
    pub(super) fn choose(&self, request: &GenerateRequest, tried: &[usize]) -> Option<(usize, u64)> {
        let among = self.candidates(tried);
        let mut placement = lock(&self.placement);
        let blocks = if placement.reads_blocks() {
            blocks(request, PREFIX_BLOCKS)
        } else {
            Vec::new()
        };
        let wish = Wish {
            session: Some(&request.session.0),
            tokens: request.prompt.len() as u64,
            blocks: &blocks,
        };
        let before = placement.home(&request.session.0);
        let (id, reason) = placement.place(&wish, &among)?;
        let fresh = placement
            .home(&request.session.0)
            .map_or(wish.tokens, |home| home.fresh());
        drop(placement);
        self.count(reason);
        if let (Reason::Moved, Some(before)) = (reason, before)
            && let Some(hold) = &self.replicas[before.replica as usize].hold
        {
            // All of its conversations go with it.
            hold.release(&request.session.0);
        }
        Some((id as usize, fresh))
    }

    pub(super) fn count(&self, reason: Reason) {
        *lock(&self.placed).entry(reason).or_default() += 1;
    }

    /// Those that are up and were not tried.
    pub(super) fn candidates(&self, tried: &[usize]) -> Vec<Candidate> {
        let up = self.up().filter(|(at, _)| !tried.contains(at));
        let candidate = |(at, replica): (usize, &Replica)| {
            let work = *lock(&replica.in_flight);
            Candidate {
                id: at as u32,
                hash: replica.hash,
                tokens: work.tokens,
                requests: work.requests,
                queued: work.queued,
                rate: lock(&replica.rate).get(),
                opens: !replica.gate.is_closed(),
                version: replica.engine.version(),
            }
        };
        up.map(candidate).collect()
    }

    /// Waits until the request's turn may be sent to this replica; `None`: it is to be sent to another.
    pub(super) async fn enter(&self, at: usize, request: &GenerateRequest) -> Result<Option<Place>, EngineError> {
        let replica = &self.replicas[at];
        let tokens = request.prompt.len() as u64;
        let Some(hold) = &replica.hold else {
            return Ok(Some(Place::free(tokens)));
        };
        hold.set_capacity(replica.engine.load().kv_capacity);
        self.notice_weights(at);
        let blocks = blocks(request, SHARED_BLOCKS);
        let (engine, prompt) = (Arc::clone(&replica.engine), Arc::clone(&request.prompt));
        let probe = Probe::new(move || {
            let (engine, prompt) = (Arc::clone(&engine), Arc::clone(&prompt));
            Box::pin(async move { engine.cached(&prompt).await })
        });
        let ask = Ask {
            session: &request.session.0,
            conversation: request.origin.conversation.into(),
            tokens,
            blocks: &blocks,
            block_tokens: BLOCK_TOKENS,
            // Which of the attempts at a turn is wanted was settled before.
            digest: stable_hash(request.id.as_bytes()),
            probe: Some(&probe),
        };
        match hold.enter_or_move(&ask, || self.roomier(at, ask.session, tokens)).await {
            Ok(Entered::Here(place)) => Ok(Some(place)),
            Ok(Entered::Elsewhere(other)) => {
                lock(&self.placement).move_to(&request.session.0, other as u32);
                self.count(Reason::Moved);
                Ok(None)
            }
            Err(NotLetGo::Out | NotLetGo::Preempted) => Ok(None),
            Err(error @ NotLetGo::TooLong(_)) => Err(EngineError::Unavailable {
                reason: error.to_string(),
                retry_after: Some(COME_AGAIN),
            }),
        }
    }

    /// Another replica at which the session, of so many tokens, would not wait.
    fn roomier(&self, at: usize, session: &str, tokens: u64) -> Option<usize> {
        let sampled_by = lock(&self.placement).home(session).map(|home| home.version);
        let fits = |replica: &Replica| {
            !replica.gate.is_closed() && sampled_by.is_none_or(|version| replica.engine.version() >= version)
        };
        self.up()
            .filter(|(other, replica)| *other != at && fits(replica))
            .find(|(_, replica)| replica.hold.as_ref().is_some_and(|hold| hold.has_room_for(tokens)))
            .map(|(other, _)| other)
    }

    /// What is so now, over all replicas.
    pub(super) fn balanced(&self) -> Balanced {
        let mut all = Balanced::default();
        for hold in self.replicas.iter().filter_map(|replica| replica.hold.as_ref()) {
            let figures = hold.figures();
            all.held += figures.waiting as u64;
            all.admitted_tokens += figures.admitted;
            all.capacity_tokens += figures.capacity;
            all.held_total += figures.stats.held;
            all.longest_hold_s = all.longest_hold_s.max(figures.stats.longest_hold);
            all.paused_total += figures.stats.paused;
            all.displaced_total += figures.stats.displaced;
            all.short_of_budget_total += figures.stats.short_of_budget;
        }
        let placed = lock(&self.placed);
        let count = |reason: Reason| Some((reason.name(), *placed.get(&reason)?));
        all.placed_total = Reason::ALL.into_iter().filter_map(count).collect();
        all
    }
}

fn blocks(request: &GenerateRequest, most: usize) -> Vec<u64> {
    let ids = request.prompt.iter().take(most * BLOCK / 4);
    let bytes: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
    blocks_of(&bytes, most)
}

/// Counts a request as its replica's work, as long as it runs.
pub(super) struct InFlight {
    set: Arc<Set>,
    at: usize,
    tokens: u64,
    queued: u64,
}

impl InFlight {
    /// `fresh` of its tokens are new to the replica.
    pub(super) fn at(set: &Arc<Set>, at: usize, tokens: u64, fresh: u64) -> Self {
        let mut work = lock(&set.replicas[at].in_flight);
        work.tokens += tokens;
        work.requests += 1;
        work.queued += fresh;
        drop(work);
        Self {
            set: Arc::clone(set),
            at,
            tokens,
            queued: fresh,
        }
    }

    /// Its prompt has been computed.
    pub(super) fn begun(&mut self) {
        if self.queued > 0 {
            lock(&self.set.replicas[self.at].in_flight).queued -= self.queued;
            self.queued = 0;
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.begun();
        let mut work = lock(&self.set.replicas[self.at].in_flight);
        work.tokens -= self.tokens;
        work.requests -= 1;
    }
}
