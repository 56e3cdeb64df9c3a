//! The wait of a request between its replica's choice and the engine.

use std::sync::Arc;
use std::time::Duration;

use super::{Candidate, Reason, Set, lock};
use crate::balance::hold::{Ask, Entered, NotLetGo, Place};
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
    /// Chooses a replica of these for a request.
    pub(super) fn choose(&self, request: &GenerateRequest, up: &[usize]) -> Option<usize> {
        let among: Vec<Candidate> = up.iter().map(|&at| self.candidate(at)).collect();
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
        let (id, reason) = placement.place(&wish, &among)?;
        drop(placement);
        self.count(reason);
        Some(id as usize)
    }

    pub(super) fn count(&self, reason: Reason) {
        *lock(&self.placed).entry(reason).or_default() += 1;
    }

    fn candidate(&self, at: usize) -> Candidate {
        let replica = &self.replicas[at];
        let (tokens, requests) = *lock(&replica.in_flight);
        Candidate {
            id: at as u32,
            hash: replica.hash,
            tokens,
            requests,
        }
    }

    /// Waits until the request's turn may be sent to this replica; `None`: it is to be sent to another.
    pub(super) async fn enter(&self, at: usize, request: &GenerateRequest) -> Result<Option<Place>, EngineError> {
        let replica = &self.replicas[at];
        let tokens = request.prompt.len() as u64;
        let Some(hold) = &replica.hold else {
            return Ok(Some(Place::free(tokens)));
        };
        hold.set_capacity(replica.engine.load().kv_capacity);
        let version = replica.engine.version();
        let cached = std::mem::replace(&mut *lock(&replica.cached), version);
        if cached != version {
            hold.forget_cache();
        }
        let blocks = blocks(request, SHARED_BLOCKS);
        let ask = Ask {
            session: &request.session.0,
            conversation: request.origin.conversation.into(),
            tokens,
            blocks: &blocks,
            block_tokens: BLOCK_TOKENS,
            // Which of the attempts at a turn is wanted was settled before.
            digest: stable_hash(request.id.as_bytes()),
        };
        match hold.enter_or_move(&ask, || self.roomier(at, tokens)).await {
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

    /// Another replica at which a session of so many tokens would not wait.
    fn roomier(&self, at: usize, tokens: u64) -> Option<usize> {
        self.up()
            .filter(|(other, _)| *other != at)
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
}

impl InFlight {
    pub(super) fn at(set: &Arc<Set>, at: usize, tokens: u64) -> Self {
        let mut sum = lock(&set.replicas[at].in_flight);
        *sum = (sum.0 + tokens, sum.1 + 1);
        drop(sum);
        Self {
            set: Arc::clone(set),
            at,
            tokens,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut sum = lock(&self.set.replicas[self.at].in_flight);
        *sum = (sum.0 - self.tokens, sum.1 - 1);
    }
}
