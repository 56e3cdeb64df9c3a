//! What `SGLang`'s `/generate` is sent and what it answers (shapes of 0.5).
//!
//! A stream's events tell everything so far, or only what is new, by a flag of the server, and ids and log-probs need
//! not do the same. The count of tokens in each event says which it is.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::inference::remote::{Fault, News, Span, Wire, WithIds, parsed, said};
use crate::inference::{EngineUsage, GenerateRequest};
use crate::trajectory::{FinishReason, TokenId};

/// The route.
pub(super) const ROUTE: &str = "/generate";

/// The body of `POST /generate`.
pub(super) fn request(request: &GenerateRequest) -> WithIds<'_> {
    let sampling = &request.sampling;
    let mut fields = json!({
        "rid": request.id,
        "sampling_params": {
            "max_new_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "stop_token_ids": sampling.stop_token_ids,
            // Signed, 32 bits; counts where the server samples deterministically.
            "sampling_seed": sampling.seed >> 33,
        },
        "return_logprob": true,
        "stream": true,
    });
    if let Some(from) = request.routing_from {
        fields["return_routed_experts"] = true.into();
        fields["routed_experts_start_len"] = from.into();
    }
    WithIds {
        fields,
        name: "input_ids",
        ids: &request.prompt,
    }
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    output_ids: Vec<TokenId>,
    #[serde(default)]
    meta_info: Option<Meta>,
    #[serde(default)]
    error: Option<Value>,
}

/// Log-prob, id, text.
type Logprob = (Option<f32>, TokenId, Option<String>);

#[derive(Debug, Deserialize)]
struct Meta {
    prompt_tokens: u32,
    completion_tokens: u32,
    #[serde(default)]
    cached_tokens: Option<u32>,
    #[serde(default)]
    finish_reason: Option<Finished>,
    #[serde(default)]
    output_token_logprobs: Option<Vec<Logprob>>,
    #[serde(default)]
    routed_experts: Option<String>,
    #[serde(default)]
    weight_version: Option<String>,
    #[serde(default)]
    weight_versions: Option<Vec<Span>>,
}

#[derive(Debug, Deserialize)]
struct Finished {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    status_code: Option<u16>,
}

/// Reads the route's events.
#[derive(Default)]
pub(super) struct Generate {
    seen: usize,
}

impl Wire for Generate {
    fn news(&mut self, event: &[u8]) -> Result<News, Fault> {
        let event: Event = parsed(event)?;
        if let Some(error) = event.error {
            return Err(Fault::Failed(said(&error)));
        }
        let meta = event.meta_info.ok_or("an event without `meta_info`")?;
        let total = meta.completion_tokens as usize;
        let ids = self.fresh(event.output_ids, total, "ids")?;
        let logprobs = self.fresh(meta.output_token_logprobs.unwrap_or_default(), total, "log-probs")?;
        let mut news = News {
            finish: meta.finish_reason.map(finish).transpose()?,
            versions: meta.weight_versions,
            routing: meta.routed_experts,
            label: meta.weight_version,
            usage: Some(EngineUsage {
                prompt: meta.prompt_tokens,
                cached: meta.cached_tokens.unwrap_or(0),
                completion: meta.completion_tokens,
            }),
            ..News::default()
        };
        for (id, (logprob, named, _)) in ids.iter().zip(logprobs) {
            if *id != named {
                return Err(format!("token {id} comes with the log-prob of {named}").into());
            }
            news.logprobs
                .push(logprob.ok_or_else(|| format!("token {id} without a log-prob"))?);
        }
        news.ids = ids;
        self.seen = total;
        // Only what is said at the end is said of the whole answer.
        if news.finish.is_none() {
            news.versions = None;
            news.routing = None;
        }
        Ok(news)
    }
}

impl Generate {
    /// What is new in a list of which `total` have come by now.
    fn fresh<T>(&self, mut list: Vec<T>, total: usize, what: &str) -> Result<Vec<T>, String> {
        let new = total.checked_sub(self.seen);
        match new {
            Some(_) if list.len() == total => Ok(list.split_off(self.seen)),
            Some(new) if list.len() == new => Ok(list),
            _ => Err(format!(
                "{} {what}, where {} of {total} tokens had come before",
                list.len(),
                self.seen
            )),
        }
    }
}

fn finish(finished: Finished) -> Result<FinishReason, Fault> {
    match (finished.kind.as_str(), finished.status_code) {
        ("stop", _) => Ok(FinishReason::Stop),
        ("length", _) => Ok(FinishReason::Length),
        // An error of the server's ends as an abort with a status.
        ("abort", Some(status)) if status >= 400 => Err(Fault::Failed(format!(
            "it ended with status {status}: {}",
            finished.message.unwrap_or_default()
        ))),
        ("abort", _) => Ok(FinishReason::Abort),
        (other, _) => Err(format!("finish reason `{other}`").into()),
    }
}
