//! From arguments to the library's pipeline: the one place that the commands call it from.

mod balance;
mod build;
mod export;
mod failures;
mod follow;
mod models;
mod plan;
mod predictions;
mod prepare;
mod rollout;
mod serve;
mod train;
mod watch;

pub(crate) use balance::{balance, replicas_of};
pub(crate) use build::build;
pub(crate) use export::export;
pub(crate) use failures::LISTEN;
pub(crate) use follow::follow;
pub(crate) use models::{cached_models, fetch_models};
pub(crate) use plan::plan;
pub(crate) use prepare::{convert, measure, validate};
pub(crate) use rollout::{purge, reap, rollout};
pub(crate) use serve::{replay, serve, serve_in_background};
pub(crate) use train::train;

use std::future::Future;
use std::time::{Duration, Instant};

use lego::pipeline::{PipelineError, StackOptions};
use lego::preflight::{Context, Report, run_all};
use lego::sandbox::local::{LocalBackend, LocalOptions};

use crate::failure::Failure;
use crate::output::Printer;
use crate::signals::Stop;

/// How long the sandboxes of a run that was told to leave at once may take to end.
const ENDING: Duration = Duration::from_secs(10);

/// Every check of a run, the live ones too.
pub(crate) fn preflight(context: Context<'_>, only: &[String]) -> Result<Report, Failure> {
    let options = stack_options()?;
    let runtime = tokio::runtime::Runtime::new()?;
    Ok(runtime.block_on(run_all(context, &options.init_exe, only)))
}

/// What the pipeline needs beside the configuration.
fn stack_options() -> Result<StackOptions, Failure> {
    let init_exe = std::env::current_exe()
        .map_err(|error| Failure::unavailable("cannot find this program's own file").source(error))?;
    Ok(StackOptions::here(init_exe))
}

/// Runs something that can be asked to stop, and says at once what it then waits for. `None`: it was told to leave at
/// once, or before it had begun.
fn until_stopped<T, F: Future<Output = Result<T, PipelineError>>>(
    printer: &Printer,
    waits_for: &'static str,
    work: impl FnOnce(Stop) -> F,
) -> Result<Option<Result<T, PipelineError>>, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::unavailable("cannot start the runtime").source(error))?;
    let ended = runtime.block_on(async {
        let stop =
            Stop::on_signals().map_err(|error| Failure::unavailable("cannot listen to signals").source(error))?;
        let (finish, now, told) = (stop.finish.clone(), stop.now.clone(), printer.clone());
        let asked = finish.clone();
        let telling = tokio::spawn(async move {
            asked.cancelled().await;
            told.note(format_args!(
                "stopping: waits for {waits_for}; a second signal stops at once"
            ));
        });
        let ended = tokio::select! {
            result = work(stop) => match result {
                Err(PipelineError::Stopped) => None,
                result => Some(result),
            },
            () = now.cancelled() => None,
        };
        if finish.is_cancelled() {
            // Nothing is said behind how it ended, and nothing is left out.
            let _ = telling.await;
        }
        Ok::<_, Failure>(ended)
    });
    if matches!(ended, Ok(None)) {
        sandboxes_end()?;
    }
    // A computation that cannot be interrupted must not hold up the end.
    runtime.shutdown_background();
    ended
}

/// Waits until the sandboxes of the work that was dropped are gone: the runtime still ends them. What is left after
/// the bound is the next start's to remove.
fn sandboxes_end() -> Result<(), Failure> {
    let options = stack_options()?;
    let backend = LocalBackend::new(LocalOptions::new(options.init_exe, options.scratch));
    let began = Instant::now();
    while began.elapsed() < ENDING && backend.own().is_ok_and(|left| !left.is_empty()) {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
