//! A replica: continuous batching over a cache of blocks, first come first served, with prompts in chunks.
//!
//! Idle sessions' blocks are reused oldest session first, from its tail; where none is left, the youngest running sequence is
//! put back and computed again. What all sessions share always stays.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::Profile;
use super::workload::Turn;
use crate::balance::scheduler::SessionId;

/// Prompt tokens of a step.
const CHUNK: u64 = 8_192;
/// Sequences of a step.
const SEQUENCES: usize = 256;

/// A turn in the replica.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    session: SessionId,
    /// Own tokens that must be computed before it samples on: prompt, and what it had sampled when it was put back.
    prompt: u64,
    /// Own tokens in the cache.
    computed: u64,
    sampled: u64,
    answer: u64,
    /// Own tokens of its prompt that what is cached of its session can serve.
    kept: u64,
}

/// What a replica has done.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Work {
    /// Tokens sampled.
    pub(super) sampled: u64,
    /// Tokens of prompts, the shared ones too.
    pub(super) prompts: u64,
    /// Of those, found in the cache.
    pub(super) cached: u64,
    /// Tokens computed that had been computed for the same session before.
    pub(super) again: u64,
    /// Sequences put back.
    pub(super) preempted: u64,
    /// Seconds at work.
    pub(super) busy: f64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Replica {
    profile: Profile,
    shared: u64,
    waiting: VecDeque<Sequence>,
    running: Vec<Sequence>,
    /// Own tokens of idle sessions in the cache, and when each was last used.
    idle: HashMap<SessionId, (u64, u64)>,
    /// The same by age.
    oldest: BTreeSet<(u64, SessionId)>,
    /// Own tokens ever computed, by session.
    reached: HashMap<SessionId, u64>,
    free: u64,
    clock: u64,
    pub(super) work: Work,
}

impl Replica {
    pub(super) fn new(profile: Profile, shared: u64) -> Self {
        Self {
            profile,
            shared,
            waiting: VecDeque::new(),
            running: Vec::new(),
            idle: HashMap::new(),
            oldest: BTreeSet::new(),
            reached: HashMap::new(),
            free: profile.capacity.saturating_sub(shared),
            clock: 0,
            work: Work::default(),
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.running.is_empty() && self.waiting.is_empty()
    }

    /// A turn comes.
    pub(super) fn submit(&mut self, session: SessionId, turn: Turn) {
        let kept = turn.kept;
        if let Some(reached) = self.reached.get_mut(&session)
            && kept < turn.prompt
        {
            // What was written anew was never computed before.
            *reached = (*reached).min(kept);
        }
        self.waiting.push_back(Sequence {
            session,
            prompt: turn.prompt,
            computed: 0,
            sampled: 0,
            answer: turn.answer.max(1),
            kept,
        });
    }

    /// Own tokens of an idle session that the cache still has.
    pub(super) fn cached(&self, session: SessionId) -> u64 {
        self.idle.get(&session).map_or(0, |(tokens, _)| *tokens)
    }

    /// Tokens of prompts that it has to compute before one that comes now.
    pub(super) fn queued(&self) -> u64 {
        let missing = |one: &Sequence| one.prompt.saturating_sub(one.computed);
        let waiting = |one: &Sequence| missing(one).saturating_sub(self.cached(one.session).min(one.kept));
        self.running.iter().map(missing).sum::<u64>() + self.waiting.iter().map(waiting).sum::<u64>()
    }

    /// The session is over: nothing of it is asked for again, which the cache does not know.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.reached.remove(&session);
    }

