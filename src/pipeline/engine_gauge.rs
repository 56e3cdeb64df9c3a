//! How busy the engines were while a step was sampled: looked at a few times a second, and told as means and shares. It
//! only looks; what the engines say of themselves may be half a second old.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use crate::inference::{Engine, EngineLoad, ReplicaLoad};
use crate::metrics::StepMetrics;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(200);

/// Looks at a run's engine until it is dropped.
pub(super) struct EngineGauge {
    engine: Arc<dyn Engine>,
    seen: Arc<Mutex<Seen>>,
    looking: JoinHandle<()>,
}

impl Drop for EngineGauge {
    fn drop(&mut self) {
        self.looking.abort();
    }
}

/// Sums over looks.
#[derive(Default)]
struct Seen {
    looks: u32,
    all: Sums,
    /// By place in the engine's list of replicas.
    each: Vec<Sums>,
}

#[derive(Default, Clone, Copy)]
struct Sums {
    running: f64,
    waiting: f64,
    kv_used: f64,
    kv_capacity: f64,
    up: f64,
    /// Counters at the first look and at the last.
    first: EngineLoad,
    last: EngineLoad,
}

impl Sums {
    /// `running` is what was counted here where it was, which no server can tell wrongly.
    fn add(&mut self, load: &EngineLoad, running: u32, is_up: bool, is_first: bool) {
        if is_first {
            self.first = *load;
        }
        self.last = *load;
        self.running += f64::from(running);
        self.up += f64::from(u8::from(is_up));
        // One that is out says nothing new: its last page is not what is so now.
        if is_up {
            self.waiting += f64::from(load.waiting);
            self.kv_used += load.kv_used as f64;
        }
        self.kv_capacity += load.kv_capacity as f64;
    }

    fn write(&self, looks: f64, mut set: impl FnMut(&str, f64)) {
        set("running", self.running / looks);
        set("waiting", self.waiting / looks);
        if self.kv_capacity > 0.0 {
            set("kv_usage", self.kv_used / self.kv_capacity);
        }
        let more = |of: fn(&EngineLoad) -> u64| of(&self.last).saturating_sub(of(&self.first)) as f64;
        let prompts = more(|load| load.prompt_tokens);
        if prompts > 0.0 {
            set("prefix_hit", more(|load| load.cached_tokens) / prompts);
        }
        set("preemptions", more(|load| load.preemptions));
    }
}

impl Seen {
    fn look(&mut self, all: &EngineLoad, replicas: &[ReplicaLoad], is_up: bool) {
        let is_first = self.looks == 0;
        self.looks += 1;
        let running = if replicas.is_empty() {
            all.running
        } else {
            replicas.iter().map(|replica| replica.in_flight).sum()
        };
        self.all.add(all, running, is_up, is_first);
        self.each.resize(replicas.len(), Sums::default());
        for (sums, replica) in self.each.iter_mut().zip(replicas) {
            sums.add(&replica.load, replica.in_flight, replica.is_up, is_first);
        }
    }

    fn write(&self, metrics: &mut StepMetrics) {
        let looks = f64::from(self.looks.max(1));
        self.all
            .write(looks, |name, value| metrics.set(format!("inference/{name}"), value));
        for (number, sums) in self.each.iter().enumerate() {
            let mut set = |name: &str, value: f64| metrics.set(format!("inference/replica_{number}/{name}"), value);
            sums.write(looks, &mut set);
            set("up", sums.up / looks);
        }
    }
}

impl EngineGauge {
    /// Begins to look. Needs a runtime.
    pub(super) fn start(engine: Arc<dyn Engine>) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (watched, into) = (Arc::clone(&engine), Arc::clone(&seen));
        let looking = tokio::spawn(async move {
            loop {
                look(watched.as_ref(), &mut lock(&into));
                tokio::time::sleep(PERIOD).await;
            }
        });
        Self { engine, seen, looking }
    }

    /// What is asked for next begins now.
    pub(super) fn begin(&self) {
        let mut seen = lock(&self.seen);
        *seen = Seen::default();
        look(self.engine.as_ref(), &mut seen);
    }

    /// Writes what was seen since the last beginning, and begins anew.
    pub(super) fn take(&self, metrics: &mut StepMetrics) {
        let mut seen = lock(&self.seen);
        look(self.engine.as_ref(), &mut seen);
        seen.write(metrics);
        drop(seen);
        self.begin();
    }
}

fn look(engine: &dyn Engine, seen: &mut Seen) {
    seen.look(&engine.load(), &engine.replicas(), engine.is_up());
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(running: u32, sampled: u64) -> EngineLoad {
        EngineLoad {
            running,
            waiting: 2,
            kv_used: 50,
            kv_capacity: 100,
            prompt_tokens: 10 * sampled,
            cached_tokens: 4 * sampled,
            preemptions: sampled,
            ..EngineLoad::default()
        }
    }

    fn written(seen: &Seen) -> Vec<(String, f64)> {
        let mut metrics = StepMetrics::new(1, jiff::Timestamp::UNIX_EPOCH);
        seen.write(&mut metrics);
        assert_eq!(metrics.unexplained(), Vec::<&str>::new());
        metrics.iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    #[test]
    fn means_shares_and_counts_by_hand() {
        let mut seen = Seen::default();
        for (running, sampled) in [(1, 100), (3, 101), (2, 103)] {
            seen.look(&load(running, sampled), &[], true);
        }
        let expected = [
            ("running", 2.0),
            ("waiting", 2.0),
            ("kv_usage", 0.5),
            ("prefix_hit", 0.4),
            ("preemptions", 3.0),
        ];
        let expected = expected.map(|(name, value)| (format!("inference/{name}"), value));
        assert_eq!(written(&seen), expected);
    }

    #[test]
    fn replicas_are_told_apart_and_one_that_is_out_neither_waits_nor_runs() {
        let mut seen = Seen::default();
        let replica = |is_up, in_flight| ReplicaLoad {
            name: "http://a:1".to_owned(),
            is_up,
            in_flight,
            load: load(9, 5),
        };
        seen.look(&load(18, 10), &[replica(true, 4), replica(true, 2)], true);
        seen.look(&load(18, 10), &[replica(true, 6), replica(false, 0)], true);
        let written = written(&seen);
        let of = |name: &str| {
            let found = written.iter().find(|(known, _)| known == name);
            found.unwrap_or_else(|| panic!("no {name}: {written:?}")).1
        };
        assert!((of("inference/running") - 6.0).abs() < 1e-9);
        assert!((of("inference/replica_0/running") - 5.0).abs() < 1e-9);
        assert!((of("inference/replica_1/running") - 1.0).abs() < 1e-9);
        assert!((of("inference/replica_0/up") - 1.0).abs() < 1e-9);
        assert!((of("inference/replica_1/up") - 0.5).abs() < 1e-9);
        assert!((of("inference/replica_1/waiting") - 1.0).abs() < 1e-9);
        assert!((of("inference/replica_1/kv_usage") - 0.25).abs() < 1e-9);
    }
}
