//! From arguments to the library's pipeline: the one place that the commands call it from.

mod failures;
mod rollout;
mod serve;
mod train;
mod watch;

pub(crate) use rollout::{reap, rollout};
pub(crate) use serve::{replay, serve, serve_in_background};
pub(crate) use train::train;

use std::future::Future;

use lego::pipeline::StackOptions;

use crate::failure::Failure;
use crate::signals::Stop;

/// What the pipeline needs beside the configuration.
fn stack_options() -> Result<StackOptions, Failure> {
    let init_exe = std::env::current_exe()
        .map_err(|error| Failure::unavailable("cannot find this program's own file").source(error))?;
    Ok(StackOptions::here(init_exe))
}

/// Runs something that can be asked to stop. `None`: it was told to leave at once.
fn until_stopped<T, F: Future<Output = T>>(work: impl FnOnce(Stop) -> F) -> Result<Option<T>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unavailable("cannot start the runtime").source(error))?;
    let ended = runtime.block_on(async {
        let stop =
            Stop::on_signals().map_err(|error| Failure::unavailable("cannot listen to signals").source(error))?;
        let now = stop.now.clone();
        Ok::<_, Failure>(tokio::select! {
            result = work(stop) => Some(result),
            () = now.cancelled() => None,
        })
    });
    // A computation that cannot be interrupted must not hold up the end.
    runtime.shutdown_background();
    ended
}
