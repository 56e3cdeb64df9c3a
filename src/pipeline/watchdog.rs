//! Says what a run is busy with where nothing has happened for long. It never ends anything: every wait has its own bound.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;

use super::{Phase, PipelineEvent, PipelineObserver};
use crate::rollout::RolloutEvent;

/// Trials that are named at most.
const NAMED: usize = 5;

/// Watches a run until it is dropped.
pub(super) struct Watchdog(JoinHandle<()>);

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Seen {
    last: Instant,
    phase: Option<(u32, Phase)>,
    /// Trials that run, with their begin.
    trials: BTreeMap<String, Instant>,
}

impl Seen {
    fn take_in(&mut self, event: &PipelineEvent) {
        match event {
            PipelineEvent::Warning(_) => return,
            PipelineEvent::Phase { step, phase } => self.phase = Some((*step, *phase)),
            PipelineEvent::Rollout(RolloutEvent::Started { name, .. }) => {
                self.trials.insert(name.clone(), Instant::now());
            }
            PipelineEvent::Rollout(RolloutEvent::Finished { name, .. }) => {
                self.trials.remove(name);
            }
            _ => {}
        }
        self.last = Instant::now();
    }

    /// What to say of a silence.
    fn tell(&self, now: Instant) -> String {
        let minutes = |since: Instant| format!("{:.1} min", now.duration_since(since).as_secs_f64() / 60.0);
        let phase = match self.phase {
            Some((step, Phase::Generate)) => format!("step {step} samples"),
            Some((step, Phase::Update)) => format!("step {step} updates the policy"),
            Some((step, Phase::Publish)) => format!("step {step} publishes its weights"),
            Some((step, Phase::Evaluate)) => format!("step {step} validates"),
            None => "it starts".to_owned(),
        };
        let mut out: Vec<_> = self.trials.iter().collect();
        out.sort_by_key(|(_, since)| **since);
        let more = out.len().saturating_sub(NAMED);
        let named: Vec<String> = out
            .iter()
            .take(NAMED)
            .map(|(name, since)| format!("{name} ({})", minutes(**since)))
            .collect();
        let trials = match (named.len(), more) {
            (0, _) => "no trial runs".to_owned(),
            (_, 0) => format!("trials that run: {}", named.join(", ")),
            (_, more) => format!("trials that run: {}, and {more} more", named.join(", ")),
        };
        format!("nothing has happened for {}: {phase}; {trials}", minutes(self.last))
    }
}

/// The same observer, who also hears where nothing has happened for so long, and then each time as long again. Needs a
/// runtime.
pub(super) fn watched(observer: &PipelineObserver, limit: Duration) -> (PipelineObserver, Watchdog) {
    let seen = Arc::new(Mutex::new(Seen {
        last: Instant::now(),
        phase: None,
        trials: BTreeMap::new(),
    }));
    let (watching, telling, told) = (Arc::clone(observer), Arc::clone(observer), Arc::clone(&seen));
    let watch: PipelineObserver = Arc::new(move |event| {
        lock(&seen).take_in(&event);
        watching(event);
    });
    let task = tokio::spawn(async move {
        let mut silences = 0;
        loop {
            tokio::time::sleep(limit / 4).await;
            let now = Instant::now();
            let text = {
                let seen = lock(&told);
                let passed = now.duration_since(seen.last);
                if passed < limit {
                    silences = 0;
                }
                (passed >= limit * (silences + 1)).then(|| seen.tell(now))
            };
            if let Some(text) = text {
                silences += 1;
                telling(PipelineEvent::Warning(text));
            }
        }
    });
    (watch, Watchdog(task))
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::TrialId;

    #[tokio::test]
    async fn a_silence_is_told_with_the_phase_and_the_trials_that_are_out() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let observer: PipelineObserver = Arc::new(move |event| {
            if let PipelineEvent::Warning(text) = event {
                hears.lock().unwrap().push(text);
            }
        });
        let (watch, watchdog) = watched(&observer, Duration::from_millis(200));
        watch(PipelineEvent::Phase {
            step: 7,
            phase: Phase::Generate,
        });
        for name in ["one", "two"] {
            let trial = TrialId::fresh();
            let name = name.to_owned();
            watch(PipelineEvent::Rollout(RolloutEvent::Started { trial, name }));
        }
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if heard.lock().unwrap().len() >= 2 {
                break;
            }
        }
        drop(watchdog);
        let heard = heard.lock().unwrap();
        assert!(heard.len() >= 2, "{heard:?}");
        assert!(
            heard[0].contains("step 7 samples; trials that run: one (0.0 min), two (0.0 min)"),
            "{heard:?}"
        );
    }
}
