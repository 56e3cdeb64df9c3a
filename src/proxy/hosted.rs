//! One answer of a hosted API: asked for in messages, shown as it comes, and written down without tokens.
//!
//! Nothing is continued here: what such an API has sampled cannot be given back to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::call_log::Line;
use super::error::ApiError;
use super::flight::{Flight, FlightEnd};
use super::generate::{reason_of_stop, record, stopped, turn};
use super::prepare::{begin, find, most_tokens, sampling_params};
use super::sample::Sampled;
use super::session::{ModelRequest, Session};
use crate::inference::{EngineUsage, HostedAnswer, HostedApi, HostedError, HostedRequest};
use crate::prompt::{Message, Role};
use crate::trajectory::FinishReason;

/// Asks for an answer and hands it out.
pub(super) async fn answer(
    session: &Arc<Session>,
    flight: &Arc<Flight>,
    api: &HostedApi,
    mut request: ModelRequest,
    arrived: Instant,
) -> Result<FlightEnd, ApiError> {
    let found = find(session, &request)?;
    let (sampling, max_tokens) = (sampling_params(session, &request), most_tokens(session, &request));
    let (messages, tools) = (request.messages.clone(), request.tools.clone());
    let begin = begin(flight.call, &mut request, &found, sampling, max_tokens);
    // Held to the end: one generation at a time per conversation.
    let _turn = turn(session, flight, begin.conversation, &[]).await?;
    session.log(&Line::Begin(begin.clone()))?;
    let asked = HostedRequest {
        messages: &messages,
        tools: tools.as_deref(),
        calls_allowed: request.calls_allowed,
        max_tokens,
        sampling,
        stops: &request.stops,
    };
    let admitted = Instant::now();
    let mut read = None;
    let ended = tokio::select! {
        biased;
        () = stopped(session, flight) => Err((FinishReason::Abort, reason_of_stop(session, flight))),
        ended = follow(flight, api, asked, &mut read) => ended.map_err(|error| (FinishReason::Error, error.into())),
    };
    let (finish, error) = match ended {
        Ok(finish) => (finish, None),
        Err((finish, error)) => (finish, Some(error)),
    };
    if let Some(error) = &error {
        let counts = &session.counts;
        if error.code == Some("context_length_exceeded") {
            counts.context_overflow.store(true, Ordering::Relaxed);
        } else if finish == FinishReason::Error && (error.retryable || error.status >= 500 || is_ours(error)) {
            counts.engine_errors.fetch_add(1, Ordering::Relaxed);
        }
    }
    let sampled = Sampled {
        ids: Vec::new(),
        logprobs: None,
        versions: Vec::new(),
        routing: Vec::new(),
        finish,
        usage: read.as_ref().map_or_else(EngineUsage::default, HostedAnswer::usage),
        beyond: 0,
        parse_errors: read.as_ref().map_or(0, HostedAnswer::malformed),
        message: read.map_or_else(|| Message::text(Role::Assistant, ""), |read| read.message().clone()),
        admitted: Some(admitted),
        error,
    };
    record(session, &[], begin, Vec::new(), sampled, arrived)
}

/// Whether the API refuses us, and not the request.
fn is_ours(error: &ApiError) -> bool {
    matches!(error.status, 401 | 403 | 404)
}

/// Shows the answer as it comes, to its end.
async fn follow(
    flight: &Flight,
    api: &HostedApi,
    request: HostedRequest<'_>,
    read: &mut Option<HostedAnswer>,
) -> Result<FinishReason, HostedError> {
    let answer = read.insert(api.ask(request).await?);
    while let Some(mut events) = answer.next().await? {
        if !events.is_empty() {
            flight.update(|state| state.events.append(&mut events));
        }
    }
    flight.state().filtered = answer.was_filtered();
    // The answer does not end without one.
    Ok(answer.finish().unwrap_or(FinishReason::Stop))
}
