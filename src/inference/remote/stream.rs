//! One generation's stream, from the server's events to the trait's.
//!
//! Servers name the weights of each token on their last event only. Until weights are published in
//! mid-generation there is no doubt and tokens go out at once; from then on they are held until it is said.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Response;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Sleep;

use super::{Asked, Payload, Remote, SHORT, ServerEvents, Shared, State, routing};
use crate::inference::{EngineUsage, EventSource, Finish, GenerationEvent, TokenDelta};
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

/// A generation that is being read. Dropping it before its end aborts it.
pub(in crate::inference) struct Reading {
    server: ServerEvents,
    patience: Duration,
    /// Ends the wait for the server's next event.
    late: Option<Pin<Box<Sleep>>>,
    wire: Box<dyn Wire>,
    /// What ends it at the server; none once it has ended.
    abort: Option<(Abort, Remote)>,
    prompt: usize,
    routing: Option<Asked>,
    /// The engine when it began.
    begun: State,
    shared: Arc<Shared>,
    /// Tokens given out.
    given: usize,
    held: (Vec<TokenId>, Vec<f32>),
    last: News,
    /// Events that wait to be asked for.
    ready: VecDeque<GenerationEvent>,
}

/// What is asked of a server, and how it is told to end it.
pub(in crate::inference) struct Asking {
    pub(in crate::inference) wire: Box<dyn Wire>,
    pub(in crate::inference) abort: Abort,
    /// Length of the prompt.
    pub(in crate::inference) prompt: usize,
    pub(in crate::inference) routing: Option<Asked>,
}

/// Why reading ended before the server's end.
enum Broken {
    /// What came stands.
    Lost(String),
    /// What came is not to be used.
    Rejected(String),
}

impl From<Fault> for Broken {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Failed(reason) => Self::Lost(reason),
            Fault::Contradicts(reason) => Self::Rejected(reason),
        }
    }
}

impl Reading {
    pub(in crate::inference) fn new(
        asking: Asking,
        response: Response,
        (remote, patience): (Remote, Duration),
        begun: State,
        shared: Arc<Shared>,
    ) -> Self {
        let Asking {
            wire,
            abort,
            prompt,
            routing,
        } = asking;
        Self {
            server: ServerEvents::of(response),
            patience,
            late: None,
            wire,
            abort: Some((abort, remote)),
            prompt,
            routing,
            begun,
            shared,
            given: 0,
            held: (Vec::new(), Vec::new()),
            last: News::default(),
            ready: VecDeque::new(),
        }
    }

    /// Waits for more of the stream and takes it in; what it ends with at the end.
    async fn read(&mut self) -> Result<Option<Finish>, Broken> {
        // Putting it off is cheaper than a new one for every token.
        let patience = self.patience;
        let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        late.as_mut().reset(tokio::time::Instant::now() + patience);
        let first = tokio::select! {
            biased;
            first = self.server.next() => first.map_err(Broken::Lost)?,
            () = late.as_mut() => {
                if self.shared.is_paused() {
                    return Ok(None);
                }
                return Err(Broken::Lost(format!("no token within {patience:?}")));
            }
        };
        let over = self.hold(first);
        // What came before a fault stands, unless it contradicts itself.
        if self.shared.state().publications == self.begun.publications {
            self.give(self.held.0.len(), self.begun.version);
        }
        if over? { self.end().map(Some) } else { Ok(None) }
    }

    /// Takes in an event and those that came with it; true at the end of the stream.
    fn hold(&mut self, first: Payload) -> Result<bool, Fault> {
        let mut next = Some(first);
        while let Some(event) = next {
            let Payload::Event(event) = event else { return Ok(true) };
            let news = self.wire.news(&event)?;
            self.take(news);
            next = self.server.ready();
        }
        Ok(false)
    }

    /// Tells the server to end it, where it has not ended.
    fn abort(&mut self) {
        if let (Some((abort, remote)), Ok(runtime)) = (self.abort.take(), Handle::try_current()) {
            runtime.spawn(async move { abort.send(&remote).await });
        }
    }

    fn failed(&self, broken: Broken) -> Finish {
        let (reason, rejected) = match broken {
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
    fn give(&mut self, count: usize, version: PolicyVersion) {
        if count == 0 {
            return;
        }
        let delta = TokenDelta {
            ids: self.held.0.drain(..count).collect(),
            logprobs: Some(self.held.1.drain(..count).collect()),
            version,
        };
        self.given += count;
        self.ready.push_back(GenerationEvent::Tokens(delta));
    }

    /// The server has said all: checks it against itself and gives out what was held.
    fn end(&mut self) -> Result<Finish, Broken> {
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
                    self.give(count, version);
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

#[async_trait]
impl EventSource for Reading {
    async fn next(&mut self) -> Option<GenerationEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // Without a way to abort it has ended.
            self.abort.as_ref()?;
            let finish = match self.read().await {
                Ok(None) => continue,
                Ok(Some(finish)) => {
                    self.abort = None;
                    finish
                }
                Err(broken) => {
                    self.abort();
                    self.failed(broken)
                }
            };
            self.ready.push_back(GenerationEvent::Finished(finish));
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.abort();
    }
}
