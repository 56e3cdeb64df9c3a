//! HTTP to an engine in another process: bounded waits, errors with their cause, server-sent events.

use std::time::Duration;

use bytes::Bytes;
use reqwest::header::RETRY_AFTER;
use reqwest::{RequestBuilder, Response, StatusCode};
use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};
use serde_json::Value;

use super::RemoteOptions;
use crate::http_client;
use crate::inference::EngineError;
use crate::trajectory::TokenId;

/// Bytes of one server-sent event at most.
const LONGEST_EVENT: usize = 64 << 20;
const CONNECT: Duration = Duration::from_secs(10);
/// For requests that only ask or tell something.
pub(in crate::inference) const SHORT: Duration = Duration::from_secs(30);

/// A server. It holds a secret and is not to be printed.
#[derive(Clone)]
pub(in crate::inference) struct Remote {
    http: reqwest::Client,
    base: String,
    key: Option<String>,
}

impl Remote {
    /// The server that the options name; its key goes into the `Authorization` header.
    pub(in crate::inference) fn new(options: &RemoteOptions) -> Result<Self, EngineError> {
        let base = options.endpoint.trim_end_matches('/');
        let client = if base.starts_with("https:") {
            http_client::trusting(options.ca_file.as_deref())
                .map_err(|reason| EngineError::Invalid(format!("engine.ca_file: {reason}")))?
        } else {
            http_client::plain()
        };
        let unmade =
            |error: reqwest::Error| EngineError::Invalid(format!("no HTTP client for {base}: {}", chain(&error)));
        Ok(Self {
            http: client.connect_timeout(CONNECT).build().map_err(unmade)?,
            base: base.to_owned(),
            key: options.api_key.clone(),
        })
    }

    /// Where it is.
    pub(in crate::inference) fn base(&self) -> &str {
        &self.base
    }

    /// Reads a JSON document, or a text as a JSON string.
    pub(in crate::inference) async fn get(&self, path: &str) -> Result<Value, EngineError> {
        self.whole(self.http.get(self.url(path)), path, SHORT).await
    }

