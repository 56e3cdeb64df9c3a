//! What vLLM's completions route is sent and what it answers, where there is no token route (shapes of 0.32).
//!
//! It says nothing of weights: tokens sampled after a publication in mid-generation are not used.

use serde::Deserialize;
use serde_json::json;

use super::tokens::{finish, open};
use crate::inference::GenerateRequest;
use crate::inference::remote::{Fault, News, Wire, WithIds};
use crate::trajectory::TokenId;

/// The route.
pub(super) const ROUTE: &str = "/v1/completions";

/// The body of `POST /v1/completions`.
pub(super) fn request<'a>(request: &'a GenerateRequest, model: &str) -> WithIds<'a> {
    let sampling = &request.sampling;
    let fields = json!({
        "model": model,
        "request_id": request.id,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        // What is not said is taken from the model's `generation_config.json` here, and would not be what trains.
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        // The server takes signed integers.
        "seed": sampling.seed >> 1,
        "logprobs": 1,
        "stop_token_ids": sampling.stop_token_ids,
        "return_token_ids": true,
        // Adding its own first token would change the prompt.
        "add_special_tokens": false,
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    WithIds {
        fields,
        name: "prompt",
        ids: &request.prompt,
    }
}

/// The id under which the server knows a request.
pub(super) fn server_id(id: &str) -> String {
    format!("cmpl-{id}-0")
}

#[derive(Debug, Deserialize)]
struct Choice {
    #[serde(default)]
    token_ids: Option<Vec<TokenId>>,
    #[serde(default)]
    prompt_token_ids: Option<Vec<TokenId>>,
    #[serde(default)]
    logprobs: Option<Logprobs>,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Logprobs {
    #[serde(default)]
    token_logprobs: Vec<Option<f32>>,
}

/// Reads the route's events. The server must say that it saw the prompt that was sent, before its first token.
pub(super) struct Completions {
    pub(super) prompt: std::sync::Arc<[TokenId]>,
    pub(super) confirmed: bool,
}

impl Wire for Completions {
    fn news(&mut self, event: &[u8]) -> Result<News, Fault> {
        let (mut news, choice) = open::<Choice>(event)?;
        let Some(choice) = choice else { return Ok(news) };
        if let Some(seen) = choice.prompt_token_ids {
            if seen[..] != self.prompt[..] {
                let at = seen.iter().zip(&self.prompt[..]).take_while(|(a, b)| a == b).count();
                return Err(format!(
                    "the server saw another prompt: {} tokens for {}, different from token {at} on",
                    seen.len(),
                    self.prompt.len()
                )
                .into());
            }
            self.confirmed = true;
        }
        news.ids = choice.token_ids.unwrap_or_default();
        if !news.ids.is_empty() && !self.confirmed {
            return Err("the server does not say which prompt it saw (`prompt_token_ids`)".into());
        }
        let logprobs = choice
            .logprobs
            .map_or_else(Vec::new, |logprobs| logprobs.token_logprobs);
        if logprobs.len() != news.ids.len() {
            return Err(format!("{} log-probs for {} tokens", logprobs.len(), news.ids.len()).into());
        }
        let present: Option<Vec<f32>> = logprobs.into_iter().collect();
        news.logprobs = present.ok_or("a token without a log-prob")?;
        news.finish = choice.finish_reason.as_deref().map(finish).transpose()?;
        Ok(news)
    }
}
