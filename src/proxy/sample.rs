//! Sampling one answer, across as many engine generations as it takes.
//!
//! A generation that the engine lost or aborted by itself is continued from the tokens already sampled, with
//! what is left of the budget: who watches sees one unbroken answer. What contradicts itself is rejected,
//! never repaired.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::PolicySource;
use super::error::ApiError;
use super::flight::Flight;
use super::generate::{reason_of_stop, stopped};
use super::plausible;
use super::prepare::{Prepared, part_seed};
use super::session::Session;
use super::stop_text::StopText;
use crate::inference::{
    Engine, EngineError, EngineUsage, Finish, GenerateRequest, Generation, GenerationEvent, TokenDelta,
};
use crate::prompt::{AnswerParser, DecodeStream, Message, Tokenizer, new_call_id};
use crate::trajectory::{FinishReason, RoutedRows, TokenId, VersionSpan};

/// Generations lost in a row, without a token between them, before an answer is given up.
const MAX_LOSSES: u32 = 3;

/// Generations lost in one answer at all: an engine that fails after each token is not asked for ever.
const MAX_CONTINUED: u32 = 32;

/// Longest wait for the engine to confirm an abort.
const ABORT_PATIENCE: Duration = Duration::from_secs(5);

/// Everything that one answer became.
pub(super) struct Sampled {
    pub(super) ids: Vec<TokenId>,
    pub(super) logprobs: Option<Vec<f32>>,
    pub(super) versions: Vec<VersionSpan>,
    pub(super) routing: Vec<RoutedRows>,
    pub(super) finish: FinishReason,
    pub(super) usage: EngineUsage,
    /// Tokens sampled behind a stop text: nobody is shown them, and they belong to no answer.
    pub(super) beyond: u32,
    pub(super) message: Message,
    pub(super) parse_errors: u32,
    pub(super) admitted: Option<Instant>,
    /// Why there is no answer, with `Abort` and `Error`.
    pub(super) error: Option<ApiError>,
}

impl Sampled {
    /// Whether the policy or its budget ended it.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self.finish, FinishReason::Stop | FinishReason::Length)
    }
}

/// How one engine generation ended.
enum Attempt {
    Ended(FinishReason),
    /// Nobody wants it any more; `held`: no engine was given it, since its turn was held.
    Stopped {
        held: bool,
    },
    /// The engine lost it.
    Lost(EngineError),
    /// What it sent is not to be used.
    Refused(EngineError),
}

/// Samples an answer and shows it to the flight's viewers as it comes.
pub(super) async fn sample(session: &Session, flight: &Flight, policy: &PolicySource, prepared: &Prepared) -> Sampled {
    let format = policy.tool_format.filter(|_| prepared.calls_allowed);
    let mut sampling = Progress {
        flight,
        engine: policy.engine.as_ref(),
        tokenizer: policy.prompt.tokenizer(),
        decoder: policy.prompt.tokenizer().decode_stream(),
        stops: StopText::new(prepared.stops.clone()),
        parser: AnswerParser::new(format, prepared.thinking, new_call_id).with_schemas(prepared.schemas.clone()),
        beyond: 0,
        most: prepared.sampling.max_tokens,
        ids: Vec::new(),
        logprobs: None,
        versions: Vec::new(),
        routing: Vec::new(),
        usage: EngineUsage::default(),
        admitted: None,
    };
    let (mut losses, mut continued) = (0, 0);
    let mut held = false;
    let (finish, error) = loop {
        let before = sampling.ids.len();
        match sampling.attempt(session, prepared, losses).await {
            Attempt::Ended(finish) => break (finish, None),
            Attempt::Stopped { held: was } => {
                held = was;
                break (FinishReason::Abort, Some(reason_of_stop(session, flight)));
            }
            Attempt::Refused(error) => break (FinishReason::Error, Some(error.into())),
            Attempt::Lost(error) => {
                losses = if sampling.ids.len() > before { 1 } else { losses + 1 };
                // With nothing sampled the client is told at once; its retry, or the balancer, goes elsewhere.
                continued += 1;
                if sampling.ids.is_empty() || losses > MAX_LOSSES || continued > MAX_CONTINUED {
                    break (FinishReason::Error, Some(error.into()));
                }
                session.metrics.continued.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(session = %session.key, %error, sampled = sampling.ids.len(), "generation lost, continued");
            }
        }
    };
    // Who stopped waiting for engines that are all lost, or for a turn that was held, was failed by them as well.
    if finish == FinishReason::Error || finish == FinishReason::Abort && (held || !policy.engine.is_up()) {
        session.counts.engine_errors.fetch_add(1, Ordering::Relaxed);
    }
    sampling.finish(finish, error)
}

struct Progress<'a> {
    flight: &'a Flight,
    engine: &'a dyn Engine,
    tokenizer: &'a Tokenizer,
    decoder: DecodeStream<'a>,
    stops: StopText,
    parser: AnswerParser,
    beyond: u32,
    /// Tokens that may come.
    most: u32,
    ids: Vec<TokenId>,
    logprobs: Option<Vec<f32>>,
    versions: Vec<VersionSpan>,
    routing: Vec<RoutedRows>,
    usage: EngineUsage,
    admitted: Option<Instant>,
}

