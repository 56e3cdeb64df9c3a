//! What is asked of an engine and what it answers.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::trajectory::{FinishReason, PolicyVersion, RoutedRows, SessionKey, TokenId};

/// One generation.
#[derive(Debug, Clone)]
pub struct GenerateRequest {
    /// Unique; `abort` takes it.
    pub id: String,
    /// Whose cache it extends.
    pub session: SessionKey,
    /// Everything before the first token to sample.
    pub prompt: Arc<[TokenId]>,
    /// How to sample.
    pub sampling: Sampling,
    /// Who asks.
    pub origin: RequestOrigin,
    /// The first position whose experts are to be told, where they are.
    pub routing_from: Option<u32>,
}

/// Whose conversation a request belongs to. Only what plays recordings and what holds turns looks at it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// The task worked on.
    pub task_id: String,
    /// Which episode of its group.
    pub episode_index: u32,
    /// Assistant turns that came before in this conversation.
    pub turn: u32,
    /// Which conversation of its session.
    pub conversation: u32,
    /// What its messages say before the first answer and behind the last one; empty unless `Engine::reads_text`.
    pub text: String,
}

/// How to sample.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus; 1.0 is off.
    pub top_p: f32,
    /// Kept candidates; -1 is off.
    pub top_k: i32,
    /// At most this many tokens.
    pub max_tokens: u32,
    /// Tokens that end the generation; the one sampled is part of the output.
    pub stop_token_ids: Vec<TokenId>,
    /// Makes the generation repeatable.
    pub seed: u64,
}

/// A running generation: token deltas, then exactly one `Finished`. Dropping it aborts it.
pub struct Generation {
    source: Source,
    /// Taken from a channel, not given out yet.
    seen: Option<GenerationEvent>,
}

enum Source {
    Channel(mpsc::Receiver<GenerationEvent>),
    Read(Box<dyn EventSource>),
}

/// What makes a generation's events when it is asked, in the task of who asks.
#[async_trait]
pub trait EventSource: Send {
    /// The next event; `None` behind the last. Cancelling loses nothing.
    async fn next(&mut self) -> Option<GenerationEvent>;
}

impl Generation {
    /// A generation whose events another task sends.
    pub fn of(events: mpsc::Receiver<GenerationEvent>) -> Self {
        let source = Source::Channel(events);
        Self { source, seen: None }
    }

    /// A generation whose events are made as they are asked for.
    pub fn read_from(source: impl EventSource + 'static) -> Self {
        let source = Source::Read(Box::new(source));
        Self { source, seen: None }
    }

    /// The next event. Deltas that wait behind one another are joined: who is slow has less to do. Cancelling loses
    /// nothing.
    pub async fn next(&mut self) -> Option<GenerationEvent> {
        let events = match &mut self.source {
            Source::Read(source) => return source.next().await,
            Source::Channel(events) => events,
        };
        let first = match self.seen.take() {
            Some(event) => event,
            None => events.recv().await?,
        };
        let GenerationEvent::Tokens(mut delta) = first else {
            return Some(first);
        };
        while let Ok(event) = events.try_recv() {
            match event {
                GenerationEvent::Tokens(more) if delta.goes_on_as(&more) => delta.append(more),
                other => {
                    self.seen = Some(other);
                    break;
                }
            }
        }
        Some(GenerationEvent::Tokens(delta))
    }

    /// Whether nothing has come that was not given out.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        match &self.source {
            Source::Channel(events) => self.seen.is_none() && events.is_empty(),
            Source::Read(_) => true,
        }
    }
}

impl std::fmt::Debug for Generation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Generation").finish_non_exhaustive()
    }
}

/// One event of a generation.
#[derive(Debug, Clone)]
pub enum GenerationEvent {
    /// Sampled tokens.
    Tokens(TokenDelta),
    /// The end.
    Finished(Finish),
}

/// Newly sampled tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenDelta {
    /// Their ids.
    pub ids: Vec<TokenId>,
    /// Their log-probs at sampling temperature; `None` if the engine gives none. As long as `ids`.
    pub logprobs: Option<Vec<f32>>,
    /// The weights that sampled them.
    pub version: PolicyVersion,
}

impl TokenDelta {
    /// Whether both are in order and of the same weights. What is not is left as it came, to be refused.
    fn goes_on_as(&self, more: &Self) -> bool {
        let fits = |delta: &Self| delta.logprobs.as_ref().is_none_or(|all| all.len() == delta.ids.len());
        self.version == more.version && self.logprobs.is_some() == more.logprobs.is_some() && fits(self) && fits(more)
    }

    fn append(&mut self, more: Self) {
        self.ids.extend(more.ids);
        if let (Some(all), Some(new)) = (&mut self.logprobs, more.logprobs) {
            all.extend(new);
        }
    }
}

/// The end of a generation.
#[derive(Debug, Clone, PartialEq)]
pub struct Finish {
    /// Why.
    pub reason: FinishReason,
    /// What it cost.
    pub usage: EngineUsage,
    /// What went wrong, with `FinishReason::Error`.
    pub error: Option<String>,
    /// The experts of every position from the one asked for up to the last but one, where they were asked for and the
    /// engine tells them.
    pub routing: Option<RoutedRows>,
    /// Whether what came contradicts itself, with `FinishReason::Error`: none of it is to be used.
    pub rejected: bool,
}

/// Token counts of one generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineUsage {
    /// Prompt tokens.
    pub prompt: u32,
    /// Prompt tokens whose keys and values were cached.
    pub cached: u32,
    /// Sampled tokens.
    pub completion: u32,
}

/// What `pause` does to running generations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseMode {
    /// They stand still and go on after `resume`.
    Keep,
    /// They end first.
    Wait,
    /// They are aborted; what was sampled is kept.
    Abort,
}

/// How busy an engine is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EngineLoad {
    /// Generations that sample.
    pub running: u32,
    /// Generations that wait.
    pub waiting: u32,
    /// Tokens in the cache.
    pub kv_used: u64,
    /// Tokens that fit.
    pub kv_capacity: u64,
    /// Prompt tokens ever asked.
    pub prompt_tokens: u64,
    /// Prompt tokens ever found in the cache.
    pub cached_tokens: u64,
    /// Tokens ever sampled.
    pub sampled_tokens: u64,
    /// Tokens ever fed through the model: prompts without what was cached, and sampled tokens.
    pub computed_tokens: u64,
    /// Generations ever taken out of the batch for want of cache memory, to be computed anew.
    pub preemptions: u64,
}

/// One of several engines, as who spreads requests over them sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Its name: a server's address.
    pub name: String,
    /// False where it is given no requests because it failed.
    pub is_up: bool,
    /// Requests that it was given and that have not ended.
    pub in_flight: u32,
    /// What it says of itself.
    pub load: EngineLoad,
}

/// What stands before engines has done, and what is so now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Balanced {
    /// Turns that are held.
    pub held: u64,
    /// Tokens of the sessions that have a place.
    pub admitted_tokens: u64,
    /// Tokens that are given out; 0: not known, and nothing is held.
    pub capacity_tokens: u64,
    /// Turns that were held.
    pub held_total: u64,
    /// Longest hold that has ended, in seconds.
    pub longest_hold_s: f64,
    /// Idle sessions that lost their place.
    pub paused_total: u64,
    /// Of those, before their lease was over.
    pub displaced_total: u64,
    /// Times that a turn waited on because the budget for that was spent.
    pub short_of_budget_total: u64,
    /// Turns by why their replica was chosen.
    pub placed_total: Vec<(&'static str, u64)>,
}
