//! How turns are held: what `[balance]` says, and the scheduler that follows from it.

use std::time::Duration;

use crate::balance::scheduler::{Lease, LeaseSettings, Scheduler, Watermark, WatermarkSettings};
use crate::config::{BalanceSection, SessionScheduler};

/// Tokens of a prompt that a replica computes in a second, until it has been seen doing so.
const PREFILL_RATE: f64 = 5_000.0;

/// How turns are held.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldSettings {
    /// By which scheduler.
    pub rule: HoldRule,
    /// Tokens of the cache; `None`: what the replica says.
    pub capacity: Option<u64>,
    /// See `[balance]` in run.toml.
    pub max_hold: Duration,
    /// See `[balance]` in run.toml.
    pub idle_ttl: Duration,
}

/// The scheduler of a hold, with what it alone needs: see `[balance]` in run.toml.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum HoldRule {
    /// [`Lease`].
    Lease {
        /// How long an idle session keeps its place.
        lease: Duration,
        /// Share of the time that displacing may cost.
        tax: f64,
    },
    /// [`Watermark`].
    Watermark {
        /// Share of the cache.
        high: f64,
        /// Share of a prompt.
        hit: f64,
        /// How long an idle session keeps its reservation.
        grace: Duration,
    },
}

impl HoldSettings {
    /// Of a run; `None` where nothing is to be held.
    pub fn of(section: &BalanceSection) -> Option<Self> {
        let rule = match section.scheduler {
            SessionScheduler::Off => return None,
            SessionScheduler::Lease => HoldRule::Lease {
                lease: section.lease.0,
                tax: section.tax,
            },
            SessionScheduler::Watermark => HoldRule::Watermark {
                high: section.high_watermark,
                hit: section.hit_threshold,
                grace: section.idle_grace.0,
            },
        };
        Some(Self {
            rule,
            capacity: section.capacity,
            max_hold: section.max_hold.0,
            idle_ttl: section.idle_ttl.0,
        })
    }

    /// A turn that nobody lets go in this time never will be: the longest that a caller has to wait for.
    pub fn longest(&self) -> Duration {
        self.max_hold * 2
    }

    /// For a replica that gives out so many tokens.
    pub(in crate::balance) fn scheduler(&self, capacity: u64) -> Box<dyn Scheduler> {
        let max_hold = self.max_hold.as_secs_f64();
        match self.rule {
            HoldRule::Lease { lease, tax } => Box::new(Lease::new(LeaseSettings {
                capacity,
                lease: lease.as_secs_f64(),
                max_hold,
                tax,
                prefill_rate: PREFILL_RATE,
            })),
            HoldRule::Watermark { high, hit, grace } => Box::new(Watermark::new(WatermarkSettings {
                capacity,
                high,
                hit,
                grace: grace.as_secs_f64(),
                max_hold,
            })),
        }
    }
}
