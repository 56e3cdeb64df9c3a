//! From a request to what the engine is asked: place in the session, prompt, budget, sampling.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::SamplingPolicy;
use super::call_log::Begin;
use super::error::ApiError;
use super::session::{ModelRequest, RawPrompt, Session};
use crate::inference::{RequestOrigin, Sampling};
use crate::prompt::{Message, PromptError, Role, Thinking, ToolSchemas};
use crate::trajectory::{SamplingParams, TokenId};

/// A request, ready for the engine.
pub(super) struct Prepared {
    pub(super) prompt: Arc<[TokenId]>,
    pub(super) begin: Begin,
    pub(super) sampling: Sampling,
    pub(super) origin: RequestOrigin,
    /// Whether the answer may call tools.
    pub(super) calls_allowed: bool,
    /// Of the tools that the request offers.
    pub(super) schemas: ToolSchemas,
    /// What its beginning may be.
    pub(super) thinking: Thinking,
    /// Texts that end it.
    pub(super) stops: Vec<String>,
    /// Whether the prompt came as it is, so that nothing of a template follows the answer.
    pub(super) raw: bool,
}

/// Finds the request's place and builds its prompt. `call` is its number in the session.
pub(super) fn prepare(session: &Session, call: u32, mut request: ModelRequest) -> Result<Prepared, ApiError> {
    let proxy = &session.proxy;
    let tools = request.tools.as_deref();
    let (place, recorded, parent, replaces) = {
        let mut state = session.state();
        let place = state.recording.place(&request.messages, tools);
        session.still_calls_tools(&state, place.conversation)?;
        if let Some(last_end) = state.last_end.get(&place.conversation).copied() {
            state
                .tool_gaps
                .push(Instant::now().duration_since(last_end).as_secs_f32());
        }
        let recorded = place.parent.map(|turn| state.recording.recorded(turn));
        let parent = place.parent.map(|turn| state.recording.call_of(turn));
        // Who goes on from an answer has received it: no retry of it is to come, and its prompt need not be kept.
        state.flights.retain(|_, flight| Some(flight.call) != parent);
        (place, recorded, parent, state.recording.repeated_call(&request.digest))
    };
    let continued =
        recorded.and_then(|recorded| recorded.prompt(&proxy.prompt, &request.messages[place.recorded..], tools));
    let raw = request.raw.is_some();
    let prompt: Arc<[TokenId]> = match (request.raw.take(), continued) {
        (Some(RawPrompt::Ids(ids)), _) => ids.into(),
        (Some(RawPrompt::Text(text)), _) => {
            let tokenizer = proxy.prompt.tokenizer();
            tokenizer.encode(&text).map_err(|error| refused(&error))?.into()
        }
        (None, Some(prompt)) => prompt.into(),
        (None, None) => proxy
            .prompt
            .first(&request.messages, tools)
            .map_err(|error| refused(&error))?
            .into(),
    };
    let room = proxy.window.saturating_sub(prompt.len());
    if room == 0 {
        session.counts.context_overflow.store(true, Ordering::Relaxed);
        return Err(ApiError::context_length(proxy.window, prompt.len()));
    }
    let max_tokens = request
        .max_tokens
        .unwrap_or(u32::MAX)
        .min(proxy.max_tokens)
        .min(room as u32);
    let params = sampling_params(session, &request);
    let sampling = Sampling {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        max_tokens,
        stop_token_ids: proxy.prompt.tokenizer().stop_ids(),
        seed: part_seed(session.options.seed, call),
    };
    let origin = RequestOrigin {
        task_id: session.options.task_id.clone(),
        episode_index: session.options.episode_index,
        turn: request
            .messages
            .iter()
            .filter(|message| message.role == Role::Assistant)
            .count() as u32,
        text: if proxy.engine.reads_text() {
            surroundings(&request.messages)
        } else {
            String::new()
        },
    };
    // Copied only where a policy writes arguments that their schemas must explain.
    let schemas = match proxy.tool_format {
        Some(format) if format.has_plain_arguments() => ToolSchemas::of(tools.unwrap_or_default()),
        _ => ToolSchemas::default(),
    };
    let (base, base_len) = session.state().recording.base(&prompt);
    let begin = Begin {
        call,
        endpoint: request.endpoint.into(),
        at: jiff::Timestamp::now(),
        conversation: place.conversation,
        parent,
        base,
        base_len,
        ids: prompt[base_len..].to_vec(),
        new: request.messages.split_off(place.recorded),
        tools: if parent.is_none() { request.tools } else { None },
        digest: request.digest,
        raw,
        replaces,
        sampling: params,
        max_tokens,
    };
    Ok(Prepared {
        prompt,
        schemas,
        begin,
        sampling,
        origin,
        calls_allowed: request.calls_allowed,
        thinking: if raw { Thinking::None } else { proxy.prompt.thinking() },
        stops: request.stops,
        raw,
    })
}

/// What is said before the first answer and behind the last one.
fn surroundings(messages: &[Message]) -> String {
    let is_answer = |message: &Message| message.role == Role::Assistant;
    let first = messages.iter().position(is_answer).unwrap_or(messages.len());
    let last = messages.iter().rposition(is_answer).map_or(messages.len(), |at| at + 1);
    let said = messages[..first].iter().chain(&messages[last..]);
    said.map(|message| message.content.as_str())
        .collect::<Vec<_>>()
        .join("\n")
}

/// The run's settings, or the session's; the agent's only where the proxy lets them through.
fn sampling_params(session: &Session, request: &ModelRequest) -> SamplingParams {
    let run = session.options.sampling.unwrap_or(session.proxy.sampling);
    let asked = SamplingParams {
        temperature: request.temperature.unwrap_or(run.temperature),
        top_p: request.top_p.unwrap_or(run.top_p),
        top_k: request.top_k.unwrap_or(run.top_k),
    };
    match session.proxy.sampling_policy {
        SamplingPolicy::Agent => asked,
        SamplingPolicy::Run => {
            session
                .counts
                .sampling_overrides
                .fetch_add(u32::from(asked != run), Ordering::Relaxed);
            run
        }
    }
}

fn refused(error: &PromptError) -> ApiError {
    match error {
        PromptError::Template(_) => ApiError::field("messages", &error.to_string()),
        _ => ApiError::internal(error.to_string()),
    }
}

/// Another seed for each part of what a seed is for (`SplitMix64`): the calls of a session, the continuations of a call.
pub(super) fn part_seed(whole: u64, part: u32) -> u64 {
    let mut z = whole.wrapping_add(u64::from(part).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
