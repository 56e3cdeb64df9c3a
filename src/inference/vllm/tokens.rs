//! What vLLM's token route is sent and what it answers (shapes of 0.32).

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::inference::remote::{Fault, News, Span, Wire, WithIds, parsed, said};
use crate::inference::{EngineUsage, GenerateRequest};
use crate::trajectory::{FinishReason, TokenId};

/// The route.
pub(super) const ROUTE: &str = "/inference/v1/generate";

/// The body of `POST /inference/v1/generate`.
pub(super) fn request(request: &GenerateRequest) -> WithIds<'_> {
    let sampling = &request.sampling;
    let mut fields = json!({
        "request_id": request.id,
        "sampling_params": {
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            // The server takes signed integers.
            "seed": sampling.seed >> 1,
            // Of the sampled token alone.
            "logprobs": 0,
            "stop_token_ids": sampling.stop_token_ids,
        },
        "return_token_ids": true,
        "output_mode": "tokens",
        "stream": true,
        // A stream has no usage unless it is asked for.
        "stream_options": {"include_usage": true},
    });
    // It sends the experts where it was started with `--enable-return-routed-experts`.
    if let Some(from) = request.routing_from {
        fields["sampling_params"]["routed_experts_prompt_start"] = from.into();
    }
    WithIds {
        fields,
        name: "token_ids",
        ids: &request.prompt,
    }
}

/// The id under which the server knows a request; the bare one is accepted and does nothing.
pub(super) fn server_id(id: &str) -> String {
    format!("generate-tokens-{id}")
}

/// One event of the stream; the last ones carry the end, the versions and the usage.
#[derive(Debug, Deserialize)]
struct Chunk<C> {
    #[serde(default = "Vec::new")]
    choices: Vec<C>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    error: Option<Value>,
}

/// What the events of both routes have in common: an error, the usage, and one choice.
pub(super) fn open<C: DeserializeOwned>(event: &[u8]) -> Result<(News, Option<C>), Fault> {
    let chunk: Chunk<C> = parsed(event)?;
    if let Some(error) = chunk.error {
        // What is wrong with the request stays wrong. The status had been sent before it was looked at.
        return Err(if error["code"] == 400 {
            Fault::Contradicts(said(&error))
        } else {
            Fault::Failed(said(&error))
        });
    }
    let news = News {
        usage: chunk.usage.map(EngineUsage::from),
        ..News::default()
    };
    Ok((news, chunk.choices.into_iter().next()))
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    token_ids: Option<Vec<TokenId>>,
    #[serde(default)]
    logprobs: Option<Logprobs>,
    #[serde(default)]
    finish_reason: Option<String>,
    #[serde(default)]
    routed_experts: Option<String>,
    #[serde(default)]
    weight_versions: Option<Vec<Span>>,
}

#[derive(Debug, Deserialize)]
struct Logprobs {
    #[serde(default)]
    content: Vec<Logprob>,
}

#[derive(Debug, Deserialize)]
struct Logprob {
    #[serde(default)]
    token_id: Option<TokenId>,
    logprob: f32,
}

#[derive(Debug, Deserialize)]
struct Usage {
    prompt_tokens: u32,
    #[serde(default)]
    completion_tokens: u32,
    #[serde(default)]
    prompt_tokens_details: Option<Details>,
}

#[derive(Debug, Deserialize)]
struct Details {
    #[serde(default)]
    cached_tokens: Option<u32>,
}

impl From<Usage> for EngineUsage {
    fn from(usage: Usage) -> Self {
        let details = usage.prompt_tokens_details;
        Self {
            prompt: usage.prompt_tokens,
            cached: details.and_then(|details| details.cached_tokens).unwrap_or(0),
            completion: usage.completion_tokens,
        }
    }
}

/// Reads the route's events.
pub(super) struct Tokens;

impl Wire for Tokens {
    fn news(&mut self, event: &[u8]) -> Result<News, Fault> {
        news(event)
    }
}

fn news(event: &[u8]) -> Result<News, Fault> {
    let (mut news, choice) = open::<Choice>(event)?;
    let Some(choice) = choice else { return Ok(news) };
    news.ids = choice.token_ids.unwrap_or_default();
    let logprobs = choice.logprobs.map_or_else(Vec::new, |logprobs| logprobs.content);
    if logprobs.len() != news.ids.len() {
        return Err(format!("{} log-probs for {} tokens", logprobs.len(), news.ids.len()).into());
    }
    for (logprob, id) in logprobs.iter().zip(&news.ids) {
        if logprob.token_id.is_some_and(|named| named != *id) {
            return Err(format!("token {id} comes with the log-prob of {:?}", logprob.token_id).into());
        }
    }
    news.logprobs = logprobs.into_iter().map(|logprob| logprob.logprob).collect();
    news.versions = choice.weight_versions;
    news.routing = choice.routed_experts;
    news.finish = choice.finish_reason.as_deref().map(finish).transpose()?;
    Ok(news)
}

/// Why it ended.
pub(super) fn finish(name: &str) -> Result<FinishReason, String> {
    match name {
        "stop" => Ok(FinishReason::Stop),
        "length" => Ok(FinishReason::Length),
        "abort" => Ok(FinishReason::Abort),
        other => Err(format!("finish reason `{other}`")),
    }
}
