//! The pool: so many trials at a time, in the order given; episodes arrive as they end.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use futures_util::{Stream, StreamExt as _, stream};
use tokio_util::sync::CancellationToken;

use super::{RolloutEvent, TrialContext, TrialPlan};
use crate::config::TailKill;
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
    let tail = Tail::new(context.tail_kill, plans.len(), &context.cancel);
    let all = plans.len();
    let mut running = stream::iter(plans)
        .take_while(|_| std::future::ready(!stop.is_cancelled()))
        .map(|plan| {
            let context = Arc::clone(context);
            let cancel = tail.cancel.clone();
            tail.begins();
            async move { context.run(TrialPlan { cancel, ..plan }, queued).await }
        })
        .buffer_unordered(concurrency.max(1));
    let mut ended = 0;
    while let Some(episode) = tail.next(&mut running, ended, all).await {
        ended += 1;
        accept(episode)?;
    }
    Ok(())
}

/// The last trials of a step, which the others wait for.
struct Tail {
    rule: Option<TailKill>,
    /// Trials that have not begun.
    waiting: Cell<usize>,
    /// Since when they are the last.
    since: Cell<Option<Instant>>,
    /// Ends those that run.
    cancel: CancellationToken,
}

impl Tail {
    fn new(rule: Option<TailKill>, trials: usize, parent: &CancellationToken) -> Self {
        Self {
            rule: rule.filter(|rule| trials >= rule.min_trials as usize),
            waiting: Cell::new(trials),
            since: Cell::new(None),
            cancel: parent.child_token(),
        }
    }

    fn begins(&self) {
        self.waiting.set(self.waiting.get().saturating_sub(1));
    }

    /// The next that ends. Where it is a straggler, it has so long and no longer.
    async fn next<T>(&self, running: &mut (impl Stream<Item = T> + Unpin), ended: usize, all: usize) -> Option<T> {
        // The first look begins them all.
        let first = std::future::poll_fn(|context| Poll::Ready(running.poll_next_unpin(context))).await;
        if let Poll::Ready(next) = first {
            return next;
        }
        let is_tail = |rule: &TailKill| self.waiting.get() == 0 && ended as f64 >= rule.share * all as f64;
        if let Some(rule) = self.rule.filter(is_tail)
            && !self.cancel.is_cancelled()
        {
            let since = self.since.get().unwrap_or_else(Instant::now);
            self.since.set(Some(since));
            let left = rule.grace.0.saturating_sub(since.elapsed());
            match tokio::time::timeout(left, running.next()).await {
                Ok(next) => return next,
                Err(_) => self.cancel.cancel(),
            }
        }
        running.next().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use super::*;
    use crate::config::HumanDuration;

    /// What ends of trials of which the last two run until they are cancelled.
    async fn ended(share: f64, min_trials: u32) -> Vec<usize> {
        let rule = TailKill {
            min_trials,
            share,
            grace: HumanDuration::from_secs(0),
        };
        let tail = Tail::new(Some(rule), 10, &CancellationToken::new());
        let trials = stream::iter(0..10)
            .map(|at| {
                tail.begins();
                let cancel = tail.cancel.clone();
                async move {
                    if at >= 8 {
                        cancel.cancelled().await;
                    }
                    at
                }
            })
            .buffer_unordered(3);
        let mut trials = pin!(trials);
        let mut seen = Vec::new();
        let all = async {
            while let Some(at) = tail.next(&mut trials, seen.len(), 10).await {
                seen.push(at);
            }
        };
        let _ = tokio::time::timeout(Duration::from_millis(300), all).await;
        seen
    }

    #[tokio::test]
    async fn stragglers_end_once_enough_others_have() {
        let all: Vec<usize> = (0..10).collect();
        assert_eq!(ended(0.8, 10).await, all);
        // Not enough have ended, or there are too few for any to be late.
        assert_eq!(ended(0.9, 10).await, all[..8]);
        assert_eq!(ended(0.8, 11).await, all[..8]);
    }
}
