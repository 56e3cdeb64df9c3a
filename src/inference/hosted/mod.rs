//! `openai`: a hosted API that speaks Chat Completions, for evaluation and for collecting data.
//!
//! It takes messages and gives no token ids, so that it is no `Engine` and nothing that it answers can train. Several
//! programs serve this API besides the companies that sell it; each leaves out something, and what one refuses is
//! asked for in the other way that there is.

mod answer;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use reqwest::header::CONTENT_TYPE;
use serde_json::{Value, json};

use super::EngineError;
use super::remote::{Refusal, Remote, RemoteOptions};
use crate::prompt::{Message, Role};
use crate::trajectory::{PolicyVersion, SamplingParams};

pub use answer::HostedAnswer;

/// A hosted API.
pub struct HostedApi {
    remote: Remote,
    /// Path of its routes below the base address.
    root: &'static str,
    model: String,
    patience: Duration,
    /// Set once it has said that it knows `max_completion_tokens` alone.
    new_limit: AtomicBool,
    /// When it was last asked whether it is there, and why it was not.
    seen: tokio::sync::Mutex<Option<(Instant, Option<String>)>>,
}

/// Time in which it says whether it is there, and for which that is believed.
const THERE_WITHIN: Duration = Duration::from_secs(3);

/// What one answer is asked by.
#[derive(Debug, Clone, Copy)]
pub struct HostedRequest<'a> {
    /// The conversation.
    pub messages: &'a [Message],
    /// Tools as Chat Completions writes them.
    pub tools: Option<&'a [Value]>,
    /// Whether the answer may call them.
    pub calls_allowed: bool,
    /// At most this many tokens.
    pub max_tokens: u32,
    /// How to sample; what has its usual value is left out, since some models take no other.
    pub sampling: SamplingParams,
    /// Texts that end it.
    pub stops: &'a [String],
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum HostedError {
    /// It answered with another status than success.
    #[error("{base} answers {status}: {message}")]
    Status {
        /// Where it is.
        base: String,
        /// The status.
        status: u16,
        /// What it says.
        message: String,
        /// When to try again, if it says so.
        retry_after: Option<Duration>,
        /// Whether the conversation is too long for the model.
        too_long: bool,
    },
    /// It cannot be reached, or broke off.
    #[error(transparent)]
    Lost(#[from] EngineError),
}

impl HostedApi {
    /// Connects. Without a name the only model that it serves is asked.
    ///
    /// # Errors
    /// [`EngineError::Unavailable`] if it cannot be reached, [`EngineError::Invalid`] if it serves several models and none is
    /// named.
    pub async fn connect(options: RemoteOptions) -> Result<Self, EngineError> {
        let remote = Remote::new(&options)?;
        // `http://host:8000` and `http://host:8000/v1` are both written.
        let root = match reqwest::Url::parse(remote.base()) {
            Ok(url) if url.path().len() > 1 => "",
            _ => "/v1",
        };
        let model = match options.model {
            Some(model) => {
                warn_if_unlisted(&remote, root, &model).await;
                model
            }
            None => only_model(&remote, root).await?,
        };
        Ok(Self {
            remote,
            root,
            model,
            patience: options.patience,
            new_limit: AtomicBool::new(false),
            seen: tokio::sync::Mutex::default(),
        })
    }

    /// One that nobody answers: for agents that ask no model.
    ///
    /// # Errors
    /// Where no HTTP client can be made.
    pub fn nobody() -> Result<Self, EngineError> {
        let options = RemoteOptions {
            // No server listens on port 0.
            endpoint: "http://127.0.0.1:0".to_owned(),
            api_key: None,
            ca_file: None,
            model: None,
            experts: None,
            version: PolicyVersion::default(),
            patience: Duration::ZERO,
        };
        Ok(Self {
            remote: Remote::new(&options)?,
            root: "/v1",
            model: "none".to_owned(),
            patience: Duration::ZERO,
            new_limit: AtomicBool::new(false),
            seen: tokio::sync::Mutex::default(),
        })
    }

    /// The model that is asked.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Why it cannot be reached, where it cannot; whatever it answers, it is there.
    pub async fn lost(&self) -> Option<String> {
        let mut seen = self.seen.lock().await;
        if let Some((_, known)) = seen.as_ref().filter(|(at, _)| at.elapsed() < THERE_WITHIN) {
            return known.clone();
        }
        let path = format!("{}/models", self.root);
        let lost = match tokio::time::timeout(THERE_WITHIN, self.remote.get(&path)).await {
            Ok(Err(EngineError::Unavailable { reason, .. })) => Some(reason),
            Ok(_) => None,
            Err(_) => Some(format!("{}: no answer within {THERE_WITHIN:?}", self.remote.base())),
        };
        *seen = Some((Instant::now(), lost.clone()));
        lost
    }

    /// Asks for an answer, which comes as a stream.
    ///
    /// # Errors
    /// What it says instead of answering, or that it says nothing.
    pub async fn ask(&self, request: HostedRequest<'_>) -> Result<HostedAnswer, HostedError> {
        let path = format!("{}/chat/completions", self.root);
        loop {
            let new_limit = self.new_limit.load(Ordering::Relaxed);
            let body = self.body(request, new_limit);
            match self.remote.try_open(&path, &body, self.patience).await? {
                Ok(response) => {
                    let streamed = response
                        .headers()
                        .get(CONTENT_TYPE)
                        .and_then(|kind| kind.to_str().ok())
                        .is_none_or(|kind| !kind.starts_with("application/json"));
                    return Ok(HostedAnswer::of(response, streamed, self.patience));
                }
                Err(refusal) if !new_limit && names_new_limit(&refusal) => {
                    self.new_limit.store(true, Ordering::Relaxed);
                }
                Err(refusal) => return Err(self.refused(refusal)),
            }
        }
    }

    fn body(&self, request: HostedRequest<'_>, new_limit: bool) -> Value {
        let messages: Vec<Value> = request.messages.iter().map(message).collect();
        let mut body = json!({
            "model": self.model,
            "messages": messages,
            "stream": true,
            "stream_options": {"include_usage": true},
        });
        let limit = if new_limit {
            "max_completion_tokens"
        } else {
            "max_tokens"
        };
        body[limit] = request.max_tokens.into();
        if let Some(tools) = request.tools {
            body["tools"] = tools.into();
            if !request.calls_allowed {
                body["tool_choice"] = "none".into();
            }
        }
        let SamplingParams {
            temperature,
            top_p,
            top_k,
        } = request.sampling;
        let usual = |value: f32| (value - 1.0).abs() < f32::EPSILON;
        // Always: a server may have another default than 1.
        body["temperature"] = shortest(temperature);
        if !usual(top_p) {
            body["top_p"] = shortest(top_p);
        }
        if top_k > 0 {
            body["top_k"] = top_k.into();
        }
        if !request.stops.is_empty() {
            body["stop"] = request.stops.into();
        }
        body
    }

    fn refused(&self, refusal: Refusal) -> HostedError {
        HostedError::Status {
            base: self.remote.base().to_owned(),
            status: refusal.status.as_u16(),
            too_long: refusal.status == 400
                && (refusal.code.as_deref() == Some("context_length_exceeded")
                    || refusal.message.contains("maximum context length")),
            message: refusal.message,
            retry_after: refusal.retry_after,
        }
    }
}

/// 0.7 is not 0.699999988079071.
fn shortest(value: f32) -> Value {
    value.to_string().parse::<f64>().unwrap_or(f64::from(value)).into()
}

fn names_new_limit(refusal: &Refusal) -> bool {
    refusal.status == 400 && refusal.message.contains("max_completion_tokens")
}

/// The names of the models that it serves.
async fn models(remote: &Remote, root: &str) -> Result<Vec<String>, EngineError> {
    let models = remote.get(&format!("{root}/models")).await?;
    let listed = models["data"].as_array().into_iter().flatten();
    let names = listed.filter_map(|model| model["id"].as_str());
    Ok(names.map(str::to_owned).collect())
}

/// Not every API lists its models, or all of them: what it says when it is asked counts.
async fn warn_if_unlisted(remote: &Remote, root: &str, model: &str) {
    let listed = tokio::time::timeout(THERE_WITHIN, models(remote, root)).await;
    if let Ok(Ok(names)) = listed
        && !names.is_empty()
        && !names.iter().any(|name| name == model)
    {
        tracing::warn!(
            "{} does not list `{model}` (`engine.served_model`) among its models: {}",
            remote.base(),
            names[..names.len().min(8)].join(", ")
        );
    }
}

async fn only_model(remote: &Remote, root: &str) -> Result<String, EngineError> {
    let names = models(remote, root).await?;
    match &names[..] {
        [name] => Ok(name.clone()),
        _ => Err(EngineError::Invalid(format!(
            "{} serves {} models ({}): name the one to ask as `engine.served_model` (`--set engine.served_model=NAME`)",
            remote.base(),
            names.len(),
            names[..names.len().min(8)].join(", ")
        ))),
    }
}

/// A message as the API takes it: arguments are JSON texts, and thinking is the model's own affair.
fn message(message: &Message) -> Value {
    let mut value = json!({ "role": message.role, "content": message.content });
    if message.role == Role::Assistant && !message.tool_calls.is_empty() {
        if message.content.is_empty() {
            value["content"] = Value::Null;
        }
        let calls = message.tool_calls.iter().enumerate().map(|(index, call)| {
            let arguments = match &call.function.arguments {
                Value::String(text) => text.clone(),
                arguments => arguments.to_string(),
            };
            json!({
                "id": call.id.clone().unwrap_or_else(|| format!("call_{index}")),
                "type": "function",
                "function": {"name": call.function.name, "arguments": arguments},
            })
        });
        value["tool_calls"] = calls.collect();
    }
    if let (Role::Tool, Some(id)) = (message.role, &message.tool_call_id) {
        value["tool_call_id"] = id.as_str().into();
    }
    value
}
