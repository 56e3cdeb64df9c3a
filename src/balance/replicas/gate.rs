//! The way of generations into a replica, which is closed while it loads weights.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// Longest wait of a turn before a gate: generations that end first, and a load.
pub(super) const LONGEST: Duration = Duration::from_hours(2);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Gate {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    closed: bool,
    /// Generations that run.
    inside: usize,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Generations that run behind it.
    pub(super) fn inside(&self) -> usize {
        self.state().inside
    }

    /// Waits while it is closed.
    pub(super) async fn pass(self: &Arc<Self>) -> Inside {
        let enter = |state: &mut State| {
            let enters = !state.closed;
            state.inside += usize::from(enters);
            enters
        };
        self.until(enter).await;
        Inside(Arc::clone(self))
    }

    /// Lets none in until this is dropped.
    pub(super) fn close(self: &Arc<Self>) -> Closed {
        self.state().closed = true;
        Closed(Arc::clone(self))
    }

    /// Waits until no generation runs behind it.
    pub(super) async fn emptied(&self) {
        self.until(|state| state.inside == 0).await;
    }

    async fn until(&self, mut holds: impl FnMut(&mut State) -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if holds(&mut self.state()) {
                return;
            }
            changed.await;
        }
    }
}

/// A generation that runs.
#[derive(Debug)]
pub(super) struct Inside(Arc<Gate>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.state().inside -= 1;
        self.0.changed.notify_waiters();
    }
}

/// A gate is closed as long as this is there.
#[derive(Debug)]
pub(super) struct Closed(Arc<Gate>);

impl Drop for Closed {
    fn drop(&mut self) {
        self.0.state().closed = false;
        self.0.changed.notify_waiters();
    }
}