impl Progress<'_> {
    /// One engine generation, from what has been sampled so far.
    async fn attempt(&mut self, session: &Session, prepared: &Prepared, losses: u32) -> Attempt {
        let mut sampling = prepared.sampling.clone();
        let sampled = self.ids.len() as u32;
        // An engine can be lost between the last token and its finish.
        if self
            .ids
            .last()
            .is_some_and(|last| sampling.stop_token_ids.contains(last))
        {
            return Attempt::Ended(FinishReason::Stop);
        }
        sampling.max_tokens = sampling.max_tokens.saturating_sub(sampled);
        if sampling.max_tokens == 0 {
            return Attempt::Ended(FinishReason::Length);
        }
        let prompt = if sampled == 0 {
            Arc::clone(&prepared.prompt)
        } else {
            // With the random numbers that the tokens so far were drawn by, the rest would depend on them.
            sampling.seed = part_seed(sampling.seed, sampled);
            [&prepared.prompt[..], &self.ids].concat().into()
        };
        let id = format!("{}-{}-{}-{losses}", session.key, self.flight.call, self.ids.len());
        let origin = prepared.origin.clone();
        // Of what a lost engine has sampled nothing is known but that its last token is fed now.
        let routing_from = match sampled {
            0 => prepared.routing_from,
            _ => prepared.routing_from.map(|_| prompt.len() as u32 - 1),
        };
        let request = GenerateRequest {
            id: id.clone(),
            session: session.key.clone(),
            prompt,
            sampling,
            origin,
            routing_from,
        };
        let (engine, patience) = (self.engine, session.proxy.engine_timeout);
        let stop = stopped(session, self.flight);
        tokio::pin!(stop);
        let admission = tokio::select! {
            biased;
            () = &mut stop => None,
            admission = tokio::time::timeout(patience + engine.longest_hold(), engine.generate(request)) => Some(admission),
        };
        let mut generation = match admission {
            None => {
                engine.abort(&id).await;
                let held = !engine.longest_hold().is_zero();
                return Attempt::Stopped { held };
            }
            Some(Err(_)) => {
                engine.abort(&id).await;
                return Attempt::Lost(silent("admit the request", patience));
            }
            Some(Ok(Err(error @ EngineError::Unavailable { .. }))) => return Attempt::Lost(error),
            Some(Ok(Err(error))) => return Attempt::Refused(error),
            Some(Ok(Ok(generation))) => generation,
        };
        self.admitted.get_or_insert_with(Instant::now);
        self.usage.prompt = prepared.prompt.len() as u32;
        let begun = self.ids.len();
        loop {
            let event = tokio::select! {
                biased;
                () = &mut stop => {
                    engine.abort(&id).await;
                    let rest = async {
                        while let Some(event) = generation.next().await {
                            match event {
                                GenerationEvent::Tokens(delta) => { let _ = self.take(delta); }
                                GenerationEvent::Finished(finish) => { self.count(&finish, begun); break; }
                            }
                        }
                    };
                    let _ = tokio::time::timeout(ABORT_PATIENCE, rest).await;
                    return Attempt::Stopped { held: false };
                }
                event = tokio::time::timeout(patience, generation.next()) => event,
            };
            match event {
                Err(_) => {
                    engine.abort(&id).await;
                    self.count_what_came(begun);
                    return Attempt::Lost(silent("sample the next token", patience));
                }
                Ok(None) => {
                    self.count_what_came(begun);
                    return Attempt::Lost(EngineError::lost("its stream ended without a finish"));
                }
                Ok(Some(GenerationEvent::Tokens(delta))) => match self.take(delta) {
                    Ok(false) => {}
                    Ok(true) => {
                        engine.abort(&id).await;
                        self.drain(&mut generation, begun).await;
                        return Attempt::Ended(FinishReason::Stop);
                    }
                    Err(error) => {
                        engine.abort(&id).await;
                        return Attempt::Refused(error);
                    }
                },
                Ok(Some(GenerationEvent::Finished(finish))) => {
                    if !self.count(&finish, begun) {
                        let got = self.ids.len() - begun;
                        let claimed = finish.usage.completion;
                        return Attempt::Refused(EngineError::Rejected(format!(
                            "usage says {claimed} sampled tokens, {got} came"
                        )));
                    }
                    if finish.rejected {
                        let reason = finish.error.unwrap_or_default();
                        return Attempt::Refused(EngineError::Rejected(reason));
                    }
                    return match finish.reason {
                        FinishReason::Stop | FinishReason::Length => Attempt::Ended(finish.reason),
                        FinishReason::Abort => Attempt::Lost(EngineError::lost("it aborted the generation")),
                        FinishReason::Error => {
                            Attempt::Lost(EngineError::lost(finish.error.as_deref().unwrap_or("no reason given")))
                        }
                    };
                }
            }
        }
    }

    /// Waits, behind a stop text, for the engine's confirmation and count.
    async fn drain(&mut self, generation: &mut Generation, begun: usize) {
        let rest = async {
            while let Some(event) = generation.next().await {
                match event {
                    GenerationEvent::Tokens(delta) => self.beyond += delta.ids.len() as u32,
                    GenerationEvent::Finished(finish) => return self.count(&finish, begun),
                }
            }
            false
        };
        if !matches!(tokio::time::timeout(ABORT_PATIENCE, rest).await, Ok(true)) {
            // Its own count is missing or contradicts: what came is what counts.
            self.usage.completion = self.ids.len() as u32 + self.beyond;
        }
    }

    /// Takes sampled tokens in and shows what they mean. True: a stop text has come.
    fn take(&mut self, delta: TokenDelta) -> Result<bool, EngineError> {
        let left = (self.most as usize).saturating_sub(self.ids.len());
        plausible::check(&delta, self.tokenizer, self.ids.last().copied(), left)?;
        let TokenDelta {
            mut ids,
            mut logprobs,
            version,
        } = delta;
        let mut events = Vec::new();
        let mut text = String::new();
        let mut stopped = None;
        for (at, &id) in ids.iter().enumerate() {
            // What ends an answer is no text of it.
            if self.tokenizer.is_stop(id) {
                continue;
            }
            self.decoder.push_onto(id, &mut text);
            if self.stops.is_empty() {
                continue;
            }
            // Which token a stop text ends in matters, so each is looked at alone.
            let (sure, stop) = self.stops.push(&std::mem::take(&mut text));
            events.extend(self.parser.push(&sure));
            if stop.is_some() {
                stopped = stop.map(|stop| (at + 1, stop));
                break;
            }
        }
        events.extend(self.parser.push(&text));
        if let Some((end, _)) = stopped {
            self.beyond += (ids.len() - end) as u32;
            ids.truncate(end);
            if let Some(logprobs) = &mut logprobs {
                logprobs.truncate(end);
            }
        }
        let so_far = self.ids.len();
        match (&mut self.logprobs, logprobs) {
            (Some(all), Some(new)) => all.extend(new),
            (all @ None, Some(new)) if so_far == 0 => *all = Some(new),
            (None, None) => {}
            _ => {
                return Err(EngineError::Rejected(
                    "log-probs came for a part of the tokens only".to_owned(),
                ));
            }
        }
        let (start, end) = (so_far as u32, (so_far + ids.len()) as u32);
        match self.versions.last_mut() {
            Some(span) if span.version == version && span.end == start => span.end = end,
            _ if end > start => self.versions.push(VersionSpan { start, end, version }),
            _ => {}
        }
        self.flight.update(|state| {
            state.ids.extend_from_slice(&ids);
            if let Some(all) = &self.logprobs {
                state.logprobs.extend_from_slice(&all[so_far..]);
            }
            state.events.append(&mut events);
            if let Some((_, stop)) = &stopped {
                state.stop_text = Some(stop.clone());
            }
        });
        self.ids.extend(ids);
        Ok(stopped.is_some())
    }

    /// Counts a generation whose engine was lost before it could.
    fn count_what_came(&mut self, begun: usize) {
        self.usage.completion += (self.ids.len() - begun) as u32;
    }

    /// Adds the engine's own count; false if it differs from what came.
    fn count(&mut self, finish: &Finish, begun: usize) -> bool {
        // Of the first generation: the prompts of its continuations hold what was sampled.
        if begun == 0 {
            (self.usage.prompt, self.usage.cached) = (finish.usage.prompt, finish.usage.cached);
        }
        self.usage.completion += finish.usage.completion;
        self.routing.extend(finish.routing.clone());
        finish.usage.completion as usize == self.ids.len() - begun + self.beyond as usize
    }

    fn finish(mut self, finish: FinishReason, error: Option<ApiError>) -> Sampled {
        let mut events = Vec::new();
        if self.flight.state().stop_text.is_none() {
            let (text, _) = self.stops.push(&self.decoder.finish());
            events.extend(self.parser.push(&text));
            events.extend(self.parser.push(&self.stops.finish()));
        }
        events.extend(self.parser.finish());
        self.flight.update(|state| state.events.append(&mut events));
        let logprobs = self.logprobs.filter(|all| all.len() == self.ids.len());
        // Not of what came behind a stop text.
        let end = self.flight.state().prompt.len() + self.ids.len();
        let routing = self.routing.iter().filter_map(|run| run.within(0, end)).collect();
        Sampled {
            parse_errors: self.parser.malformed(),
            message: self.parser.message().clone(),
            ids: self.ids,
            logprobs,
            versions: self.versions,
            routing,
            finish,
            usage: self.usage,
            beyond: self.beyond,
            admitted: self.admitted,
            error,
        }
    }
}

fn silent(what: &str, patience: Duration) -> EngineError {
    EngineError::lost(&format!("it did not {what} within {} s", patience.as_secs()))
}
