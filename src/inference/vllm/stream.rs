//! One generation's stream, from the server's events to the trait's.
//!
//! The server names the weights of each token on its last event only. Until weights are published in
//! mid-generation there is no doubt and tokens go out at once; from then on they are held until it is said.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::mpsc;

use super::wire::{self, News, Span};
use super::{Shared, State, abort};
use crate::inference::remote::{Remote, ServerEvents};
use crate::inference::{EngineUsage, Finish, GenerationEvent, TokenDelta};
use crate::trajectory::{FinishReason, PolicyVersion, TokenId};

/// A generation that is being read.
pub(super) struct Reading {
    id: String,
    prompt: usize,
    events: mpsc::Sender<GenerationEvent>,
    /// The engine when it began.
    begun: State,
    shared: Arc<Shared>,
    /// Tokens given out.
    given: usize,
    held: (Vec<TokenId>, Vec<f32>),
    last: News,
}

/// Why reading ended before the server's end.
enum Broken {
    /// Nobody reads.
    Gone,
    Lost(String),
}

impl Reading {
    pub(super) fn new(
        id: String,
        prompt: usize,
        events: mpsc::Sender<GenerationEvent>,
        begun: State,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            id,
            prompt,
            events,
            begun,
            shared,
            given: 0,
            held: (Vec::new(), Vec::new()),
            last: News::default(),
        }
    }

    pub(super) async fn run(mut self, mut server: ServerEvents, remote: Remote, patience: Duration) {
        let read = self.read(&mut server, patience).await;
        drop(server);
        let finish = match read {
            Ok(finish) => finish,
            Err(broken) => {
                abort(&remote, &self.id).await;
                let Broken::Lost(reason) = broken else { return };
                Finish {
                    reason: FinishReason::Error,
                    usage: EngineUsage {
                        prompt: self.prompt as u32,
                        cached: 0,
                        completion: self.given as u32,
                    },
                    error: Some(reason),
                }
            }
        };
        let _ = self.events.send(GenerationEvent::Finished(finish)).await;
    }

    async fn read(&mut self, server: &mut ServerEvents, patience: Duration) -> Result<Finish, Broken> {
        let events = self.events.clone();
        loop {
            let next = tokio::select! {
                biased;
                () = events.closed() => return Err(Broken::Gone),
                next = tokio::time::timeout(patience, server.next()) => next,
            };
            match next {
                Err(_) if self.shared.paused.load(Ordering::Relaxed) => {}
                Err(_) => return Err(Broken::Lost(format!("no token within {patience:?}"))),
                Ok(Err(reason)) => return Err(Broken::Lost(reason)),
                Ok(Ok(None)) => return self.end().await,
                Ok(Ok(Some(event))) => self.take(wire::news(event).map_err(Broken::Lost)?).await?,
            }
        }
    }

    async fn take(&mut self, news: News) -> Result<(), Broken> {
        self.held.0.extend(news.ids);
        self.held.1.extend(news.logprobs);
        self.last.finish = news.finish.or(self.last.finish);
        self.last.usage = news.usage.or(self.last.usage);
        if news.versions.is_some() {
            self.last.versions = news.versions;
        }
        let certain = self.shared.state().publications == self.begun.publications;
        if certain {
            self.give(self.held.0.len(), self.begun.version).await?;
        }
        Ok(())
    }

    /// Gives out the first `count` held tokens.
    async fn give(&mut self, count: usize, version: PolicyVersion) -> Result<(), Broken> {
        if count == 0 {
            return Ok(());
        }
        let delta = TokenDelta {
            ids: self.held.0.drain(..count).collect(),
            logprobs: Some(self.held.1.drain(..count).collect()),
            version,
        };
        self.given += count;
        let sent = self.events.send(GenerationEvent::Tokens(delta)).await;
        sent.map_err(|_| Broken::Gone)
    }

    /// The server has said all: checks it against itself and gives out what was held.
    async fn end(&mut self) -> Result<Finish, Broken> {
        let News { finish, usage, .. } = self.last;
        let reason = finish.ok_or_else(|| Broken::Lost("the stream ended without a finish reason".to_owned()))?;
        let usage = usage.ok_or_else(|| Broken::Lost("the stream ended without usage".to_owned()))?;
        let sampled = self.given + self.held.0.len();
        if usage.completion as usize != sampled || usage.prompt as usize != self.prompt {
            return Err(Broken::Lost(format!(
                "usage says {} + {} tokens, {} were sent and {sampled} came",
                usage.prompt, usage.completion, self.prompt
            )));
        }
        match self.last.versions.take() {
            Some(spans) => {
                for (count, version) in self.counts(&spans, sampled).map_err(Broken::Lost)? {
                    self.give(count, version).await?;
                }
            }
            None if self.held.0.is_empty() => {}
            None => {
                return Err(Broken::Lost(
                    "weights were published in between, and the server does not say which token is whose".to_owned(),
                ));
            }
        }
        Ok(Finish {
            reason,
            usage,
            error: None,
        })
    }

    /// Of the held tokens, how many each version sampled. The spans must cover the answer without a gap, and
    /// agree with what has been given out.
    fn counts(&self, spans: &[Span], sampled: usize) -> Result<Vec<(usize, PolicyVersion)>, String> {
        let mut counts = Vec::new();
        let mut at = 0;
        for span in spans {
            if span.start != at || span.end < span.start {
                return Err(format!("weight versions have a gap at token {at}"));
            }
            let version = self.begun.version_of(&span.version)?;
            if span.start < self.given && version != self.begun.version {
                return Err(format!("tokens {}..{} are of weights {version}", span.start, span.end));
            }
            let first = span.start.max(self.given);
            counts.push((span.end.saturating_sub(first), version));
            at = span.end;
        }
        if at != sampled {
            return Err(format!("weight versions cover {at} of {sampled} tokens"));
        }
        Ok(counts)
    }
}
