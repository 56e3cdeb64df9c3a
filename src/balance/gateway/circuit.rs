//! Whether a replica is given requests: by its answers to probes, and by how requests end.

use std::time::{Duration, Instant};

/// Probes without an answer after which it is out.
const MISSES: u32 = 2;
/// Answers after which it is back.
const HITS: u32 = 2;
/// Requests in a row that failed after which it is given none for a while.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Health {
    /// No probe was answered yet.
    Starting,
    /// It answers.
    Up,
    /// It does not.
    Out,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Circuit {
    pub(super) health: Health,
    misses: u32,
    hits: u32,
    failures: u32,
    /// Since requests failed; until then it is given none, and then one.
    open_until: Option<Instant>,
    pause: Duration,
    trying: bool,
    /// What was seen last.
    pub(super) reason: Option<String>,
}

impl Default for Circuit {
    fn default() -> Self {
        Self {
            health: Health::Starting,
            misses: 0,
            hits: 0,
            failures: 0,
            open_until: None,
            pause: FIRST_PAUSE,
            trying: false,
            reason: None,
        }
    }
}

impl Circuit {
    /// A probe was answered. True: it is up from now on.
    pub(super) fn hit(&mut self) -> bool {
        self.misses = 0;
        self.hits += 1;
        let back = match self.health {
            Health::Up => false,
            Health::Starting => true,
            Health::Out => self.hits >= HITS,
        };
        if back {
            // What failed before says nothing of what it is now.
            *self = Self {
                health: Health::Up,
                ..Self::default()
            };
        }
        back
    }

    /// A probe was not. True: it is out from now on.
    pub(super) fn miss(&mut self, reason: String) -> bool {
        self.hits = 0;
        self.misses += 1;
        self.reason = Some(reason);
        let out = self.health == Health::Up && self.misses >= MISSES;
        if out {
            self.health = Health::Out;
        }
        out
    }

    /// Whether it may be given a request now.
    pub(super) fn takes(&self, now: Instant) -> bool {
        self.health == Health::Up && self.open_until.is_none_or(|until| now >= until && !self.trying)
    }

    /// Whether requests failed and it is given none, or one at a time.
    pub(super) fn is_open(&self) -> bool {
        self.open_until.is_some()
    }

    /// When it may be given one again.
    pub(super) fn open_for(&self, now: Instant) -> Option<Duration> {
        Some(self.open_until?.saturating_duration_since(now))
    }

    /// A request goes there.
    pub(super) fn begin(&mut self) {
        self.trying = self.open_until.is_some();
    }

    /// It answered: whatever it said of the request is the client's business.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
        self.trying = false;
        self.pause = FIRST_PAUSE;
        if self.open_until.take().is_some() {
            self.reason = None;
        }
    }

    /// It failed. True: it is given none from now on.
    pub(super) fn failed(&mut self, now: Instant, reason: String) -> bool {
        self.failures += 1;
        self.reason = Some(reason);
        let half_open = std::mem::take(&mut self.trying);
        if half_open {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
        let opens = half_open || (self.failures >= FAILURES && self.open_until.is_none());
        if opens {
            self.open_until = Some(now + self.pause);
        }
        opens
    }

    /// Its client went away: nothing is known of the replica.
    pub(super) fn abandoned(&mut self) {
        self.trying = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_two_misses_to_be_out_and_two_hits_to_be_back() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        assert!(!circuit.takes(now));
        assert!(!circuit.miss("x".into()), "it was never up");
        assert!(circuit.hit() && circuit.takes(now));
        assert!(!circuit.miss("slow".into()) && circuit.takes(now));
        assert!(!circuit.hit());
        assert!(!circuit.miss("slow".into()) && circuit.miss("slow".into()));
        assert!(!circuit.takes(now) && circuit.health == Health::Out);
        assert!(!circuit.hit() && !circuit.miss("flaps".into()) && !circuit.hit());
        assert!(!circuit.takes(now), "one that flaps is not back");
        assert!(circuit.hit() && circuit.takes(now));
    }

    #[test]
    fn failures_open_it_and_one_try_closes_it() {
        let (mut circuit, now) = (Circuit::default(), Instant::now());
        circuit.hit();
        for _ in 0..50 {
            circuit.begin();
            circuit.succeeded();
        }
        assert!(!circuit.failed(now, "reset".into()) && !circuit.failed(now, "reset".into()));
        circuit.succeeded();
        assert!(!circuit.failed(now, "reset".into()) && !circuit.failed(now, "reset".into()));
        assert!(circuit.failed(now, "reset".into()) && circuit.is_open() && !circuit.takes(now));
        let later = now + FIRST_PAUSE;
        assert!(circuit.takes(later));
        circuit.begin();
        assert!(!circuit.takes(later), "one at a time");
        assert!(circuit.failed(later, "reset".into()) && !circuit.takes(later + FIRST_PAUSE));
        let latest = later + FIRST_PAUSE * 2;
        assert!(circuit.takes(latest));
        circuit.begin();
        circuit.abandoned();
        assert!(circuit.takes(latest), "a client's abort says nothing");
        circuit.begin();
        circuit.succeeded();
        assert!(circuit.takes(latest) && !circuit.is_open());
    }
}
