//! What the scheduler's thread and the asynchronous side both see.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use crate::inference::EngineLoad;
use crate::trajectory::PolicyVersion;

/// Counters and the served version.
#[derive(Default)]
pub(super) struct Shared {
    version: Mutex<PolicyVersion>,
    admitted: AtomicUsize,
    pub(super) running: AtomicUsize,
    pub(super) waiting: AtomicUsize,
    pub(super) kv_used: AtomicUsize,
    pub(super) prompt_tokens: AtomicU64,
    pub(super) cached_tokens: AtomicU64,
    pub(super) sampled_tokens: AtomicU64,
    pub(super) computed_tokens: AtomicU64,
    pub(super) preemptions: AtomicU64,
}

impl Shared {
    pub(super) fn version(&self) -> PolicyVersion {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_version(&self, version: PolicyVersion) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = version;
    }

    pub(super) fn load(&self, kv_capacity: usize) -> EngineLoad {
        EngineLoad {
            running: self.running.load(Relaxed) as u32,
            waiting: self.waiting.load(Relaxed) as u32,
            kv_used: self.kv_used.load(Relaxed) as u64,
            kv_capacity: kv_capacity as u64,
            prompt_tokens: self.prompt_tokens.load(Relaxed),
            cached_tokens: self.cached_tokens.load(Relaxed),
            sampled_tokens: self.sampled_tokens.load(Relaxed),
            computed_tokens: self.computed_tokens.load(Relaxed),
            preemptions: self.preemptions.load(Relaxed),
        }
    }
}

/// One of the places for generations that run or wait; dropping it frees the place.
pub(super) struct Admission(Arc<Shared>);

impl Admission {
    /// A place, if one of `places` is free.
    pub(super) fn take(shared: &Arc<Shared>, places: usize) -> Option<Self> {
        shared
            .admitted
            .fetch_update(Relaxed, Relaxed, |taken| (taken < places).then_some(taken + 1))
            .ok()
            .map(|_| Self(Arc::clone(shared)))
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.0.admitted.fetch_sub(1, Relaxed);
    }
}
