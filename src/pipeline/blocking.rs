//! Long computations, off the threads that serve requests.

use super::PipelineError;

/// Runs a computation on a thread of its own and waits for it. Its bound is the computation's own work.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, PipelineError> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| PipelineError::Worker(error.to_string()))
}
