//! What running generations know of their server: its weights, its load, whether it is paused.

use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::inference::{EngineError, EngineLoad};
use crate::trajectory::PolicyVersion;

/// What running generations look at.
#[derive(Debug)]
pub(in crate::inference) struct Shared {
    state: Mutex<State>,
    pub(in crate::inference) paused: AtomicBool,
}

#[derive(Debug, Clone)]
pub(in crate::inference) struct State {
    pub(in crate::inference) version: PolicyVersion,
    /// What the server calls the weights that it had at first, until others are published.
    first_label: Option<String>,
    first_version: PolicyVersion,
    /// Publications that have begun.
    pub(in crate::inference) publications: u64,
    pub(in crate::inference) load: EngineLoad,
}

impl State {
    /// The version that the server calls so.
    pub(in crate::inference) fn version_of(&self, label: &str) -> Result<PolicyVersion, String> {
        if self.first_label.as_deref() == Some(label) {
            return Ok(self.first_version);
        }
        label
            .parse()
            .map_err(|_| format!("weights `{label}` were not published from here"))
    }
}

impl Shared {
    /// Of a server that calls the weights that it serves now, `version`, by this name.
    pub(in crate::inference) fn new(label: &str, version: PolicyVersion) -> Self {
        Self {
            state: Mutex::new(State {
                version,
                first_label: Some(label.to_owned()),
                first_version: version,
                publications: 0,
                load: EngineLoad::default(),
            }),
            paused: AtomicBool::new(false),
        }
    }

    pub(in crate::inference) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One publication: pauses unless the server is paused already, reloads, and goes on whatever came of it.
    pub(in crate::inference) async fn publication(
        &self,
        version: PolicyVersion,
        weights: &Path,
        pause: impl Future<Output = Result<(), EngineError>> + Send,
        reload: impl Future<Output = Result<(), EngineError>> + Send,
        resume: impl Future<Output = Result<(), EngineError>> + Send,
    ) -> Result<(), EngineError> {
        let was_paused = self.paused.load(Ordering::Relaxed);
        self.state().publications += 1;
        if !was_paused {
            pause.await?;
        }
        let reloaded = reload.await;
        if reloaded.is_ok() {
            let mut state = self.state();
            state.version = version;
            // A server that calls its weights so again has lost those that were published: it was started anew.
            state.first_label = None;
        }
        let resumed = if was_paused { Ok(()) } else { resume.await };
        reloaded.map_err(|error| EngineError::Weights {
            path: weights.display().to_string(),
            reason: error.to_string(),
        })?;
        resumed
    }
}
