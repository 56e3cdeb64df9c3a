//! What the proxy counts, and its text form for Prometheus.
//!
//! Counters grow from the proxy's start; gauges are read where they live, when somebody asks.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::inference::{Balanced, EngineLoad, EngineUsage};

/// Upper bounds of the histogram, in milliseconds.
const BOUNDS: [u64; 12] = [10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 120_000];

/// Counters since the proxy began.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    /// By route and status.
    requests: Mutex<BTreeMap<(&'static str, u16), u64>>,
    pub(super) sessions_opened: AtomicU64,
    pub(super) sessions_closed: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    sampled_tokens: AtomicU64,
    pub(super) retries_attached: AtomicU64,
    pub(super) continued: AtomicU64,
    pub(super) sampling_overrides: AtomicU64,
    first_token: Histogram,
}

/// What is so now.
pub(super) struct Gauges {
    pub(super) sessions_open: usize,
    pub(super) generations: usize,
    pub(super) body_bytes: usize,
    /// None of a hosted API.
    pub(super) engine: Option<EngineLoad>,
    /// None where nothing is balanced.
    pub(super) balanced: Option<Balanced>,
}

impl Metrics {
    pub(super) fn count_response(&self, route: &'static str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        *requests.entry((route, status)).or_default() += 1;
    }

    /// Adds what a call cost.
    pub(super) fn count_tokens(&self, usage: EngineUsage) {
        self.prompt_tokens.fetch_add(usage.prompt.into(), Ordering::Relaxed);
        self.cached_tokens.fetch_add(usage.cached.into(), Ordering::Relaxed);
        self.sampled_tokens
            .fetch_add(usage.completion.into(), Ordering::Relaxed);
    }

    /// A generation's time from its request to its first token.
    pub(super) fn first_token_after(&self, time: Duration) {
        self.first_token.observe(time);
    }

    /// The exposition format, version 0.0.4.
    pub(super) fn render(&self, gauges: &Gauges) -> String {
        let mut text = String::new();
        header(
            &mut text,
            "lego_proxy_requests_total",
            "counter",
            "Requests by route and status",
        );
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        for ((route, status), count) in requests.iter() {
            let _ = writeln!(
                text,
                "lego_proxy_requests_total{{route=\"{route}\",status=\"{status}\"}} {count}"
            );
        }
        drop(requests);
        let counters = [
            ("sessions_opened", "Sessions opened", &self.sessions_opened),
            ("sessions_closed", "Sessions closed", &self.sessions_closed),
            ("prompt_tokens", "Prompt tokens of ended calls", &self.prompt_tokens),
            (
                "cached_tokens",
                "Prompt tokens of ended calls that the engine had cached",
                &self.cached_tokens,
            ),
            ("sampled_tokens", "Tokens sampled in ended calls", &self.sampled_tokens),
            (
                "retries_attached",
                "Requests that were given the answer to an identical one before them",
                &self.retries_attached,
            ),
            (
                "continued_generations",
                "Generations that were lost in mid-answer and continued, elsewhere where there is another engine",
                &self.continued,
            ),
            (
                "sampling_overrides",
                "Requests of closed sessions whose sampling settings were overridden",
                &self.sampling_overrides,
            ),
        ];
        for (name, help, value) in counters {
            let name = format!("lego_proxy_{name}_total");
            header(&mut text, &name, "counter", help);
            let _ = writeln!(text, "{name} {}", value.load(Ordering::Relaxed));
        }
        let mut rows = vec![
            (
                "lego_proxy_sessions_open",
                "Sessions that are open",
                gauges.sessions_open as u64,
            ),
            (
                "lego_proxy_generations",
                "Generations that wait or run for sessions",
                gauges.generations as u64,
            ),
            (
                "lego_proxy_body_bytes",
                "Bodies of requests that are being read or made prompts of",
                gauges.body_bytes as u64,
            ),
        ];
        if let Some(load) = &gauges.engine {
            rows.extend([
                ("lego_engine_running", "Generations that sample", load.running.into()),
                (
                    "lego_engine_waiting",
                    "Generations that wait in the engine's queue",
                    load.waiting.into(),
                ),
                ("lego_engine_kv_tokens", "Tokens in the engine's cache", load.kv_used),
                (
                    "lego_engine_kv_capacity_tokens",
                    "Tokens that fit into it",
                    load.kv_capacity,
                ),
            ]);
        }
        for (name, help, value) in rows {
            header(&mut text, name, "gauge", help);
            let _ = writeln!(text, "{name} {value}");
        }
        if let Some(load) = &gauges.engine {
            let name = "lego_engine_computed_tokens_total";
            header(
                &mut text,
                name,
                "counter",
                "Tokens that the engine has fed through the model",
            );
            let _ = writeln!(text, "{name} {}", load.computed_tokens);
        }
        if let Some(balanced) = &gauges.balanced {
            render_balanced(&mut text, balanced);
        }
        self.first_token.render(
            &mut text,
            "lego_proxy_first_token_seconds",
            "Time from a request to the first token of its answer",
        );
        text
    }
}

