//! The question of how much of a prompt is cached.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a replica how many tokens of a turn's prompt it has cached; `None`: it cannot say.
#[derive(Clone)]
pub struct Probe(Arc<dyn Fn() -> BoxFuture<'static, Option<u64>> + Send + Sync>);

impl Probe {
    /// One that asks so.
    pub fn new(ask: impl Fn() -> BoxFuture<'static, Option<u64>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    /// No answer in time is none.
    pub(super) async fn ask(self) -> Option<u64> {
        tokio::time::timeout(PATIENCE, (self.0)()).await.ok().flatten()
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe").finish_non_exhaustive()
    }
}
