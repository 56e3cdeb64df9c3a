//! A server that the policy is sampled from: what clients of every kind know of it, whatever its routes are.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Abort, Reading, Remote, ServerEvents, Shared, State, Wire, watch_load};
use crate::inference::prometheus::Metrics;
use crate::inference::{EngineError, EngineLoad, GenerateRequest, Generation};
use crate::trajectory::PolicyVersion;

/// Events in a generation's channel; a reader that does not keep up slows its own stream down.
const CAPACITY: usize = 64;

/// A server that was connected to.
pub(in crate::inference) struct Server {
    pub(in crate::inference) remote: Remote,
    pub(in crate::inference) shared: Arc<Shared>,
    pub(in crate::inference) patience: Duration,
    /// Tokens that fit, prompt and answer together.
    pub(in crate::inference) window: usize,
    /// Ends the polling of the load.
    _polling: DropGuard,
}

impl Server {
    /// Begins to watch the load of a server that calls its weights, `version`, by this label.
    pub(in crate::inference) fn watch(
        remote: Remote,
        window: u64,
        (label, version): (&str, PolicyVersion),
        patience: Duration,
        load_of: fn(&Metrics<'_>) -> EngineLoad,
    ) -> Self {
        let shared = Arc::new(Shared::new(label, version));
        let cancel = CancellationToken::new();
        tokio::spawn(watch_load(remote.clone(), Arc::clone(&shared), load_of, cancel.clone()));
        Self {
            remote,
            shared,
            patience,
            window: window as usize,
            _polling: cancel.drop_guard(),
        }
    }

    /// What the server is as a generation begins; refuses a prompt that leaves no room.
    pub(in crate::inference) fn begin(&self, request: &GenerateRequest) -> Result<State, EngineError> {
        let (prompt, window) = (request.prompt.len(), self.window);
        if prompt >= window {
            return Err(EngineError::Window { prompt, window });
        }
        Ok(self.shared.state().clone())
    }

    /// Reads the answer to a request that was sent when the server was as `begun` says.
    pub(in crate::inference) fn read(
        &self,
        request: &GenerateRequest,
        begun: State,
        response: Response,
        wire: Box<dyn Wire>,
        abort: Abort,
    ) -> Generation {
        let (events, receiver) = mpsc::channel(CAPACITY);
        let prompt = request.prompt.len();
        let reading = Reading::new(wire, abort, prompt, events, begun, Arc::clone(&self.shared));
        tokio::spawn(reading.run(ServerEvents::of(response), self.remote.clone(), self.patience));
        Generation { events: receiver }
    }

    /// One publication; see `Shared::publication`.
    pub(in crate::inference) async fn publish(
        &self,
        (version, weights): (PolicyVersion, &Path),
        pause: impl Future<Output = Result<(), EngineError>> + Send,
        reload: impl Future<Output = Result<(), EngineError>> + Send,
        resume: impl Future<Output = Result<(), EngineError>> + Send,
    ) -> Result<(), EngineError> {
        self.shared.publication(version, weights, pause, reload, resume).await
    }

    pub(in crate::inference) fn version(&self) -> PolicyVersion {
        self.shared.state().version
    }

    /// The version that the server calls so.
    pub(in crate::inference) fn version_of(&self, label: &str) -> Result<PolicyVersion, EngineError> {
        self.shared.state().version_of(label).map_err(EngineError::Rejected)
    }

    pub(in crate::inference) fn load(&self) -> EngineLoad {
        self.shared.state().load
    }
}

/// Behind a reload: whether the server says that it serves what it was given.
pub(in crate::inference) fn check_label(served: &str, given: &str) -> Result<(), EngineError> {
    if served == given {
        return Ok(());
    }
    Err(EngineError::Rejected(format!(
        "the server says that it serves weights `{served}`, not `{given}`"
    )))
}
