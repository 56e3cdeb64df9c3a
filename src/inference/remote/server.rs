//! A server that the policy is sampled from: what clients of every kind know of it, whatever its routes are.

use std::sync::Arc;
use std::time::Duration;

use reqwest::Response;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{Abort, Asked, Asking, Reading, Remote, RemoteOptions, Shared, State, Wire, watch_load};
use crate::inference::prometheus::Metrics;
use crate::inference::{EngineError, EngineLoad, GenerateRequest, Generation};
use crate::trajectory::{Experts, PolicyVersion};

/// A server that was connected to.
pub(in crate::inference) struct Server {
    pub(in crate::inference) remote: Remote,
    pub(in crate::inference) shared: Arc<Shared>,
    pub(in crate::inference) patience: Duration,
    /// Tokens that fit, prompt and answer together.
    pub(in crate::inference) window: usize,
    /// The shape of its mixture of experts.
    experts: Option<Experts>,
    /// Ends the polling of the load.
    _polling: DropGuard,
}

impl Server {
    /// Begins to watch the load of a server that calls the weights that it has at first by this label.
    pub(in crate::inference) fn watch(
        remote: Remote,
        window: u64,
        label: &str,
        options: &RemoteOptions,
        load_of: fn(&Metrics<'_>) -> EngineLoad,
    ) -> Self {
        let shared = Arc::new(Shared::new(label, options.version));
        let cancel = CancellationToken::new();
        tokio::spawn(watch_load(remote.clone(), Arc::clone(&shared), load_of, cancel.clone()));
        Self {
            remote,
            shared,
            patience: options.patience,
            window: window as usize,
            experts: options.experts,
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
        let asked = request.routing_from.zip(self.experts);
        let asking = Asking {
            wire,
            abort,
            prompt: request.prompt.len(),
            routing: asked.map(|(from, experts)| Asked { from, experts }),
        };
        let server = (self.remote.clone(), self.patience);
        Generation::read_from(Reading::new(asking, response, server, begun, Arc::clone(&self.shared)))
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
