//! `replay`: plays recorded answers as if the policy had sampled them, for demonstrations.
//!
//! It has no log-probs and never makes any up: what it played can be imitated, and nothing else.

mod recording;
#[cfg(test)]
mod tests;

pub use recording::{RecordedCall, RecordedEpisode, RecordedTurn, Recording, RecordingError, SideScript};

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::{
    Engine, EngineError, EngineLoad, EngineUsage, Finish, GenerateRequest, Generation, GenerationEvent, PauseMode,
    TokenDelta,
};
use crate::trajectory::{FinishReason, PolicyVersion, TokenId};

/// Turns a recorded answer into the tokens that the policy would have sampled, its end-of-turn token included.
pub type RenderTurn = Arc<dyn Fn(&RecordedTurn) -> Result<Vec<TokenId>, String> + Send + Sync>;

/// Plays a recording; `RequestOrigin` says which answer is due.
pub struct ReplayEngine {
    recording: Recording,
    render: RenderTurn,
    /// Whether sampling is paused.
    paused: watch::Sender<bool>,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    version: PolicyVersion,
    load: EngineLoad,
    /// Tokens of the answers played so far, by the place of the answer in the recording.
    rendered: HashMap<usize, Vec<TokenId>>,
    /// Generations that wait for `resume`.
    waiting: HashMap<String, CancellationToken>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ReplayEngine {
    /// Plays `recording`.
    pub fn new(recording: Recording, render: RenderTurn) -> Self {
        let (paused, _) = watch::channel(false);
        Self {
            recording,
            render,
            paused,
            state: Arc::default(),
        }
    }

    /// Its tokens; rendered once, however often it is played.
    fn rendered(&self, turn: &RecordedTurn) -> Result<Vec<TokenId>, String> {
        // Where it lies tells it from all others: the recording is never changed.
        let place = std::ptr::from_ref(turn).addr();
        if let Some(ids) = locked(&self.state).rendered.get(&place) {
            return Ok(ids.clone());
        }
        let ids = (self.render)(turn)?;
        locked(&self.state).rendered.insert(place, ids.clone());
        Ok(ids)
    }

    fn answer(&self, request: &GenerateRequest) -> Result<(Vec<TokenId>, FinishReason), EngineError> {
        let origin = &request.origin;
        let missing = |reason: String| EngineError::Recording {
            file: self.recording.file().display().to_string(),
            task: origin.task_id.clone(),
            turn: origin.turn,
            reason,
        };
        let episode = self
            .recording
            .episode(&origin.task_id, origin.episode_index)
            .ok_or_else(|| missing("the task is not recorded".to_owned()))?;
        let turn = episode
            .answer(origin)
            .map_err(|turns| missing(format!("the recorded episode has {turns} turns")))?;
        let mut ids = self
            .rendered(turn)
            .map_err(|reason| missing(format!("it cannot be rendered: {reason}")))?;
        if ids.is_empty() {
            return Err(missing("it renders to no tokens".to_owned()));
        }
        let budget = request.sampling.max_tokens as usize;
        let reason = if ids.len() > budget {
            FinishReason::Length
        } else {
            FinishReason::Stop
        };
        ids.truncate(budget);
        Ok((ids, reason))
    }
}

#[async_trait]
impl Engine for ReplayEngine {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        if request.sampling.max_tokens == 0 {
            return Err(EngineError::Invalid("max_tokens is 0".to_owned()));
        }
        let (ids, reason) = self.answer(&request)?;
        let (events, receiver) = mpsc::channel(2);
        let play = Play {
            ids,
            reason,
            prompt: request.prompt.len() as u32,
            events,
        };
        let mut paused = self.paused.subscribe();
        if *paused.borrow_and_update() {
            let cancel = CancellationToken::new();
            locked(&self.state).waiting.insert(request.id.clone(), cancel.clone());
            let state = Arc::clone(&self.state);
            tokio::spawn(async move {
                let play = tokio::select! {
                    () = cancel.cancelled() => play.aborted(),
                    () = play.events.closed() => play.aborted(),
                    _ = paused.wait_for(|paused| !paused) => play,
                };
                locked(&state).waiting.remove(&request.id);
                play.now(&state);
            });
        } else {
            play.now(&self.state);
        }
        Ok(Generation::of(receiver))
    }

    async fn abort(&self, request_id: &str) {
        if let Some(cancel) = locked(&self.state).waiting.get(request_id) {
            cancel.cancel();
        }
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        self.paused.send_replace(true);
        if mode == PauseMode::Abort {
            locked(&self.state).waiting.values().for_each(CancellationToken::cancel);
        }
        Ok(())
    }

    async fn publish(&self, version: PolicyVersion, _weights: &Path) -> Result<(), EngineError> {
        locked(&self.state).version = version;
        Ok(())
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.paused.send_replace(false);
        Ok(())
    }

    fn version(&self) -> PolicyVersion {
        locked(&self.state).version
    }

    fn load(&self) -> EngineLoad {
        let state = locked(&self.state);
        EngineLoad {
            waiting: state.waiting.len() as u32,
            ..state.load
        }
    }

    fn gives_logprobs(&self) -> bool {
        false
    }

    fn reads_text(&self) -> bool {
        self.recording.has_side()
    }
}

/// An answer on its way out.
struct Play {
    ids: Vec<TokenId>,
    reason: FinishReason,
    prompt: u32,
    events: mpsc::Sender<GenerationEvent>,
}

impl Play {
    fn aborted(self) -> Self {
        Self {
            ids: Vec::new(),
            reason: FinishReason::Abort,
            ..self
        }
    }

    /// Sends everything: the channel has room for it, and a reader that is gone wants nothing.
    fn now(self, state: &Mutex<State>) {
        let usage = EngineUsage {
            prompt: self.prompt,
            cached: 0,
            completion: self.ids.len() as u32,
        };
        let version = {
            let mut state = locked(state);
            state.load.prompt_tokens += u64::from(usage.prompt);
            state.load.sampled_tokens += u64::from(usage.completion);
            state.version
        };
        if !self.ids.is_empty() {
            let delta = TokenDelta {
                ids: self.ids,
                logprobs: None,
                version,
            };
            let _ = self.events.try_send(GenerationEvent::Tokens(delta));
        }
        let finish = Finish {
            reason: self.reason,
            usage,
            error: None,
            routing: None,
            rejected: false,
        };
        let _ = self.events.try_send(GenerationEvent::Finished(finish));
    }
}
