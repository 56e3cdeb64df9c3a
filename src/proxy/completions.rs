//! The legacy Completions dialect: a prompt of text or token ids is continued as it is, with no template.

use axum::body::Body;
use axum::http::Response;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::ProxyOptions;
use super::body::RequestBody;
use super::caller::Caller;
use super::dialect::fields::{self, expected};
use super::dialect::{Answered, ErrorShape, Writer, answer, answer_id, unnamed_event};
use super::error::ApiError;
use super::flight::{FlightEnd, FlightState, News};
use super::session::{ModelRequest, RawPrompt, Session};
use crate::inference::EngineUsage;
use crate::prompt::{AnswerEvent, Message, Role, Tokenizer};
use crate::trajectory::{FinishReason, TokenId};

/// Serves one request of a session.
pub(super) async fn serve(caller: &Caller<'_>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let (request, streamed, mut writer) = parse(&body.bytes, caller.proxy())?;
    answer(caller, body, request, streamed, |session, call| {
        writer.id = answer_id("cmpl-", session, call);
        writer
    })
    .await
}

fn parse(body: &[u8], proxy: &ProxyOptions) -> Result<(ModelRequest, bool, CompletionWriter), ApiError> {
    let Some(tokenizer) = proxy.tokenizer() else {
        return Err(ApiError::messages_only());
    };
    let mut fields = fields::object(body)?;
    let digest = fields::digest(&fields);
    for key in ["n", "best_of"] {
        if let Some(n) = fields.get(key).filter(|n| !n.is_null() && n.as_u64() != Some(1)) {
            return Err(ApiError::field(key, &format!("only 1 is supported, found {n}")));
        }
    }
    let prompt = prompt(fields.remove("prompt"), tokenizer)?;
    let empty = match &prompt {
        RawPrompt::Text(text) => text.is_empty(),
        RawPrompt::Ids(ids) => ids.is_empty(),
    };
    if empty {
        return Err(ApiError::field("prompt", "expected at least one token"));
    }
    let said = match &prompt {
        RawPrompt::Text(text) => text.clone(),
        RawPrompt::Ids(ids) => tokenizer.decode(ids),
    };
    let request = ModelRequest {
        endpoint: "openai_completions",
        digest,
        messages: vec![Message::text(Role::User, said.clone())],
        tools: None,
        calls_allowed: false,
        max_tokens: fields::limit(&fields, "max_tokens")?,
        temperature: fields::temperature(&fields)?,
        top_p: fields::top_p(&fields)?,
        top_k: fields::top_k(&fields)?,
        stops: fields::stops(&fields, "stop")?,
        share: None,
        raw: Some(prompt),
    };
    let writer = CompletionWriter {
        id: String::new(),
        created: Timestamp::now().as_second(),
        model: fields::model(&fields, &proxy.model),
        echo: fields::flag(&fields, "echo")?.then_some(said),
        return_token_ids: fields::flag(&fields, "return_token_ids")?,
        logprobs: wants_logprobs(&fields),
        include_usage: fields
            .get("stream_options")
            .is_some_and(|options| options["include_usage"] == true),
    };
    Ok((request, fields::flag(&fields, "stream")?, writer))
}

/// `logprobs` is the number of alternatives here; 0 asks for those of what was sampled.
fn wants_logprobs(fields: &Map<String, Value>) -> bool {
    fields
        .get("logprobs")
        .is_some_and(|wanted| wanted.is_u64() || wanted == true)
}

fn prompt(value: Option<Value>, tokenizer: &Tokenizer) -> Result<RawPrompt, ApiError> {
    let list = match value {
        Some(Value::String(text)) => return Ok(RawPrompt::Text(text)),
        Some(Value::Array(list)) => list,
        None => return Err(ApiError::field("prompt", "is missing")),
        Some(other) => return Err(expected("prompt", "a string or a list of token ids", &other)),
    };
    if let [one @ (Value::String(_) | Value::Array(_))] = list.as_slice() {
        return prompt(Some(one.clone()), tokenizer);
    }
    let vocabulary = tokenizer.vocab_size() as u64;
    let ids = list
        .iter()
        .map(|id| match id.as_u64().filter(|&id| id < vocabulary) {
            Some(id) => Ok(id as TokenId),
            None => Err(expected(
                "prompt",
                &format!("one prompt, as a string or as token ids below {vocabulary}"),
                id,
            )),
        })
        .collect::<Result<_, _>>()?;
    Ok(RawPrompt::Ids(ids))
}

