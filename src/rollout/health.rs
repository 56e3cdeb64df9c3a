//! Waits until an environment says that it is ready.

use std::time::{Duration, Instant};

use super::outcome::Failure;
use crate::sandbox::{ExecRequest, Sandbox};
use crate::task::Healthcheck;

/// Runs the check until it succeeds. As for an image's own: failures of the start period do not count, and `retries`
/// in a row after it mean that the environment is broken.
///
/// # Errors
/// Where it is broken, or not ready within `bound`: the environment's failure.
pub(super) async fn wait(sandbox: &dyn Sandbox, check: Option<&Healthcheck>, bound: Duration) -> Result<(), Failure> {
    let Some(check) = check else { return Ok(()) };
    let began = Instant::now();
    let mut failures = 0;
    loop {
        let starting = began.elapsed() < check.start_period_sec.duration();
        let mut request = ExecRequest::shell(&check.command);
        request.timeout = check.timeout_sec.duration().min(bound);
        let limit = request.timeout;
        let ran = sandbox.exec(request).await.map_err(|error| Failure::setup(&error))?;
        if ran.exit_code == 0 {
            return Ok(());
        }
        failures += u32::from(!starting);
        let pause = if starting {
            check.start_interval_sec.duration()
        } else {
            check.interval_sec.duration()
        };
        if failures >= check.retries.max(1) || began.elapsed() + pause > bound {
            let last = if ran.timed_out {
                format!("it did not end within {limit:?}")
            } else {
                format!("with exit code {}", ran.exit_code)
            };
            return Err(Failure::not_ready(format!(
                "the environment is not ready: `{}` failed {failures} times after its start period, last {last}: {}",
                check.command,
                ran.output.trim()
            )));
        }
        tokio::time::sleep(pause).await;
    }
}
