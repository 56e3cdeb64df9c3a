//! The way from the scheduler to one reader: bounded, and never waited for.
//!
//! A reader that does not keep up gets fewer, longer deltas: what it has not taken is merged by policy
//! version, so that the memory of a stalled reader is bounded by its own token budget. Nothing here samples.

use std::collections::VecDeque;

use tokio::sync::mpsc;

use crate::inference::{Finish, GenerationEvent, TokenDelta};
use crate::trajectory::{PolicyVersion, TokenId};

/// Events in the channel at most.
const CAPACITY: usize = 64;
/// Places that only the end of a generation uses: what is pending then, and `Finished`.
const RESERVED: usize = 4;

/// Sends the events of one generation.
pub(super) struct Outbox {
    events: mpsc::Sender<GenerationEvent>,
    /// At most `RESERVED - 1`, of versions that differ in sequence.
    pending: VecDeque<TokenDelta>,
}

impl Outbox {
    pub(super) fn open() -> (Self, mpsc::Receiver<GenerationEvent>) {
        let (events, receiver) = mpsc::channel(CAPACITY);
        (
            Self {
                events,
                pending: VecDeque::new(),
            },
            receiver,
        )
    }

    /// Whether the reader has gone away.
    pub(super) fn is_gone(&self) -> bool {
        self.events.is_closed()
    }

    /// Whether a token sampled by `version` can be taken. `false` only for a reader that took nothing while
    /// several versions were published: its sequence has to wait.
    pub(super) fn has_room(&mut self, version: PolicyVersion) -> bool {
        self.flush();
        self.pending.len() < RESERVED - 1 || self.pending.back().is_some_and(|delta| delta.version == version)
    }

    /// Takes one token; `has_room` was asked.
    pub(super) fn push(&mut self, id: TokenId, logprob: f32, version: PolicyVersion) {
        match self.pending.back_mut() {
            Some(TokenDelta {
                ids,
                logprobs: Some(logprobs),
                version: last,
            }) if *last == version => {
                ids.push(id);
                logprobs.push(logprob);
            }
            _ => self.pending.push_back(TokenDelta {
                ids: vec![id],
                logprobs: Some(vec![logprob]),
                version,
            }),
        }
        self.flush();
    }

    fn flush(&mut self) {
        while self.events.capacity() > RESERVED
            && let Some(delta) = self.pending.pop_front()
        {
            // Only a reader that is gone refuses, and its sequence is about to be aborted.
            let _ = self.events.try_send(GenerationEvent::Tokens(delta));
        }
    }

    /// Sends what is left, and the end.
    pub(super) fn finish(mut self, finish: Finish) {
        for delta in self.pending.drain(..) {
            let _ = self.events.try_send(GenerationEvent::Tokens(delta));
        }
        let _ = self.events.try_send(GenerationEvent::Finished(finish));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inference::EngineUsage;
    use crate::trajectory::FinishReason;

    fn version(update: u64) -> PolicyVersion {
        PolicyVersion { lineage: 0, update }
    }

    fn drain(mut receiver: mpsc::Receiver<GenerationEvent>) -> (Vec<TokenId>, usize, bool) {
        let (mut ids, mut deltas, mut finished) = (Vec::new(), 0, false);
        while let Ok(event) = receiver.try_recv() {
            match event {
                GenerationEvent::Tokens(delta) => {
                    assert_eq!(delta.ids.len(), delta.logprobs.unwrap().len());
                    ids.extend(delta.ids);
                    deltas += 1;
                }
                GenerationEvent::Finished(_) => finished = true,
            }
        }
        (ids, deltas, finished)
    }

    fn end() -> Finish {
        Finish {
            reason: FinishReason::Stop,
            usage: EngineUsage::default(),
            error: None,
            routing: None,
            rejected: false,
        }
    }

    #[test]
    fn a_stalled_reader_gets_everything_in_few_deltas() {
        let (mut outbox, receiver) = Outbox::open();
        for id in 0..1000 {
            assert!(outbox.has_room(version(0)));
            outbox.push(id, -1.0, version(0));
        }
        outbox.finish(end());
        let (ids, deltas, finished) = drain(receiver);
        assert_eq!(ids, (0..1000).collect::<Vec<_>>());
        assert!(deltas <= CAPACITY && finished);
    }

    #[test]
    fn versions_never_merge_and_the_end_always_fits() {
        let (mut outbox, receiver) = Outbox::open();
        let mut sent = 0;
        for update in 0..200 {
            if outbox.has_room(version(update)) {
                outbox.push(update as u32, -1.0, version(update));
                sent += 1;
            }
        }
        assert!(!outbox.has_room(version(999)));
        outbox.finish(end());
        let (ids, deltas, finished) = drain(receiver);
        assert_eq!((ids.len(), deltas), (sent, sent));
        assert_eq!(sent, CAPACITY - RESERVED + RESERVED - 1);
        assert!(finished);
    }

    #[test]
    fn a_gone_reader_is_seen() {
        let (outbox, receiver) = Outbox::open();
        assert!(!outbox.is_gone());
        drop(receiver);
        assert!(outbox.is_gone());
    }
}
