//! The engine's thread: takes commands between two passes of the model, and runs passes while there is work.
//!
//! It never waits for a reader. All state of all generations lives here and nowhere else.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use lego_policy::DecodeModel;
use tokio::sync::{mpsc, oneshot};

use super::pool::CachePool;
use super::sequence::Sequence;
use super::shared::Shared;
use crate::inference::{EngineError, PauseMode};
use crate::trajectory::{FinishReason, PolicyVersion, TokenId};

/// How often a paused engine looks for readers that went away.
const POLL: Duration = Duration::from_millis(5);

pub(super) type Reply = oneshot::Sender<Result<(), EngineError>>;

/// What the asynchronous side asks for.
pub(super) enum Command {
    Generate(Box<Sequence>),
    Abort(String),
    Pause(PauseMode, Reply),
    Publish(PolicyVersion, DecodeModel, Reply),
    Resume(Reply),
    /// How many tokens of a prompt are cached.
    Cached(Vec<TokenId>, oneshot::Sender<usize>),
    /// Its thread is gone without a word, as one that panics.
    #[cfg(test)]
    Vanish,
}

/// Bounds, in tokens and generations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) max_running: usize,
    pub(super) pass_tokens: usize,
    pub(super) kv_capacity: usize,
}

/// Whether passes run.
enum Flow {
    Going,
    /// Running generations end first, then these are answered.
    Draining(Vec<Reply>),
    Paused,
}

pub(super) struct Scheduler {
    pub(super) model: DecodeModel,
    pub(super) version: PolicyVersion,
    pub(super) bounds: Bounds,
    pub(super) shared: Arc<Shared>,
    pub(super) running: Vec<Sequence>,
    pub(super) waiting: VecDeque<Sequence>,
    pub(super) pool: CachePool,
    flow: Flow,
}

impl Scheduler {
    pub(super) fn new(model: DecodeModel, version: PolicyVersion, bounds: Bounds, shared: Arc<Shared>) -> Self {
        Self {
            model,
            version,
            bounds,
            shared,
            running: Vec::new(),
            waiting: VecDeque::new(),
            pool: CachePool::default(),
            flow: Flow::Going,
        }
    }

