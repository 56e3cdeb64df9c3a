//! From a request to what the engine is asked: place in the session, prompt, budget, sampling.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::call_log::Begin;
use super::error::ApiError;
use super::recording::Recorded;
use super::session::{ModelRequest, RawPrompt, Session};
use super::turns::Place;
use super::{PolicySource, SamplingPolicy};
use crate::inference::{RequestOrigin, Sampling};
use crate::prompt::{Message, PromptError, Role, Thinking, ToolSchemas};
use crate::trajectory::{SamplingParams, TokenId};

/// Where a request belongs in its session.
pub(super) struct Found {
    place: Place,
    /// The call whose answer it continues, and its tokens.
    parent: Option<u32>,
    recorded: Option<Recorded>,
    /// The call whose answer it would replace.
    replaces: Option<u32>,
}

/// Finds it; refuses a conversation that stopped calling tools.
pub(super) fn find(session: &Session, request: &ModelRequest) -> Result<Found, ApiError> {
    let mut state = session.state();
    let place = state.recording.place(&request.messages, request.tools.as_deref());
    session.still_calls_tools(&state, place.conversation)?;
    if let Some(last_end) = state.last_end.get(&place.conversation).copied() {
        state
            .tool_gaps
            .push(Instant::now().duration_since(last_end).as_secs_f32());
    }
    let recorded = place.parent.and_then(|turn| state.recording.recorded(turn));
    let parent = place.parent.map(|turn| state.recording.call_of(turn));
    // Who goes on from an answer has received it: no retry of it is to come, and its prompt need not be kept.
    state.flights.retain(|_, flight| Some(flight.call) != parent);
    Ok(Found {
        place,
        parent,
        recorded,
        replaces: state.recording.repeated_call(&request.digest),
    })
}

/// The line of a call that begins, with no tokens yet. Takes from the request what only the log needs.
pub(super) fn begin(
    call: u32,
    request: &mut ModelRequest,
    found: &Found,
    sampling: SamplingParams,
    max_tokens: u32,
) -> Begin {
    Begin {
        call,
        endpoint: request.endpoint.into(),
        at: jiff::Timestamp::now(),
        conversation: found.place.conversation,
        parent: found.parent,
        base: None,
        base_len: 0,
        ids: Vec::new(),
        new: request.messages.split_off(found.place.recorded),
        tools: request.tools.take().filter(|_| found.parent.is_none()),
        digest: std::mem::take(&mut request.digest),
        raw: request.raw.is_some(),
        replaces: found.replaces,
        sampling,
        max_tokens,
    }
}

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
    /// The first position whose experts no call before has told of.
    pub(super) routing_from: Option<u32>,
    /// Whether the prompt came as it is, so that nothing of a template follows the answer.
    pub(super) raw: bool,
}

/// Finds the request's place and builds its prompt. `call` is its number in the session.
pub(super) fn prepare(
    session: &Session,
    policy: &PolicySource,
    call: u32,
    mut request: ModelRequest,
) -> Result<Prepared, ApiError> {
    let proxy = &session.proxy;
    let tools = request.tools.as_deref();
    let mut found = find(session, &request)?;
    let new = &request.messages[found.place.recorded..];
    let said = new.iter().map(|message| message.content.as_str());
    let raw_text = request.raw.iter().filter_map(|raw| match raw {
        RawPrompt::Text(text) => Some(text.as_str()),
        RawPrompt::Ids(_) => None,
    });
    if let Some(tokens) = too_many(policy, said.chain(raw_text), proxy.window)? {
        session.counts.context_overflow.store(true, Ordering::Relaxed);
        return Err(ApiError::context_length(proxy.window, tokens));
    }
    let continued = found
        .recorded
        .take()
        .and_then(|recorded| recorded.prompt(&policy.prompt, new, tools));
    let raw = request.raw.is_some();
    let prompt: Arc<[TokenId]> = match (&mut request.raw, continued) {
        (Some(RawPrompt::Ids(ids)), _) => std::mem::take(ids).into(),
        (Some(RawPrompt::Text(text)), _) => {
            let tokenizer = policy.prompt.tokenizer();
            tokenizer.encode(text).map_err(|error| refused(&error))?.into()
        }
        (None, Some(prompt)) => prompt.into(),
        (None, None) => policy
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
    let max_tokens = most_tokens(session, &request).min(room as u32);
    let params = sampling_params(session, &request);
    let sampling = Sampling {
        temperature: params.temperature,
        top_p: params.top_p,
        top_k: params.top_k,
        max_tokens,
        stop_token_ids: policy.prompt.tokenizer().stop_ids(),
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
        conversation: found.place.conversation.0,
        text: if policy.engine.reads_text() {
            surroundings(&request.messages)
        } else {
            String::new()
        },
    };
    // Copied only where a policy writes arguments that their schemas must explain.
    let schemas = match policy.tool_format {
        Some(format) if format.has_plain_arguments() => ToolSchemas::of(tools.unwrap_or_default()),
        _ => ToolSchemas::default(),
    };
    let (base, base_len) = session.state().recording.base(&prompt);
    let begin = Begin {
        base,
        base_len,
        ids: prompt[base_len..].to_vec(),
        ..begin(call, &mut request, &found, params, max_tokens)
    };
    Ok(Prepared {
        prompt,
        schemas,
        begin,
        sampling,
        origin,
        calls_allowed: request.calls_allowed,
        thinking: if raw { Thinking::None } else { policy.prompt.thinking() },
        stops: request.stops,
        // The last token of what came before has been fed to no layer yet.
        routing_from: policy.routing.then(|| base_len.saturating_sub(1) as u32),
        raw,
    })
}

/// Bytes of a token on average above which a prompt is long for its window.
const LONG: usize = 4;

/// For what cannot fit: at least how many tokens it has. An agent may send megabytes, which to tokenise in one piece takes
/// a hundred times their memory; what may fit is not looked at twice.
fn too_many<'a>(
    policy: &PolicySource,
    texts: impl Iterator<Item = &'a str> + Clone,
    window: usize,
) -> Result<Option<usize>, ApiError> {
    let bytes: usize = texts.clone().map(str::len).sum();
    if bytes <= window.saturating_mul(LONG).max(64 << 10) {
        return Ok(None);
    }
    let mut tokens = 0;
    for text in texts {
        let counted = policy.prompt.tokenizer().count_up_to(text, window - tokens);
        tokens += counted.map_err(|error| refused(&error))?;
        if tokens > window {
            return Ok(Some(tokens));
        }
    }
    Ok(None)
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

/// Tokens of an answer at most, by the request and the run.
pub(super) fn most_tokens(session: &Session, request: &ModelRequest) -> u32 {
    request.max_tokens.unwrap_or(u32::MAX).min(session.proxy.max_tokens)
}

/// The run's settings, or the session's; the agent's only where the proxy lets them through.
pub(super) fn sampling_params(session: &Session, request: &ModelRequest) -> SamplingParams {
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
