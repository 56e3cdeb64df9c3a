//! One generation's stream, from the server's events to the trait's.
//!
//! Servers name the weights of each token on their last event only. Until weights are published in
//! mid-generation there is no doubt and tokens go out at once; from then on they are held until it is said.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc;

use super::{Asked, Remote, SHORT, ServerEvents, Shared, State, routing};
use crate::inference::{EngineUsage, Finish, GenerationEvent, TokenDelta};
use crate::trajectory::{FinishReason, PolicyVersion, TokenId};

/// How a server writes one generation's events.
pub(in crate::inference) trait Wire: Send {
    /// Reads one event. Nothing is repaired.
    fn news(&mut self, event: &[u8]) -> Result<News, Fault>;
}

/// Why an event cannot be used.
#[derive(Debug)]
pub(in crate::inference) enum Fault {
    /// The server says that it failed. What came before stands.
    Failed(String),
    /// It contradicts itself, or what was asked: nothing of the answer is to be used.
    Contradicts(String),
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Self::Contradicts(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Self::Contradicts(reason.to_owned())
    }
}

/// An event's JSON. What is none was lost on its way; what is another one than expected is a contradiction.
pub(in crate::inference) fn parsed<T: DeserializeOwned>(event: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(event).map_err(|error| {
        if error.is_data() {
            Fault::Contradicts(format!("unexpected event: {error}"))
        } else {
            Fault::Failed(format!("an event is not JSON: {error}"))
        }
    })
}

/// What an error inside a stream says.
pub(in crate::inference) fn said(error: &Value) -> String {
    error["message"]
        .as_str()
        .map_or_else(|| error.to_string(), str::to_owned)
}

/// What one event says, checked: as many log-probs as ids.
#[derive(Debug, Default, PartialEq)]
pub(in crate::inference) struct News {
    pub(in crate::inference) ids: Vec<TokenId>,
    pub(in crate::inference) logprobs: Vec<f32>,
    pub(in crate::inference) finish: Option<FinishReason>,
    /// Whose each token of the whole answer is.
    pub(in crate::inference) versions: Option<Vec<Span>>,
    /// What the server calls the weights that it serves now.
    pub(in crate::inference) label: Option<String>,
    pub(in crate::inference) usage: Option<EngineUsage>,
    /// The experts of every position, as the server writes them.
    pub(in crate::inference) routing: Option<String>,
}

/// Tokens `start..end` of the answer were sampled by `version`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(in crate::inference) struct Span {
    pub(in crate::inference) version: String,
    pub(in crate::inference) start: usize,
    pub(in crate::inference) end: usize,
}

/// How the server is told to end a generation.
pub(in crate::inference) struct Abort {
    pub(in crate::inference) path: &'static str,
    pub(in crate::inference) body: Value,
}

impl Abort {
    pub(in crate::inference) async fn send(&self, remote: &Remote) {
        if let Err(error) = remote.post(self.path, &self.body, SHORT).await {
            tracing::warn!(request = %self.body, %error, "generation could not be aborted");
        }
    }
}

/// A generation that is being read.
pub(in crate::inference) struct Reading {
    wire: Box<dyn Wire>,
    abort: Abort,
    prompt: usize,
    routing: Option<Asked>,
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
    /// What came stands.
    Lost(String),
    /// What came is not to be used.
    Rejected(String),
}

impl Reading {
    pub(in crate::inference) fn new(
        wire: Box<dyn Wire>,
        abort: Abort,
        (prompt, routing): (usize, Option<Asked>),
        events: mpsc::Sender<GenerationEvent>,
        begun: State,
        shared: Arc<Shared>,
    ) -> Self {
        Self {
            wire,
            abort,
            prompt,
            routing,
            events,
            begun,
            shared,
            given: 0,
            held: (Vec::new(), Vec::new()),
            last: News::default(),
        }
    }

    pub(in crate::inference) async fn run(mut self, mut server: ServerEvents, remote: Remote, patience: Duration) {
        let read = self.read(&mut server, patience).await;
        drop(server);
        let finish = match read {
            Ok(finish) => finish,
            Err(broken) => {
                self.abort.send(&remote).await;
                let (reason, rejected) = match broken {
                    Broken::Gone => return,
                    Broken::Lost(reason) => (reason, false),
                    Broken::Rejected(reason) => (reason, true),
                };
                Finish {
                    reason: FinishReason::Error,
                    usage: EngineUsage {
                        prompt: self.prompt as u32,
                        cached: 0,
                        completion: self.given as u32,
                    },
                    error: Some(reason),
                    routing: None,
                    rejected,
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
            let first = match next {
                Err(_) if self.shared.is_paused() => continue,
                Err(_) => return Err(Broken::Lost(format!("no token within {patience:?}"))),
                Ok(Err(reason)) => return Err(Broken::Lost(reason)),
                Ok(Ok(first)) => first,
            };
            let over = self.hold(first, server);
            // What came before a fault stands, unless it contradicts itself.
            if self.shared.state().publications == self.begun.publications {
                self.give(self.held.0.len(), self.begun.version).await?;
            }
            match over {
                Ok(false) => {}
                Ok(true) => return self.end().await,
                Err(Fault::Failed(reason)) => return Err(Broken::Lost(reason)),
                Err(Fault::Contradicts(reason)) => return Err(Broken::Rejected(reason)),
            }
        }
    }

    /// Takes in an event and those that came with it; true at the end of the stream.
    fn hold(&mut self, first: Option<Bytes>, server: &mut ServerEvents) -> Result<bool, Fault> {
        let mut next = Some(first);
        while let Some(event) = next {
            let Some(event) = event else { return Ok(true) };
            let news = self.wire.news(&event)?;
            self.take(news);
            next = server.ready();
        }
        Ok(false)
    }

    fn take(&mut self, news: News) {
        self.held.0.extend(news.ids);
        self.held.1.extend(news.logprobs);
        self.last.finish = news.finish.or(self.last.finish);
        self.last.usage = news.usage.or(self.last.usage);
        if news.versions.is_some() {
            self.last.versions = news.versions;
        }
        self.last.routing = news.routing.or(self.last.routing.take());
        self.last.label = news.label.or(self.last.label.take());
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
            return Err(Broken::Rejected(format!(
                "usage says {} + {} tokens, {} were sent and {sampled} came",
                usage.prompt, usage.completion, self.prompt
            )));
        }
        match self.last.versions.take() {
            Some(spans) => {
                for (count, version) in self.counts(&spans, sampled).map_err(Broken::Rejected)? {
                    self.give(count, version).await?;
                }
            }
            None if self.held.0.is_empty() => {
                let same = self.shared.state().publications == self.begun.publications;
                if let Some(label) = self.last.label.take().filter(|_| same) {
                    let version = self.begun.version_of(&label).map_err(Broken::Rejected)?;
                    if version != self.begun.version {
                        return Err(Broken::Rejected(format!("the tokens are of weights {version}")));
                    }
                }
            }
            None => {
                return Err(Broken::Lost(
                    "weights were published in between, and the server does not say which token is whose".to_owned(),
                ));
            }
        }
        let routing = match (self.routing, self.last.routing.take()) {
            (Some(asked), Some(rows)) => {
                Some(routing::decode(&rows, asked, self.prompt + sampled).map_err(Broken::Rejected)?)
            }
            _ => None,
        };
        Ok(Finish {
            reason,
            usage,
            error: None,
            routing,
            rejected: false,
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