    /// Serves until the engine is dropped.
    pub(super) fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut progressed = false;
        while self.take_commands(&mut commands, progressed) {
            self.drop_abandoned();
            progressed = !matches!(self.flow, Flow::Paused) && {
                self.admit(matches!(self.flow, Flow::Draining(_)));
                self.pass()
            };
            self.settle_drain();
            self.report();
        }
        self.end_all("the engine was stopped");
    }

    /// Handles what has been asked; waits for it if there is nothing else to do. `false`: the engine is gone.
    fn take_commands(&mut self, commands: &mut mpsc::Receiver<Command>, busy: bool) -> bool {
        if !busy {
            if self.running.is_empty() && self.waiting.is_empty() {
                match commands.blocking_recv() {
                    Some(command) => self.handle(command),
                    None => return false,
                }
            } else {
                std::thread::sleep(POLL);
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => self.handle(command),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Generate(sequence) => self.enqueue(*sequence),
            Command::Abort(id) => self.abort(&id),
            Command::Pause(mode, reply) => self.pause(mode, reply),
            Command::Publish(version, model, reply) => {
                self.publish(version, model);
                answer(reply, Ok(()));
            }
            Command::Resume(reply) => {
                self.end_drain("resumed before the running generations had ended");
                self.flow = Flow::Going;
                answer(reply, Ok(()));
            }
            Command::Cached(prompt, reply) => {
                let _ = reply.send(self.pool.longest(&prompt));
            }
            #[cfg(test)]
            Command::Vanish => std::panic::resume_unwind(Box::new("vanished")),
        }
    }

    fn enqueue(&mut self, sequence: Sequence) {
        if self
            .running
            .iter()
            .chain(&self.waiting)
            .any(|other| other.id == sequence.id)
        {
            let reason = format!("request id `{}` is in use", sequence.id);
            sequence.end(FinishReason::Error, Some(reason));
        } else {
            self.waiting.push_back(sequence);
        }
    }

    fn abort(&mut self, id: &str) {
        if let Some(index) = self.running.iter().position(|sequence| sequence.id == id) {
            self.retire(index, FinishReason::Abort, None);
        } else if let Some(index) = self.waiting.iter().position(|sequence| sequence.id == id)
            && let Some(sequence) = self.waiting.remove(index)
        {
            sequence.end(FinishReason::Abort, None);
        }
    }

    fn pause(&mut self, mode: PauseMode, reply: Reply) {
        if mode == PauseMode::Wait && self.has_begun() && !matches!(self.flow, Flow::Paused) {
            match &mut self.flow {
                Flow::Draining(replies) => replies.push(reply),
                Flow::Going | Flow::Paused => self.flow = Flow::Draining(vec![reply]),
            }
            return;
        }
        if mode == PauseMode::Abort {
            self.abort_begun();
            self.settle_drain();
        }
        self.end_drain("paused before the running generations had ended");
        self.flow = Flow::Paused;
        answer(reply, Ok(()));
    }

    /// Whether any generation has begun and not ended, one that was preempted included.
    fn has_begun(&self) -> bool {
        !self.running.is_empty() || self.waiting.iter().any(Sequence::has_begun)
    }

    fn abort_begun(&mut self) {
        while !self.running.is_empty() {
            self.retire(0, FinishReason::Abort, None);
        }
        let (begun, waiting): (VecDeque<_>, VecDeque<_>) = self.waiting.drain(..).partition(Sequence::has_begun);
        self.waiting = waiting;
        for sequence in begun {
            sequence.end(FinishReason::Abort, None);
        }
    }

    /// Pauses once the last running generation has ended.
    fn settle_drain(&mut self) {
        if !self.has_begun()
            && let Flow::Draining(replies) = &mut self.flow
        {
            replies.drain(..).for_each(|reply| answer(reply, Ok(())));
            self.flow = Flow::Paused;
        }
    }

    fn end_drain(&mut self, reason: &str) {
        if let Flow::Draining(replies) = &mut self.flow {
            for reply in replies.drain(..) {
                answer(
                    reply,
                    Err(EngineError::Unavailable {
                        reason: reason.to_owned(),
                        retry_after: None,
                    }),
                );
            }
        }
    }

    /// Swaps the weights. Running generations go on under the new ones: what they hold is computed anew, so
    /// that every log-prob is the one of the weights it is recorded with.
    fn publish(&mut self, version: PolicyVersion, model: DecodeModel) {
        self.model = model;
        self.version = version;
        self.shared.set_version(version);
        self.pool.clear();
        for sequence in &mut self.running {
            sequence.cache.clear();
        }
    }

    /// Ends a running generation; its cache stays for the session's next turn.
    pub(super) fn retire(&mut self, index: usize, reason: FinishReason, error: Option<String>) {
        let (session, tokens, cache) = self.running.remove(index).end(reason, error);
        self.pool.put(session, tokens, cache);
    }

    /// Aborts generations whose reader has gone away.
    fn drop_abandoned(&mut self) {
        self.waiting.retain(|sequence| !sequence.outbox.is_gone());
        while let Some(index) = self.running.iter().position(|sequence| sequence.outbox.is_gone()) {
            self.retire(index, FinishReason::Abort, None);
        }
    }

    fn end_all(&mut self, reason: &str) {
        for sequence in self.running.drain(..).chain(self.waiting.drain(..)) {
            sequence.end(FinishReason::Error, Some(reason.to_owned()));
        }
        self.end_drain(reason);
    }

    /// Tokens whose keys and values are held.
    pub(super) fn kv_used(&self) -> usize {
        self.running.iter().map(|sequence| sequence.cache.len()).sum::<usize>() + self.pool.tokens()
    }

    fn report(&self) {
        self.shared.running.store(self.running.len(), Relaxed);
        self.shared.waiting.store(self.waiting.len(), Relaxed);
        self.shared.kv_used.store(self.kv_used(), Relaxed);
    }
}

/// Answers; one who no longer waits needs none.
fn answer(reply: Reply, result: Result<(), EngineError>) {
    let _ = reply.send(result);
}
