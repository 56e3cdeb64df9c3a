//! Asks a replica every second whether it answers, and reads its load.
//!
//! Each probe takes a connection of its own: a process that was stopped still accepts, and never answers.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use tokio::time::{Instant, MissedTickBehavior};

use super::pool::{Pool, Replica, lock};
use super::upstream::{Collected, Upstream};
use crate::inference::{EngineLoad, load_of_page};

/// Time between probes.
const PERIOD: Duration = Duration::from_secs(1);
/// Longest wait for an answer. Two misses in a row take less than three periods.
const PATIENCE: Duration = Duration::from_millis(800);
/// Largest page of metrics.
const PAGE: usize = 4 << 20;

/// Probes until the replica is removed.
pub(super) async fn watch(pool: Arc<Pool>, replica: Arc<Replica>, path: Arc<str>) {
    // A connection of its own for each probe.
    let upstream = replica.upstream.apart();
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_out = false;
    loop {
        tokio::select! {
            () = replica.removed.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let began = Instant::now();
        let probed = tokio::time::timeout(PATIENCE, probe(&upstream, &path)).await;
        let probed = probed.unwrap_or_else(|_| Err(format!("no answer to {path} within {PATIENCE:?}")));
        match probed {
            Ok(()) => {
                if replica.circuit().hit() {
                    if std::mem::take(&mut was_out) {
                        tracing::warn!(replica = replica.url, "replica is back");
                    } else {
                        tracing::info!(replica = replica.url, "replica is up");
                    }
                    pool.came_back(&replica);
                }
                let left = PATIENCE.saturating_sub(began.elapsed());
                if let Ok(Some(page)) = tokio::time::timeout(left, metrics(&upstream)).await {
                    let load = load_of_page(&page);
                    *lock(&replica.load) = load;
                    if let Some(hold) = &replica.hold {
                        hold.set_capacity(load.kv_capacity);
                    }
                }
            }
            Err(reason) => {
                if replica.circuit().miss(reason.clone()) {
                    tracing::warn!(replica = replica.url, reason, "replica taken out");
                    was_out = true;
                    // What it said of itself is of before.
                    *lock(&replica.load) = EngineLoad::default();
                    pool.went_out(&replica);
                }
            }
        }
        pool.remove_drained();
        // Those whose circuit may be tried again are told of by nobody else.
        pool.back.notify_waiters();
    }
}

/// Whether it answers. That it knows no such route is an answer.
async fn probe(upstream: &Arc<Upstream>, path: &str) -> Result<(), String> {
    let response = get(upstream, path).await.map_err(|error| error.to_string())?;
    let status = response.status();
    if status.is_server_error() {
        return Err(format!("{path} answers {}", status.as_u16()));
    }
    Ok(())
}

async fn metrics(upstream: &Arc<Upstream>) -> Option<String> {
    let response = get(upstream, "/metrics").await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    match response.into_body().collect(PAGE).await.ok()? {
        Collected::Whole(page) => String::from_utf8(page.to_vec()).ok(),
        Collected::TooLong(_) => None,
    }
}

async fn get(
    upstream: &Arc<Upstream>,
    path: &str,
) -> Result<axum::http::Response<super::upstream::Answer>, super::upstream::LinkError> {
    let request = Request::get(format!("{}{path}", upstream.base))
        .header("host", &upstream.authority)
        .header("connection", "close")
        .body(Body::empty())
        .unwrap_or_default();
    upstream.send(request, PATIENCE, true).await
}
