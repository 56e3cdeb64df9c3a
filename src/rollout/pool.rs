//! The pool: so many trials at a time, in the order given; episodes arrive as they end.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{RolloutEvent, TrialContext, TrialPlan};
use crate::trajectory::Episode;

/// Runs the trials, `concurrency` at a time, and hands each episode over as soon as it has ended.
///
/// Every plan yields one episode, unless `stop` fires before its trial began. What `accept` returns as an error
/// ends the rollout: the trials that run are dropped, and with them their sandboxes.
pub async fn run_all<E>(
    context: &Arc<TrialContext>,
    plans: Vec<TrialPlan>,
    concurrency: usize,
    stop: &CancellationToken,
    mut accept: impl FnMut(Episode) -> Result<(), E>,
) -> Result<(), E> {
    (context.observer)(RolloutEvent::Planned { trials: plans.len() });
    let queued = Instant::now();
    let mut running = stream::iter(plans)
        .take_while(|_| std::future::ready(!stop.is_cancelled()))
        .map(|plan| {
            let context = Arc::clone(context);
            async move { context.run(plan, queued).await }
        })
        .buffer_unordered(concurrency.max(1));
    while let Some(episode) = running.next().await {
        accept(episode)?;
    }
    Ok(())
}
