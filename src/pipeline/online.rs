//! Online training: opens the run, starts what it needs, and goes on in turns or side by side.

use std::sync::Arc;

use super::PipelineError;
use super::asynchronous;
use super::blocking::blocking;
use super::run::{OpenRun, RunEnd};
use super::training::{Online, OnlineJob};
use super::watchdog::watched;

/// Trains until the last step, or until it is asked to stop.
pub async fn train_online(mut job: OnlineJob) -> Result<RunEnd, PipelineError> {
    let (observer, _watchdog) = watched(&job.observer, job.loaded.config.run.no_progress.0);
    job.observer = observer;
    let observer = Arc::clone(&job.observer);
    let (loaded, fresh) = (job.loaded.clone(), job.fresh);
    let mut run = blocking(move || OpenRun::open(&loaded, fresh, &observer)).await??;
    let ended = Online::start(&job, &run).await;
    let result = match ended {
        Ok(online) => {
            let result = if job.loaded.config.r#async.enabled {
                asynchronous::steps(&online, &job, &mut run).await
            } else {
                online.steps(&job, &mut run).await
            };
            online.stack.close().await;
            result
        }
        Err(error) => Err(error),
    };
    run.conclude(result)
}
