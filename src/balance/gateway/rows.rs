//! What a gateway tells of its replicas and sessions.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::balance::hold::HoldFigures;
use crate::inference::EngineLoad;

/// A replica.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaRow {
    /// Its address.
    pub replica: String,
    /// `healthy`, `starting`, `out` (it answers no probe), `broken` (requests failed) or `draining`.
    pub state: String,
    /// Sessions that are with it.
    pub sessions: usize,
    /// Requests that it works on for this gateway.
    pub requests: u32,
    /// Generations that sample, by its own metrics.
    pub running: u32,
    /// Generations that wait, by its own metrics.
    pub waiting: u32,
    /// Share of its cache in use, in percent; null where its metrics do not tell.
    pub kv_percent: Option<f64>,
    /// Share of prompt tokens that it found in its cache, in percent; null where its metrics do not tell.
    pub hit_percent: Option<f64>,
    /// Turns held before it; null without a scheduler.
    pub held: Option<usize>,
    /// Tokens of the sessions that have a place in its cache; null without a scheduler.
    pub admitted_tokens: Option<u64>,
    /// Tokens that are given out; null without a scheduler, and 0 where its size is not known and nothing is held.
    pub capacity_tokens: Option<u64>,
    /// What was seen last of one that is given no requests.
    pub reason: Option<String>,
    /// Seconds until it is given one again.
    pub retry_in_s: Option<f64>,
}

impl ReplicaRow {
    pub(super) fn new(
        (url, state, sessions): (&str, &str, usize),
        (requests, load): (u32, EngineLoad),
        hold: Option<HoldFigures>,
        reason: Option<String>,
        retry_in: Option<Duration>,
    ) -> Self {
        let percent =
            |part: u64, whole: u64| (whole > 0).then(|| (1_000.0 * part as f64 / whole as f64).round() / 10.0);
        Self {
            replica: url.to_owned(),
            state: state.to_owned(),
            sessions,
            requests,
            running: load.running,
            waiting: load.waiting,
            kv_percent: percent(load.kv_used, load.kv_capacity),
            hit_percent: percent(load.cached_tokens, load.prompt_tokens),
            held: hold.map(|hold| hold.waiting),
            admitted_tokens: hold.map(|hold| hold.admitted),
            capacity_tokens: hold.map(|hold| hold.capacity),
            reason: reason.filter(|_| state != "healthy" && state != "draining"),
            retry_in_s: retry_in.map(|time| time.as_secs_f64()),
        }
    }
}

/// A session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SessionRow {
    /// Its key.
    pub session: String,
    /// The address of its replica.
    pub replica: String,
    /// Tokens of its last turn, or an estimate.
    pub tokens: u64,
}
