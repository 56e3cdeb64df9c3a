//! The course of one generation: prepared, admitted, sampled, recorded. Clients only watch.

use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::call_log::{Begin, End, Line};
use super::error::ApiError;
use super::flight::{Flight, FlightEnd};
use super::prepare::{Prepared, prepare};
use super::sample::{Sampled, sample};
use super::session::{ModelRequest, Session};
use super::{PolicySource, Source, hosted};
use crate::trajectory::{ConversationId, TokenId};

/// Messages from which on preparing a prompt leaves the threads that serve connections.
const OFFLOAD_BYTES: usize = 32 << 10;

/// Runs one generation to its end.
pub(super) async fn run(session: &Arc<Session>, flight: &Arc<Flight>, request: ModelRequest) -> FlightEnd {
    let arrived = Instant::now();
    let ended = match &session.proxy.source {
        Source::Policy(policy) => of_policy(session, flight, policy, request, arrived).await,
        Source::Hosted(api) => hosted::answer(session, flight, api, request, arrived).await,
    };
    ended.unwrap_or_else(FlightEnd::Failed)
}

async fn of_policy(
    session: &Arc<Session>,
    flight: &Arc<Flight>,
    policy: &PolicySource,
    request: ModelRequest,
    arrived: Instant,
) -> Result<FlightEnd, ApiError> {
    let prepared = prepared(session, policy, flight.call, request).await?;
    flight.state().prompt = Arc::clone(&prepared.prompt);
    // Held to the end: one generation at a time per conversation.
    let _turn = turn(session, flight, prepared.begin.conversation, &prepared.prompt).await?;
    if session.log.is_some() {
        session.log(&Line::Begin(prepared.begin.clone()))?;
    }
    let sampled = sample(session, flight, policy, &prepared).await;
    let tail = if sampled.is_answer() && !prepared.raw {
        policy.prompt.tail(&sampled.message).to_vec()
    } else {
        Vec::new()
    };
    record(session, &prepared.prompt, prepared.begin, tail, sampled, arrived)
}

async fn prepared(
    session: &Arc<Session>,
    policy: &PolicySource,
    call: u32,
    request: ModelRequest,
) -> Result<Prepared, ApiError> {
    let bytes: usize = request.messages.iter().map(|message| message.content.len()).sum();
    if bytes < OFFLOAD_BYTES {
        return prepare(session, policy, call, request);
    }
    let (session, policy) = (Arc::clone(session), policy.clone());
    let task = tokio::task::spawn_blocking(move || prepare(&session, &policy, call, request));
    task.await
        .unwrap_or_else(|error| Err(ApiError::internal(format!("the prompt could not be built: {error}"))))
}

/// Waits for the conversation's turn. An older attempt of the same prompt that still waits is displaced; what has no
/// prompt displaces nothing.
pub(super) async fn turn(
    session: &Session,
    flight: &Arc<Flight>,
    conversation: ConversationId,
    prompt: &[TokenId],
) -> Result<OwnedSemaphorePermit, ApiError> {
    let gate = {
        let mut state = session.state();
        let state = &mut *state;
        for (_, older) in state.waiting.iter().filter(|(other, _)| *other == conversation) {
            if !prompt.is_empty() && older.state().prompt[..] == *prompt {
                older.preempt();
                state.recording.count_preempted();
            }
        }
        state.waiting.push((conversation, Arc::clone(flight)));
        Arc::clone(
            state
                .gates
                .entry(conversation)
                .or_insert_with(|| Arc::new(Semaphore::new(1))),
        )
    };
    let permit = tokio::select! {
        biased;
        () = stopped(session, flight) => None,
        permit = gate.acquire_owned() => permit.ok(),
    };
    session.state().waiting.retain(|(_, other)| !Arc::ptr_eq(other, flight));
    permit.ok_or_else(|| reason_of_stop(session, flight))
}

/// Waits until the generation is no longer wanted.
pub(super) async fn stopped(session: &Session, flight: &Flight) {
    tokio::select! {
        () = flight.cancel.cancelled() => {}
        () = flight.abandoned(session.proxy.retry_grace) => {}
    }
}

/// What a client that still watches is told.
pub(super) fn reason_of_stop(session: &Session, flight: &Flight) -> ApiError {
    if flight.state().preempted {
        ApiError::preempted()
    } else if session.closed.is_cancelled() {
        ApiError::closed()
    } else {
        ApiError::unavailable("The generation was aborted: nobody waited for it.", None)
    }
}

/// Writes the call down, then hands the answer out.
pub(super) fn record(
    session: &Session,
    prompt: &[TokenId],
    begin: Begin,
    tail: Vec<TokenId>,
    sampled: Sampled,
    arrived: Instant,
) -> Result<FlightEnd, ApiError> {
    let ended = Instant::now();
    let queue_wait_s = sampled
        .admitted
        .map_or(0.0, |at| at.duration_since(arrived).as_secs_f32());
    let total_s = ended.duration_since(arrived).as_secs_f32();
    let answer_digest = match &session.log {
        Some(_) => hex(&Sha256::digest(
            serde_json::to_vec(&sampled.message).unwrap_or_default(),
        )),
        None => String::new(),
    };
    let end = End {
        call: begin.call,
        at: jiff::Timestamp::now(),
        tail,
        without_ids: session.proxy.policy().is_none(),
        ids: sampled.ids,
        logprobs: sampled.logprobs,
        versions: sampled.versions,
        routing: sampled.routing,
        finish: sampled.finish,
        usage: sampled.usage.into(),
        beyond: sampled.beyond,
        answer: sampled.message,
        answer_digest,
        parse_errors: sampled.parse_errors,
        queue_wait_s,
        total_s,
        error: sampled.error.as_ref().map(|error| error.message.clone()),
    };
    let line = Line::End(Box::new(end));
    let logged = session.log(&line);
    let Line::End(end) = line else {
        return Err(ApiError::internal("no end line"));
    };
    session.metrics.count_tokens(sampled.usage);
    let mut state = session.state();
    let conversation = begin.conversation;
    let recorded = state.recording.record(prompt, begin, &end);
    state.model_seconds += total_s;
    state.queue_wait_seconds += queue_wait_s;
    state.last_end.insert(conversation, ended);
    drop(state);
    recorded.map_err(|error| ApiError::internal(error.to_string()))?;
    logged?;
    if let Some(error) = sampled.error {
        return Err(error);
    }
    Ok(FlightEnd::Answered {
        finish: end.finish,
        message: Arc::new(end.answer),
        usage: sampled.usage,
    })
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}