    /// One step: how long it takes, and the sessions whose turns end with it.
    pub(super) fn step(&mut self) -> (f64, Vec<SessionId>) {
        let mut seconds = self.profile.fixed;
        let mut left = CHUNK;
        let mut preempted = false;
        let mut at = 0;
        // Tokens that each running sequence computes in this step.
        let mut planned: Vec<u64> = Vec::with_capacity(self.running.len());
        while at < self.running.len() {
            let sequence = self.running[at];
            let missing = sequence.prompt.saturating_sub(sequence.computed);
            let tokens = if missing > 0 { missing.min(left) } else { 1 };
            if tokens == 0 {
                planned.push(0);
                at += 1;
                continue;
            }
            if self.take(tokens) {
                if missing > 0 {
                    left -= tokens;
                }
                planned.push(tokens);
                at += 1;
                continue;
            }
            preempted = true;
            // The youngest; where that is this one, it goes.
            let Some(youngest) = self.running.pop() else { break };
            let promised = if planned.len() > self.running.len() {
                planned.pop().unwrap_or(0)
            } else {
                0
            };
            self.free += youngest.computed + promised;
            self.work.preempted += 1;
            self.waiting.push_front(Sequence {
                prompt: youngest.prompt.max(youngest.computed),
                computed: 0,
                ..youngest
            });
        }
        while !preempted
            && left > 0
            && self.running.len() < SEQUENCES
            && let Some(&next) = self.waiting.front()
        {
            let found = self.revive(next.session, next.prompt.min(next.kept + 1));
            let missing = next.prompt - found;
            let tokens = missing.min(left);
            // One that could not be computed to its end would only take from the others.
            if missing > self.room() || !self.take(tokens) {
                self.put_back(next.session, found);
                break;
            }
            self.waiting.pop_front();
            left -= tokens;
            self.work.prompts += self.shared + next.prompt;
            self.work.cached += self.shared + found;
            self.running.push(Sequence {
                computed: found,
                ..next
            });
            planned.push(tokens);
        }
        self.advance(&planned, &mut seconds)
    }

    fn advance(&mut self, planned: &[u64], seconds: &mut f64) -> (f64, Vec<SessionId>) {
        let mut ended = Vec::new();
        let mut kept = Vec::with_capacity(self.running.len());
        for (mut sequence, &tokens) in std::mem::take(&mut self.running).into_iter().zip(planned) {
            let before = self.shared + sequence.computed;
            let is_prompt = sequence.computed < sequence.prompt;
            *seconds += self.profile.sequence;
            if is_prompt {
                let (chunk, from) = (tokens as f64, before as f64);
                *seconds += self.profile.prefill * chunk + self.profile.position * chunk * (from + chunk / 2.0);
            } else {
                // What all share is read once for all of them.
                *seconds += self.profile.context * sequence.computed as f64;
            }
            let reached = self.reached.entry(sequence.session).or_insert(0);
            let to = sequence.computed + tokens;
            self.work.again += to.min(*reached).saturating_sub(sequence.computed);
            *reached = to.max(*reached);
            sequence.computed = to;
            if sequence.computed >= sequence.prompt {
                sequence.sampled += 1;
                self.work.sampled += 1;
            }
            if sequence.sampled >= sequence.answer {
                self.put_back(sequence.session, sequence.computed);
                ended.push(sequence.session);
            } else {
                kept.push(sequence);
            }
        }
        self.running = kept;
        self.work.busy += *seconds;
        (*seconds, ended)
    }

    /// Tokens that are free, or would be without idle sessions.
    fn room(&self) -> u64 {
        self.free + self.idle.values().map(|(tokens, _)| tokens).sum::<u64>()
    }

    /// Tokens of room, from what is free or from idle sessions; none is taken where there are not enough.
    fn take(&mut self, tokens: u64) -> bool {
        while self.free < tokens {
            let Some(&(used, session)) = self.oldest.first() else {
                return false;
            };
            let Some(entry) = self.idle.get_mut(&session) else {
                self.oldest.pop_first();
                continue;
            };
            let gone = entry.0.min(tokens - self.free);
            entry.0 -= gone;
            self.free += gone;
            if entry.0 == 0 {
                self.idle.remove(&session);
                self.oldest.remove(&(used, session));
            }
        }
        self.free -= tokens;
        true
    }

    /// Own tokens of a session that the cache still has; they are in use now. One is always computed again: its outcome
    /// is what is sampled from.
    fn revive(&mut self, session: SessionId, prompt: u64) -> u64 {
        let Some((tokens, used)) = self.idle.remove(&session) else {
            return 0;
        };
        self.oldest.remove(&(used, session));
        let found = tokens.min(prompt.saturating_sub(1));
        self.free += tokens - found;
        found
    }

    fn put_back(&mut self, session: SessionId, tokens: u64) {
        if tokens == 0 {
            return;
        }
        self.clock += 1;
        self.idle.insert(session, (tokens, self.clock));
        self.oldest.insert((self.clock, session));
    }
}
