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
    /// No token may come, and no reader may lose patience.
    paused: AtomicBool,
    /// Paused at a caller's wish, who goes on: a publication does not.
    held: AtomicBool,
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
            held: AtomicBool::new(false),
        }
    }

    pub(in crate::inference) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::inference) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Relaxed)
    }

    /// Pauses until `go_on`. What fails is undone.
    pub(in crate::inference) async fn hold(
        &self,
        pause: impl Future<Output = Result<(), EngineError>> + Send,
        resume: impl Future<Output = Result<(), EngineError>> + Send,
    ) -> Result<(), EngineError> {
        if let Err(error) = self.pause(pause).await {
            self.undo(resume).await;
            return Err(error);
        }
        self.held.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends `hold`.
    pub(in crate::inference) async fn go_on(
        &self,
        resume: impl Future<Output = Result<(), EngineError>> + Send,
    ) -> Result<(), EngineError> {
        resume.await?;
        self.held.store(false, Ordering::Relaxed);
        self.paused.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// One publication: pauses unless the server is held already, reloads, and goes on whatever came of it.
    pub(in crate::inference) async fn publication(
        &self,
        version: PolicyVersion,
        weights: &Path,
        pause: impl Future<Output = Result<(), EngineError>> + Send,
        reload: impl Future<Output = Result<(), EngineError>> + Send,
        resume: impl Future<Output = Result<(), EngineError>> + Send,
    ) -> Result<(), EngineError> {
        let held = self.held.load(Ordering::Relaxed);
        self.state().publications += 1;
        if !held && let Err(error) = self.pause(pause).await {
            self.undo(resume).await;
            return Err(error);
        }
        let reloaded = reload.await;
        if reloaded.is_ok() {
            let mut state = self.state();
            state.version = version;
            // A server that calls its weights so again has lost those that were published: it was started anew.
            state.first_label = None;
        }
        let resumed = if held { Ok(()) } else { resume.await };
        // A server that could not go on is no longer waited for: its readers may lose patience.
        self.paused.store(held, Ordering::Relaxed);
        reloaded.map_err(|error| EngineError::Weights {
            path: weights.display().to_string(),
            reason: error.to_string(),
        })?;
        resumed
    }

    /// The flag goes first, since no token may come from the request on.
    async fn pause(&self, pause: impl Future<Output = Result<(), EngineError>> + Send) -> Result<(), EngineError> {
        self.paused.store(true, Ordering::Relaxed);
        pause.await
    }

    /// Behind a pause that failed: it may have paused nevertheless.
    async fn undo(&self, resume: impl Future<Output = Result<(), EngineError>> + Send) {
        if let Err(error) = resume.await {
            tracing::warn!(%error, "the engine could neither pause nor go on");
        }
        self.paused.store(false, Ordering::Relaxed);
    }
}