    /// Sends a JSON document, or nothing for null, and reads the answer, whole.
    pub(in crate::inference) async fn post(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Value, EngineError> {
        let request = self.http.post(self.url(path));
        let request = if body.is_null() { request } else { request.json(body) };
        self.whole(request, path, patience).await
    }

    /// Sends a JSON document; the answer's body is read by the caller. `patience` bounds the wait for its head.
    pub(in crate::inference) async fn open(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Duration,
    ) -> Result<Response, EngineError> {
        let opened = self.try_open(path, body, patience).await?;
        opened.map_err(|refusal| self.refused(path, &refusal))
    }

    /// As `open`; an answer that is none comes with its status.
    pub(in crate::inference) async fn try_open(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
        patience: Duration,
    ) -> Result<Result<Response, Refusal>, EngineError> {
        let sent = self.with_key(self.http.post(self.url(path)).json(body)).send();
        let response = tokio::time::timeout(patience, sent)
            .await
            .map_err(|_| self.silent(path, patience))?
            .map_err(|error| self.unreachable(path, &error))?;
        if response.status().is_success() {
            return Ok(Ok(response));
        }
        let (status, retry_after) = (response.status(), retry_after(&response));
        let body = tokio::time::timeout(SHORT, response.text()).await;
        let body = body.map_or_else(|_| String::new(), Result::unwrap_or_default);
        Ok(Err(Refusal::new(status, retry_after, &body)))
    }

    async fn whole(&self, request: RequestBuilder, path: &str, patience: Duration) -> Result<Value, EngineError> {
        let answer = async {
            let response = self
                .with_key(request)
                .send()
                .await
                .map_err(|error| self.unreachable(path, &error))?;
            let (status, retry_after) = (response.status(), retry_after(&response));
            let body = response.text().await.map_err(|error| self.unreachable(path, &error))?;
            if !status.is_success() {
                return Err(self.refused(path, &Refusal::new(status, retry_after, &body)));
            }
            Ok(serde_json::from_str(&body).unwrap_or(Value::String(body)))
        };
        let answer = tokio::time::timeout(patience, answer).await;
        answer.unwrap_or_else(|_| Err(self.silent(path, patience)))
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn with_key(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    fn silent(&self, path: &str, patience: Duration) -> EngineError {
        self.unavailable(path, &format!("no answer within {patience:?}"), None)
    }

    fn unreachable(&self, path: &str, error: &reqwest::Error) -> EngineError {
        let mut reason = chain(error);
        if reason.contains("UnknownIssuer") {
            reason += " (name the file of the authority that signed its certificate as `engine.ca_file`, or in SSL_CERT_FILE)";
        }
        self.unavailable(path, &reason, None)
    }

    fn unavailable(&self, path: &str, reason: &str, retry_after: Option<Duration>) -> EngineError {
        EngineError::Unavailable {
            reason: format!("{}{path}: {reason}", self.base),
            retry_after,
        }
    }

    /// Whether this is the server's answer with this status.
    pub(in crate::inference) fn answered(error: &EngineError, status: u16) -> bool {
        matches!(error, EngineError::Invalid(reason) if reason.contains(&format!(" answers {status} ")))
    }

    /// 4xx is the request's fault and is not tried again, but for 408 and 429.
    fn refused(&self, path: &str, refusal: &Refusal) -> EngineError {
        let Refusal { status, message, .. } = refusal;
        let again = matches!(*status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        if status.is_client_error() && !again {
            return EngineError::Invalid(format!("{}{path} answers {status}: {message}", self.base));
        }
        self.unavailable(path, &format!("{status}: {message}"), refusal.retry_after)
    }
}

/// A request's fields, and the ids of a prompt, which are many and are written as they lie.
pub(in crate::inference) struct WithIds<'a> {
    pub(in crate::inference) fields: Value,
    /// Their name.
    pub(in crate::inference) name: &'static str,
    pub(in crate::inference) ids: &'a [TokenId],
}

impl Serialize for WithIds<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in self.fields.as_object().into_iter().flatten() {
            map.serialize_entry(key, value)?;
        }
        map.serialize_entry(self.name, self.ids)?;
        map.end()
    }
}

/// An answer that is none.
#[derive(Debug)]
pub(in crate::inference) struct Refusal {
    pub(in crate::inference) status: StatusCode,
    pub(in crate::inference) retry_after: Option<Duration>,
    /// `error.code` of a JSON body.
    pub(in crate::inference) code: Option<String>,
    /// What it says, shortened.
    pub(in crate::inference) message: String,
}

impl Refusal {
    fn new(status: StatusCode, retry_after: Option<Duration>, body: &str) -> Self {
        let json: Value = serde_json::from_str(body).unwrap_or_default();
        let message = json["error"]["message"]
            .as_str()
            .or_else(|| json["message"].as_str())
            .unwrap_or(body);
        Self {
            status,
            retry_after,
            code: json["error"]["code"].as_str().map(str::to_owned),
            message: message.chars().take(500).collect(),
        }
    }
}

/// An error and its causes.
fn chain(error: &reqwest::Error) -> String {
    let first: &dyn std::error::Error = error;
    let causes = std::iter::successors(Some(first), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// What a `data:` line holds.
pub(in crate::inference) enum Payload {
    Event(Bytes),
    /// `[DONE]`.
    Done,
}

/// The `data:` lines of a response, one after another.
pub(in crate::inference) struct ServerEvents {
    response: Response,
    buffer: Bytes,
    /// Bytes in which no line ends.
    searched: usize,
}

impl ServerEvents {
    pub(in crate::inference) fn of(response: Response) -> Self {
        Self {
            response,
            buffer: Bytes::new(),
            searched: 0,
        }
    }

    /// What `next` would give without waiting.
    pub(in crate::inference) fn ready(&mut self) -> Option<Payload> {
        while let Some(length) = self.buffer[self.searched..].iter().position(|&byte| byte == b'\n') {
            let line = self.buffer.split_to(self.searched + length + 1);
            self.searched = 0;
            let Some(data) = line.trim_ascii().strip_prefix(b"data:") else {
                continue;
            };
            let data = data.trim_ascii();
            return Some(if data == b"[DONE]" {
                Payload::Done
            } else {
                Payload::Event(line.slice_ref(data))
            });
        }
        self.searched = self.buffer.len();
        None
    }

    /// The next payload; also at the end of the stream it is done. Cancelling loses nothing.
    pub(in crate::inference) async fn next(&mut self) -> Result<Payload, String> {
        loop {
            if let Some(payload) = self.ready() {
                return Ok(payload);
            }
            if self.searched > LONGEST_EVENT {
                return Err(format!("an event is longer than {LONGEST_EVENT} bytes"));
            }
            match self.response.chunk().await {
                // Most pieces end where an event does.
                Ok(Some(bytes)) if self.buffer.is_empty() => self.buffer = bytes,
                Ok(Some(bytes)) => self.buffer = [&self.buffer[..], &bytes].concat().into(),
                Ok(None) => return Ok(Payload::Done),
                Err(error) => return Err(format!("the stream broke: {error}")),
            }
        }
    }
}
