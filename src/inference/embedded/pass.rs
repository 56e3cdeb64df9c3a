//! Admission, and one pass of the model over everything that can go on.

use std::sync::atomic::Ordering::Relaxed;

use lego_policy::Logits;

use super::plan::plan;
use super::pool::{common_prefix, copy_prefix};
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use crate::trajectory::FinishReason;

/// A shorter common beginning is not worth waiting for.
const SHARED_PREFIX: usize = 16;

/// What a running generation offers to one that begins the same way.
enum Neighbour {
    /// Its cache holds this many of the wanted tokens, more than any idle one.
    Copy(usize, usize),
    /// It is about to compute them.
    Wait,
    Nothing,
}

impl Scheduler {
    /// Moves waiting generations into the batch, in order, as far as bounds allow. One whose prompt another
    /// is just computing lets others pass and takes a copy when it is there. With `only_begun`, those that
    /// were preempted come back and no other.
    pub(super) fn admit(&mut self, only_begun: bool) {
        let mut index = 0;
        while index < self.waiting.len() && self.running.len() < self.bounds.max_running {
            if only_begun && !self.waiting[index].has_begun() {
                index += 1;
                continue;
            }
            let active: usize = self.running.iter().map(|sequence| sequence.tokens.len()).sum();
            let wanted = self.waiting[index].tokens.len();
            if !self.running.is_empty() && active + wanted > self.bounds.kv_capacity {
                return;
            }
            let neighbour = self.neighbour(&self.waiting[index]);
            if matches!(neighbour, Neighbour::Wait) {
                index += 1;
                continue;
            }
            let Some(mut sequence) = self.waiting.remove(index) else {
                return;
            };
            // The last token is always fed: its logits are what the first sample needs.
            let reusable = sequence.tokens.len() - 1;
            if let Neighbour::Copy(source, shared) = neighbour {
                sequence.cache = copy_prefix(&self.running[source].cache, shared);
            } else if let Some(cache) = self.pool.take(&sequence.session, &sequence.tokens[..reusable]) {
                sequence.cache = cache;
            }
            self.count_prompt(&mut sequence);
            self.running.push(sequence);
            self.make_room(0);
        }
    }

    fn neighbour(&self, sequence: &Sequence) -> Neighbour {
        let wanted = &sequence.tokens[..sequence.tokens.len() - 1];
        let idle = self.pool.longest(wanted);
        let best = self
            .running
            .iter()
            .enumerate()
            .map(|(index, other)| (common_prefix(&other.tokens, wanted), index))
            .max()
            .filter(|&(shared, _)| shared >= idle + SHARED_PREFIX);
        match best {
            Some((shared, index)) if self.running[index].cache.len() >= shared => Neighbour::Copy(index, shared),
            Some(_) => Neighbour::Wait,
            None => Neighbour::Nothing,
        }
    }

    /// Counts a prompt once, also if its generation is preempted and comes back.
    fn count_prompt(&self, sequence: &mut Sequence) {
        if !sequence.has_begun() {
            let cached = sequence.cache.len();
            sequence.cached = Some(cached);
            self.shared.prompt_tokens.fetch_add(sequence.prompt_len as u64, Relaxed);
            self.shared.cached_tokens.fetch_add(cached as u64, Relaxed);
        }
    }

    /// Frees idle caches, longest unused first, until `growth` more tokens fit; then preempts the generation
    /// that came last: it keeps its tokens and computes its cache anew later. `false`: one was preempted.
    fn make_room(&mut self, growth: usize) -> bool {
        while self.kv_used() + growth > self.bounds.kv_capacity {
            if self.pool.evict() {
                continue;
            }
            if self.running.len() <= 1 {
                return true;
            }
            if let Some(mut last) = self.running.pop() {
                last.cache = self.model.new_cache();
                self.waiting.push_front(last);
                self.shared.preemptions.fetch_add(1, Relaxed);
            }
            return false;
        }
        true
    }

    /// Feeds a bounded number of tokens and samples wherever a next token is due. `false`: nothing could go on.
    pub(super) fn pass(&mut self) -> bool {
        let chunks = loop {
            let version = self.version;
            let needs: Vec<usize> = self
                .running
                .iter_mut()
                // Without room for a sample the prompt is still computed: others may wait for a copy of it.
                .map(|sequence| sequence.need() - usize::from(!sequence.outbox.has_room(version)))
                .collect();
            let chunks = plan(&needs, self.bounds.pass_tokens);
            let growth: usize = chunks.iter().sum();
            if growth == 0 {
                return false;
            }
            if self.make_room(growth) {
                break chunks;
            }
        };
        let mut slots: Vec<_> = self
            .running
            .iter_mut()
            .zip(&chunks)
            .filter(|(_, chunk)| **chunk > 0)
            .map(|(sequence, &chunk)| sequence.slot(chunk))
            .collect();
        let logits = match self.model.forward(&mut slots, Logits::Last) {
            Ok(logits) => logits,
            Err(error) => {
                self.fail(&chunks, &error.to_string());
                return true;
            }
        };
        self.shared
            .computed_tokens
            .fetch_add(chunks.iter().sum::<usize>() as u64, Relaxed);
        let mut ended = Vec::new();
        let fed = (0..chunks.len()).filter(|&index| chunks[index] > 0);
        for (index, logits) in fed.zip(&logits) {
            let sequence = &mut self.running[index];
            if sequence.need() > 0 {
                continue;
            }
            match sequence.sample(logits.last(), self.version) {
                Ok(end) => {
                    self.shared.sampled_tokens.fetch_add(1, Relaxed);
                    ended.extend(end.map(|reason| (index, reason, None)));
                }
                Err(error) => ended.push((index, FinishReason::Error, Some(error))),
            }
        }
        for (index, reason, error) in ended.into_iter().rev() {
            self.retire(index, reason, error);
        }
        true
    }

    /// The model refused the pass: nothing that was part of it can go on.
    fn fail(&mut self, chunks: &[usize], error: &str) {
        tracing::error!(error, "a pass of the embedded engine failed");
        for index in (0..chunks.len()).rev().filter(|&index| chunks[index] > 0) {
            self.retire(index, FinishReason::Error, Some(error.to_owned()));
        }
    }
}