/// Writes one answer.
struct CompletionWriter {
    id: String,
    created: i64,
    model: String,
    /// The prompt's text, where the client wants it back.
    echo: Option<String>,
    return_token_ids: bool,
    logprobs: bool,
    include_usage: bool,
}

impl CompletionWriter {
    fn object(&self, text: &str, finish: Option<FinishReason>) -> Value {
        let finish_reason = finish.map(|finish| {
            if finish == FinishReason::Length {
                "length"
            } else {
                "stop"
            }
        });
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": [{ "index": 0, "text": text, "logprobs": null, "finish_reason": finish_reason }],
        })
    }

    fn add_tokens(&self, object: &mut Value, session: &Session, ids: &[TokenId], logprobs: &[f32]) {
        let choice = &mut object["choices"][0];
        if self.return_token_ids {
            choice["token_ids"] = ids.into();
        }
        if let Some(tokenizer) = session.proxy.tokenizer()
            && self.logprobs
            && ids.len() == logprobs.len()
        {
            let tokens: Vec<String> = ids
                .iter()
                .map(|&id| String::from_utf8_lossy(&tokenizer.token_bytes(id)).into_owned())
                .collect();
            choice["logprobs"] = json!({ "tokens": tokens, "token_logprobs": logprobs });
        }
    }
}

fn usage_object(usage: EngineUsage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    })
}

fn text_of(events: &[AnswerEvent]) -> String {
    events
        .iter()
        .filter_map(|event| match event {
            AnswerEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

impl Writer for CompletionWriter {
    const ERRORS: ErrorShape = ErrorShape::OpenAi;

    fn whole(&self, session: &Session, answered: &Answered<'_>) -> Value {
        let text = self.echo.clone().unwrap_or_default() + &text_of(&answered.state.events);
        let mut object = self.object(&text, Some(answered.finish));
        self.add_tokens(&mut object, session, &answered.state.ids, &answered.state.logprobs);
        if self.return_token_ids {
            object["choices"][0]["prompt_token_ids"] = answered.state.prompt.as_ref().into();
        }
        object["usage"] = usage_object(answered.usage);
        object
    }

    fn begin(&mut self, out: &mut Vec<u8>, _: &FlightState) {
        match &self.echo {
            Some(prompt) => unnamed_event(out, &self.object(prompt, None)),
            None => self.keep_alive(out),
        }
    }

    fn news(&mut self, out: &mut Vec<u8>, session: &Session, news: &News) {
        let text = text_of(&news.events);
        let wants_tokens = (self.return_token_ids || self.logprobs) && !news.ids.is_empty();
        if text.is_empty() && !wants_tokens {
            return;
        }
        let mut object = self.object(&text, None);
        self.add_tokens(&mut object, session, &news.ids, &news.logprobs);
        unnamed_event(out, &object);
    }

    fn end(&mut self, out: &mut Vec<u8>, _: &FlightState, end: &FlightEnd) {
        match end {
            FlightEnd::Answered { finish, usage, .. } => {
                unnamed_event(out, &self.object("", Some(*finish)));
                if self.include_usage {
                    let mut object = self.object("", None);
                    object["choices"] = Value::Array(Vec::new());
                    object["usage"] = usage_object(*usage);
                    unnamed_event(out, &object);
                }
            }
            FlightEnd::Failed(error) => unnamed_event(out, &Self::ERRORS.body(error)),
        }
        out.extend_from_slice(b"data: [DONE]\n\n");
    }

    fn keep_alive(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(b": keep-alive\n\n");
    }
}
