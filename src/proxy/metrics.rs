//! What the proxy counts, and its text form for Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters since the proxy began.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) requests: AtomicU64,
    /// By hundreds of the status, 0 standing for 1xx to 3xx.
    pub(super) refused_4xx: AtomicU64,
    pub(super) failed_5xx: AtomicU64,
    pub(super) sessions_opened: AtomicU64,
    pub(super) sessions_closed: AtomicU64,
    pub(super) sampled_tokens: AtomicU64,
    pub(super) sampling_overrides: AtomicU64,
}

impl Metrics {
    pub(super) fn count_response(&self, status: u16) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        match status {
            400..500 => self.refused_4xx.fetch_add(1, Ordering::Relaxed),
            500.. => self.failed_5xx.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// The exposition format, version 0.0.4.
    pub(super) fn render(&self) -> String {
        let rows = [
            ("lego_proxy_requests_total", "Requests answered", &self.requests),
            ("lego_proxy_refused_total", "Requests refused (4xx)", &self.refused_4xx),
            ("lego_proxy_failed_total", "Requests failed (5xx)", &self.failed_5xx),
            (
                "lego_proxy_sessions_opened_total",
                "Sessions opened",
                &self.sessions_opened,
            ),
            (
                "lego_proxy_sessions_closed_total",
                "Sessions closed",
                &self.sessions_closed,
            ),
            (
                "lego_proxy_sampled_tokens_total",
                "Tokens sampled in closed sessions",
                &self.sampled_tokens,
            ),
            (
                "lego_proxy_sampling_overrides_total",
                "Requests whose sampling settings were overridden",
                &self.sampling_overrides,
            ),
        ];
        rows.iter().fold(String::new(), |mut text, (name, help, value)| {
            let value = value.load(Ordering::Relaxed);
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter\n{name} {value}");
            text
        })
    }
}
