mod admin;
mod anonymous;
mod bodies;
mod capture;
mod crowd;
mod engine;
mod faults;
mod fuzz;
mod held;
mod hosted;
mod known_failures;
mod lost_embedded;
mod lost_replica;
mod messages;
mod peer;
mod refusals;
mod replayed;
mod responses;
mod retries;
mod routing;
mod streams;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::prompt::PromptBuilder;
use crate::prompt::testing::{bash_tool, quickstart};
use crate::trajectory::{Segment, TokenId};
use engine::{Answer, ScriptedEngine};

/// A served proxy over a scripted engine.
struct Harness {
    proxy: Proxy,
    engine: Arc<ScriptedEngine>,
    prompt: Arc<PromptBuilder>,
    client: reqwest::Client,
    url: String,
}

impl Harness {
    async fn new(answers: &[&str]) -> Self {
        Self::with(answers.iter().map(|&text| text.into()).collect(), |_| {}).await
    }

    async fn with(answers: Vec<Answer>, change: impl FnOnce(&mut ProxyOptions)) -> Self {
        Self::over(quickstart(), answers, change).await
    }

    async fn over(prompt: PromptBuilder, answers: Vec<Answer>, change: impl FnOnce(&mut ProxyOptions)) -> Self {
        let prompt = Arc::new(prompt);
        let engine = Arc::new(ScriptedEngine::new(Arc::clone(&prompt), answers));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let mut options = ProxyOptions::new(Arc::clone(&engine) as _, Arc::clone(&prompt), "policy", &url);
        options.keep_alive = Duration::from_millis(20);
        change(&mut options);
        let proxy = Proxy::new(options);
        let served = proxy.clone();
        tokio::spawn(async move { served.serve(listener, std::future::pending()).await });
        Self {
            proxy,
            engine,
            prompt,
            client: crate::http_client::plain().build().unwrap(),
            url,
        }
    }

    fn open(&self) -> SessionTicket {
        self.proxy.open_session(SessionOptions::default()).unwrap()
    }

    /// A session whose calls are logged; the log is gone with the folder.
    fn open_logged(&self) -> (SessionTicket, std::path::PathBuf, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("calls.jsonl");
        let options = SessionOptions {
            call_log: Some(log.clone()),
            ..SessionOptions::default()
        };
        (self.proxy.open_session(options).unwrap(), log, folder)
    }

    fn post(&self, ticket: &SessionTicket, body: &Value) -> reqwest::RequestBuilder {
        let url = format!("{}/v1/chat/completions", ticket.url);
        self.client
            .post(url)
            .bearer_auth(&ticket.token)
            .json(body)
            .timeout(Duration::from_secs(10))
    }

    async fn send(&self, ticket: &SessionTicket, body: &Value) -> (u16, Value) {
        let response = self.post(ticket, body).send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    /// A call that must succeed: the whole answer.
    async fn chat(&self, ticket: &SessionTicket, body: &Value) -> Value {
        let (status, answer) = self.send(ticket, body).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// A streamed call: its data events, `[DONE]` checked and left out; and how many comments came.
    async fn stream(&self, ticket: &SessionTicket, body: &Value) -> (Vec<Value>, usize) {
        let response = self.post(ticket, body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        parse_events(&response.text().await.unwrap())
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.prompt.tokenizer().encode(text).unwrap()
    }

    /// The ids that the engine samples for a scripted answer.
    fn sampled(&self, text: &str) -> Vec<TokenId> {
        [self.encode(text), self.prompt.tokenizer().stop_ids()].concat()
    }
}

fn served_by(options: &mut ProxyOptions, engine: Arc<dyn crate::inference::Engine>) {
    if let Source::Policy(policy) = &mut options.source {
        policy.engine = engine;
    }
}

fn parse_events(text: &str) -> (Vec<Value>, usize) {
    let blocks: Vec<&str> = text.split_terminator("\n\n").collect();
    assert_eq!(blocks.last(), Some(&"data: [DONE]"), "{text}");
    let data: Vec<&str> = blocks.iter().filter_map(|block| block.strip_prefix("data: ")).collect();
    let comments = blocks.iter().filter(|block| block.starts_with(':')).count();
    let events = data[..data.len() - 1]
        .iter()
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    (events, comments)
}

fn tool_call(command: &str) -> String {
    format!(
        "<tool_call>\n{}\n</tool_call>",
        json!({"name": "bash", "arguments": {"command": command}})
    )
}

fn request(messages: &[Value]) -> Value {
    json!({ "model": "any", "messages": messages, "tools": [bash_tool()] })
}

fn opening() -> Vec<Value> {
    vec![
        json!({"role": "system", "content": "Fix the program."}),
        json!({"role": "user", "content": "GOPI.sh must split fields at :"}),
    ]
}

/// The assistant message of an answer, as agents send it back.
fn assistant(answer: &Value) -> Value {
    answer["choices"][0]["message"].clone()
}

fn tool_result(answer: &Value, index: usize, content: &str) -> Value {
    let id = &answer["choices"][0]["message"]["tool_calls"][index]["id"];
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

fn trained(segment: &Segment) -> Vec<TokenId> {
    segment
        .response_ids
        .iter()
        .zip(&segment.response_mask)
        .filter(|(_, mask)| **mask == 1)
        .map(|(id, _)| *id)
        .collect()
}

/// Waits for something that another task does.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}
