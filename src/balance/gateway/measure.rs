//! What a gateway counts and estimates.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

use super::Inner;
use super::pool::lock;

/// Counters since the gateway began.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By status.
    answers: Mutex<BTreeMap<u16, u64>>,
    pub(super) retried: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) in_flight: AtomicUsize,
}

impl Counts {
    pub(super) fn answer(&self, status: u16) {
        *lock(&self.answers).entry(status).or_default() += 1;
    }
}

/// Tokens of a byte of a request, as the replicas count them.
#[derive(Debug)]
pub(super) struct Ratio(AtomicU64);

impl Default for Ratio {
    fn default() -> Self {
        // Four bytes a token, until something is known.
        Self(AtomicU64::new(0.25_f64.to_bits()))
    }
}

impl Ratio {
    const NEWEST: f64 = 0.1;
    /// A shorter request says little.
    const TELLING: usize = 512;

    pub(super) fn of(&self) -> f64 {
        f64::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(super) fn tokens(&self, bytes: usize) -> u64 {
        (bytes as f64 * self.of()) as u64
    }

    pub(super) fn saw(&self, bytes: usize, tokens: u64) {
        if bytes < Self::TELLING {
            return;
        }
        let (old, seen) = (self.of(), tokens as f64 / bytes as f64);
        let new = old + Self::NEWEST * (seen.clamp(0.05, 2.0) - old);
        // Two at once: one of them counts.
        self.0.store(new.to_bits(), Ordering::Relaxed);
    }
}

/// How many requests may be sent again: a share of those that were sent, and as many at once as a lost replica needs.
#[derive(Debug)]
pub(super) struct Retries(AtomicI64);

impl Default for Retries {
    fn default() -> Self {
        Self(AtomicI64::new(Self::MOST))
    }
}

impl Retries {
    /// In fifths of a retry.
    const MOST: i64 = 5 * 1024;
    const PRICE: i64 = 5;

    pub(super) fn earn(&self) {
        if self.0.load(Ordering::Relaxed) < Self::MOST {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn take(&self) -> bool {
        let left = |left: i64| (left >= Self::PRICE).then_some(left - Self::PRICE);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }
}

impl Inner {
    /// The exposition format of Prometheus, version 0.0.4.
    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, f64)>| {
            let _ = writeln!(
                text,
                "# HELP lego_balance_{name} {help}\n# TYPE lego_balance_{name} {kind}"
            );
            for (labels, value) in samples {
                let _ = writeln!(text, "lego_balance_{name}{labels} {value}");
            }
        };
        let label = |key: &str, value: &str| format!("{{{key}=\"{}\"}}", value.replace(['"', '\\', '\n'], "_"));
        let count = |value: &AtomicU64| value.load(Ordering::Relaxed) as f64;
        let answers = lock(&self.counts.answers).clone();
        let answers = answers
            .iter()
            .map(|(status, count)| (label("status", &status.to_string()), *count as f64));
        family("answers_total", "counter", "Answers by status", answers.collect());
        let placed = lock(&self.pool.placed).clone();
        let placed = placed
            .iter()
            .map(|(reason, count)| (label("reason", reason.name()), *count as f64));
        family(
            "placed_total",
            "counter",
            "Turns by why their replica was chosen",
            placed.collect(),
        );
        let alone = |value: f64| vec![(String::new(), value)];
        family(
            "retried_total",
            "counter",
            "Requests sent again elsewhere",
            alone(count(&self.counts.retried)),
        );
        family(
            "refused_total",
            "counter",
            "Requests refused because too many run",
            alone(count(&self.counts.refused)),
        );
        let running = self.counts.in_flight.load(Ordering::Relaxed) as f64;
        family("requests", "gauge", "Requests that wait or run", alone(running));
        let sessions = lock(&self.pool.placement).sessions().count();
        family(
            "sessions",
            "gauge",
            "Sessions that are remembered",
            alone(sessions as f64),
        );
        let all = self.pool.all();
        let rows = self.pool.rows();
        let of_rows = |value: &dyn Fn(&super::ReplicaRow) -> f64| {
            rows.iter()
                .map(|row| (label("replica", &row.replica), value(row)))
                .collect()
        };
        let is_healthy = |row: &super::ReplicaRow| f64::from(u8::from(row.state == "healthy"));
        family(
            "replica_healthy",
            "gauge",
            "Whether it is given new sessions",
            of_rows(&is_healthy),
        );
        family(
            "replica_sessions",
            "gauge",
            "Sessions with it",
            of_rows(&|row| row.sessions as f64),
        );
        family(
            "replica_requests",
            "gauge",
            "Requests that it works on",
            of_rows(&|row| row.requests.into()),
        );
        let counted = |value: &dyn Fn(&super::pool::Replica) -> f64| {
            all.iter().map(|one| (label("replica", &one.url), value(one))).collect()
        };
        family(
            "replica_answered_total",
            "counter",
            "Answers of it",
            counted(&|one| count(&one.answered)),
        );
        family(
            "replica_failed_total",
            "counter",
            "Requests that it failed",
            counted(&|one| count(&one.failed)),
        );
        let figures: Vec<_> = all
            .iter()
            .filter_map(|one| Some((label("replica", &one.url), one.hold.as_ref()?.figures())))
            .collect();
        if figures.is_empty() {
            return text;
        }
        let mut of_holds =
            |name: &str, kind: &str, help: &str, value: &dyn Fn(&super::super::hold::HoldFigures) -> f64| {
                let samples = figures.iter().map(|(labels, figures)| (labels.clone(), value(figures)));
                family(name, kind, help, samples.collect());
            };
        of_holds("held", "gauge", "Turns that are held", &|one| one.waiting as f64);
        of_holds("admitted_tokens", "gauge", "Tokens of sessions with a place", &|one| {
            one.admitted as f64
        });
        of_holds(
            "capacity_tokens",
            "gauge",
            "Tokens that are given out; 0: unknown",
            &|one| one.capacity as f64,
        );
        of_holds("held_total", "counter", "Turns that were held", &|one| {
            one.stats.held as f64
        });
        of_holds("longest_hold_seconds", "gauge", "Longest hold that has ended", &|one| {
            one.stats.longest_hold
        });
        of_holds(
            "paused_total",
            "counter",
            "Idle sessions that lost their place",
            &|one| one.stats.paused as f64,
        );
        of_holds(
            "displaced_total",
            "counter",
            "Of those, before their lease was over",
            &|one| one.stats.displaced as f64,
        );
        of_holds(
            "short_of_budget_total",
            "counter",
            "Times that the budget held an overdue turn",
            &|one| one.stats.short_of_budget as f64,
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_and_a_stock() {
        let retries = Retries::default();
        assert!((0..1024).all(|_| retries.take()) && !retries.take());
        for _ in 0..5 {
            retries.earn();
        }
        assert!(retries.take() && !retries.take());
    }

    #[test]
    fn the_ratio_follows_what_replicas_count() {
        let ratio = Ratio::default();
        assert_eq!(ratio.tokens(4_000), 1_000);
        ratio.saw(10, 10);
        assert_eq!(ratio.tokens(4_000), 1_000);
        for _ in 0..100 {
            ratio.saw(3_000, 1_000);
        }
        assert!((ratio.of() - 1.0 / 3.0).abs() < 1e-3);
    }
}