/// What spreads turns over engines, and holds them.
fn render_balanced(text: &mut String, balanced: &Balanced) {
    header(
        text,
        "lego_balance_placed_total",
        "counter",
        "Turns by why their engine was chosen",
    );
    for (reason, count) in &balanced.placed_total {
        let _ = writeln!(text, "lego_balance_placed_total{{reason=\"{reason}\"}} {count}");
    }
    let rows = [
        ("held", "gauge", "Turns that are held", balanced.held),
        (
            "admitted_tokens",
            "gauge",
            "Tokens of sessions with a place",
            balanced.admitted_tokens,
        ),
        (
            "capacity_tokens",
            "gauge",
            "Tokens that are given out; 0: nothing is held",
            balanced.capacity_tokens,
        ),
        ("held_total", "counter", "Turns that were held", balanced.held_total),
        (
            "paused_total",
            "counter",
            "Idle sessions that lost their place",
            balanced.paused_total,
        ),
        (
            "displaced_total",
            "counter",
            "Of those, before their lease was over",
            balanced.displaced_total,
        ),
        (
            "short_of_budget_total",
            "counter",
            "Times that the budget held an overdue turn",
            balanced.short_of_budget_total,
        ),
    ];
    for (name, kind, help, value) in rows {
        let name = format!("lego_balance_{name}");
        header(text, &name, kind, help);
        let _ = writeln!(text, "{name} {value}");
    }
    let name = "lego_balance_longest_hold_seconds";
    header(text, name, "gauge", "Longest hold that has ended");
    let _ = writeln!(text, "{name} {}", balanced.longest_hold_s);
}

/// A name, its kind and what it means.
fn header(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing into a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Times by their order of magnitude.
#[derive(Debug, Default)]
struct Histogram {
    /// Up to each bound, and beyond the last.
    counts: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Histogram {
    fn observe(&self, time: Duration) {
        let bucket = BOUNDS.partition_point(|&bound| Duration::from_millis(bound) < time);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
    }

    fn render(&self, text: &mut String, name: &str, help: &str) {
        header(text, name, "histogram", help);
        let mut all = 0;
        for (index, count) in self.counts.iter().enumerate() {
            all += count.load(Ordering::Relaxed);
            let bound = BOUNDS
                .get(index)
                .map_or_else(|| "+Inf".to_owned(), |&bound| (bound as f64 / 1000.0).to_string());
            let _ = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {all}");
        }
        let sum = self.sum_us.load(Ordering::Relaxed) as f64 / 1e6;
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {all}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_holds_every_family_once_and_its_buckets_add_up() {
        let metrics = Metrics::default();
        metrics.count_response("chat", 200);
        metrics.count_response("chat", 200);
        metrics.count_response("messages", 429);
        for millis in [5, 10, 11, 700, 500_000] {
            metrics.first_token_after(Duration::from_millis(millis));
        }
        let page = metrics.render(&Gauges {
            sessions_open: 3,
            generations: 2,
            body_bytes: 7,
            engine: Some(EngineLoad::default()),
            balanced: Some(Balanced {
                held: 4,
                placed_total: vec![("home", 9)],
                ..Balanced::default()
            }),
        });
        for line in [
            "lego_proxy_requests_total{route=\"chat\",status=\"200\"} 2",
            "lego_proxy_requests_total{route=\"messages\",status=\"429\"} 1",
            "lego_proxy_sessions_open 3",
            "lego_balance_held 4",
            "lego_balance_placed_total{reason=\"home\"} 9",
            "lego_proxy_first_token_seconds_bucket{le=\"0.01\"} 2",
            "lego_proxy_first_token_seconds_bucket{le=\"0.025\"} 3",
            "lego_proxy_first_token_seconds_bucket{le=\"1\"} 4",
            "lego_proxy_first_token_seconds_bucket{le=\"+Inf\"} 5",
            "lego_proxy_first_token_seconds_count 5",
            "lego_proxy_first_token_seconds_sum 500.726",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
        }
        let mut families: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let all = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), all);
    }
}
