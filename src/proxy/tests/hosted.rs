//! In front of a hosted API: every dialect is served, calls go out as Chat Completions, and nothing has token ids.

use std::collections::VecDeque;
use std::sync::Mutex;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::lost_replica::{Dialect, read};
use super::*;
use crate::inference::testing::LocalServer;
use crate::inference::{HostedApi, RemoteOptions};
use crate::trajectory::{Ledger, PolicyVersion};

/// Status, headers and body.
type Scripted = (u16, Vec<(&'static str, String)>, String);

/// What is answered next, and what was asked.
#[derive(Default)]
struct Api {
    answers: Mutex<VecDeque<Scripted>>,
    asked: Mutex<Vec<Value>>,
}

async fn complete(State(api): State<Arc<Api>>, request: axum::extract::Request) -> Response {
    if request.uri().path() == "/v1/models" {
        return json!({"data": [{"id": "big"}]}).to_string().into_response();
    }
    assert_eq!(request.uri().path(), "/v1/chat/completions");
    assert_eq!(request.headers()["authorization"], "Bearer sesame");
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    api.asked.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
    let (status, headers, body) = api.answers.lock().unwrap().pop_front().expect("an answer is scripted");
    let mut response = Body::from(body).into_response();
    *response.status_mut() = axum::http::StatusCode::from_u16(status).unwrap();
    for (name, value) in headers {
        response.headers_mut().insert(name, value.parse().unwrap());
    }
    response
}

impl Api {
    fn refuse(&self, status: u16, headers: &[(&'static str, &str)], error: &Value) {
        let headers = headers
            .iter()
            .map(|(name, value)| (*name, (*value).to_owned()))
            .collect();
        let body = json!({ "error": error }).to_string();
        self.answers.lock().unwrap().push_back((status, headers, body));
    }

    /// Chunks of one answer; each is a delta and, with the last, why it ended.
    fn stream(&self, deltas: &[Value], finish: &str) {
        let mut body = String::new();
        for (index, delta) in deltas.iter().enumerate() {
            let finish = (index + 1 == deltas.len()).then_some(finish);
            let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            body += &format!("data: {chunk}\n\n");
        }
        let usage =
            json!({"prompt_tokens": 70, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}});
        body += &format!("data: {}\n\ndata: [DONE]\n\n", json!({"choices": [], "usage": usage}));
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        self.answers.lock().unwrap().push_back((200, headers, body));
    }

    fn call(&self) {
        self.stream(
            &[
                json!({"role": "assistant", "content": ""}),
                json!({"reasoning_content": "hm"}),
                json!({"content": "Löök "}),
                json!({"content": "🦀."}),
                json!({"tool_calls": [{"index": 0, "id": "call_a", "function": {"name": "bash", "arguments": ""}}]}),
                json!({"tool_calls": [{"index": 0, "function": {"arguments": "{\"comm"}}]}),
                json!({"tool_calls": [{"index": 0, "function": {"arguments": "and\": \"cat a\"}"}}]}),
                json!({}),
            ],
            "tool_calls",
        );
    }

    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

async fn start(change: impl FnOnce(&mut ProxyOptions)) -> (Harness, Arc<Api>, LocalServer) {
    let api = Arc::new(Api::default());
    let router = axum::Router::new().fallback(complete).with_state(Arc::clone(&api));
    let server = LocalServer::start(router).await;
    let options = RemoteOptions {
        endpoint: server.url.clone(),
        api_key: Some("sesame".to_owned()),
        ca_file: None,
        experts: None,
        model: Some("big".to_owned()),
        version: PolicyVersion::default(),
        patience: Duration::from_secs(20),
    };
    let hosted = HostedApi::connect(options).await.unwrap();
    let harness = Harness::over(quickstart(), Vec::new(), |options| {
        options.source = Source::Hosted(Arc::new(hosted));
        change(options);
    });
    (harness.await, api, server)
}

#[tokio::test]
async fn every_dialect_is_served_and_nothing_trains() {
    let (harness, api, _server) = start(|options| options.sampling.temperature = 0.7).await;
    for dialect in Dialect::ALL {
        let (ticket, log, _folder) = harness.open_logged();
        let (path, body) = dialect.request();
        api.call();
        // Anthropic counts what was cached apart.
        let prompt = if matches!(dialect, Dialect::Messages) { 6 } else { 70 };
        let streamed = read(&harness, &ticket, dialect, path, &body).await;
        assert_eq!(
            (streamed.text.as_str(), streamed.sampled, streamed.prompt),
            ("Löök 🦀.", 9, prompt),
            "{dialect:?}"
        );
        let arguments: Value = serde_json::from_str(&streamed.arguments).unwrap();
        assert_eq!(arguments, json!({"command": "cat a"}), "{dialect:?}");
        let asked = api.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(
            (&asked[0]["model"], &asked[0]["max_tokens"], &asked[0]["stream"]),
            (&json!("big"), &json!(200), &json!(true))
        );
        assert_eq!(asked[0]["temperature"], 0.7);
        assert_eq!(asked[0]["tools"][0]["function"]["name"], "bash", "{dialect:?}");
        assert_eq!(asked[0].get("top_p"), None, "the usual value is left out");

        // Not streamed; and the identical request is not asked again.
        let mut whole = body.clone();
        whole["stream"] = false.into();
        whole.as_object_mut().unwrap().remove("stream_options");
        api.call();
        let url = format!("{}{path}", ticket.url);
        let send = || harness.client.post(&url).bearer_auth(&ticket.token).json(&whole).send();
        let first: Value = send().await.unwrap().json().await.unwrap();
        let second: Value = send().await.unwrap().json().await.unwrap();
        assert_eq!(first, second);
        assert!(
            first.to_string().contains("call_a") && first.to_string().contains("Löök"),
            "{first}"
        );
        assert_eq!(api.asked().len(), 1);

        let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
        assert!(capture.segments.is_empty() && capture.without_ids, "{dialect:?}");
        assert_eq!(capture.ledger.dropped[Ledger::NO_TOKEN_IDS], 18);
        assert_eq!(
            (
                capture.ledger.trained,
                capture.ledger.total(),
                capture.audit.sampled_tokens
            ),
            (0, 18, 18)
        );
        assert_eq!(
            (
                capture.audit.num_calls,
                capture.audit.num_turns,
                capture.audit.num_tool_calls
            ),
            (2, 2, 2)
        );
        let recovered = recover(&log).unwrap();
        assert_eq!(u64::from(recovered.usage.completion), capture.ledger.total());
        let again = recovered.capture(crate::config::CaptureScope::Main, crate::config::BuilderName::Segments);
        assert_eq!((again.ledger, again.messages), (capture.ledger, capture.messages));
    }
}

#[tokio::test]
async fn a_conversation_goes_on_with_its_calls_as_the_api_writes_them() {
    let (harness, api, _server) = start(|_| {}).await;
    let ticket = harness.open();
    api.call();
    let answer = harness.chat(&ticket, &request(&opening())).await;
    assert_eq!(answer["choices"][0]["message"]["reasoning_content"], "hm");
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    let mut messages = opening();
    messages.push(assistant(&answer));
    messages.push(tool_result(&answer, 0, "a: b"));
    api.stream(&[json!({"content": "Done."})], "stop");
    let answer = harness.chat(&ticket, &request(&messages)).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "Done.");
    let asked = api.asked();
    let sent = &asked[1]["messages"];
    assert_eq!(
        sent[2]["tool_calls"][0]["function"]["arguments"],
        "{\"command\":\"cat a\"}"
    );
    assert_eq!(
        (&sent[2]["tool_calls"][0]["id"], &sent[3]["tool_call_id"]),
        (&json!("call_a"), &json!("call_a"))
    );
    assert_eq!(
        (&sent[3]["role"], &sent[3]["content"]),
        (&json!("tool"), &json!("a: b"))
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let transcript: Value = serde_json::from_str(&capture.messages).unwrap();
    assert_eq!(
        transcript.as_array().unwrap().len(),
        5,
        "one conversation: {transcript}"
    );
}

#[tokio::test]
async fn refusals_keep_their_status_and_what_they_say() {
    let (harness, api, _server) = start(|_| {}).await;
    let ticket = harness.open();
    for (number, (status, error, expected)) in [
        (400, json!({"message": "no such thing"}), 400),
        (422, json!({"message": "no such thing"}), 422),
        (429, json!({"message": "slow down"}), 429),
        (503, json!({"message": "busy"}), 503),
        (529, json!({"message": "overloaded"}), 529),
        // Our key and our model, not the agent's.
        (401, json!({"message": "bad key"}), 401),
        (404, json!({"message": "no model `big`"}), 404),
    ]
    .into_iter()
    .enumerate()
    {
        api.refuse(status, &[("retry-after", "17")], &error);
        let body = request(&[json!({"role": "user", "content": number.to_string()})]);
        let response = harness.post(&ticket, &body).send().await.unwrap();
        assert_eq!(response.status(), expected);
        let after = response
            .headers()
            .get("retry-after")
            .and_then(|value| value.to_str().ok());
        let again = matches!(status, 429 | 503 | 529);
        assert_eq!(after, again.then_some("17"), "{status}");
        let said: Value = response.json().await.unwrap();
        let message = said["error"]["message"].as_str().unwrap();
        assert!(message.contains(error["message"].as_str().unwrap()), "{said}");
    }
    let long = json!({"code": "context_length_exceeded", "message": "This model\'s maximum context length is 8192 tokens. \
        However, your messages resulted in 9000 tokens."});
    api.refuse(400, &[], &long);
    let url = format!("{}/v1/messages", ticket.url);
    let body = json!({"max_tokens": 10, "messages": [{"role": "user", "content": "long"}]});
    let sent = harness.client.post(url).bearer_auth(&ticket.token).json(&body).send();
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 400);
    let said: Value = response.json().await.unwrap();
    assert_eq!(
        said["error"]["message"],
        "prompt is too long: 9000 tokens > 8192 maximum"
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert!(capture.context_overflow);
    // 429, 503, 529, 401 and 404 are nothing that the agent did.
    assert_eq!(capture.n_engine_errors, 5);
}

#[tokio::test]
async fn what_the_apis_filter_ended_says_so_in_every_dialect() {
    let (harness, api, _server) = start(|_| {}).await;
    let ticket = harness.open();
    for (path, body, place, reason) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "a"}]}),
            "/choices/0/finish_reason",
            "content_filter",
        ),
        (
            "/v1/messages",
            json!({"max_tokens": 9, "messages": [{"role": "user", "content": "b"}]}),
            "/stop_reason",
            "refusal",
        ),
        (
            "/v1/responses",
            json!({"input": "c"}),
            "/incomplete_details/reason",
            "content_filter",
        ),
    ] {
        api.stream(&[json!({"content": "I"}), json!({})], "content_filter");
        let sent = harness.client.post(format!("{}{path}", ticket.url));
        let answer = sent.bearer_auth(&ticket.token).json(&body).send().await.unwrap();
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer.pointer(place), Some(&json!(reason)), "{answer}");
    }
}

#[tokio::test]
async fn health_is_that_of_what_is_asked() {
    let (harness, _api, server) = start(|_| {}).await;
    let health = async || {
        let answer = harness
            .client
            .get(format!("{}/health", harness.url))
            .send()
            .await
            .unwrap();
        answer.status().as_u16()
    };
    assert_eq!(health().await, 200);
    drop(server);
    let mut status = 200;
    for _ in 0..100 {
        status = health().await;
        if status != 200 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(status, 503);
}

#[tokio::test]
async fn what_the_api_does_otherwise_is_taken() {
    let (harness, api, _server) = start(|_| {}).await;
    let ticket = harness.open();
    let ask = |text: &str| request(&[json!({"role": "user", "content": text})]);
    // A model that knows another name for the limit.
    api.refuse(400, &[], &json!({"message": "Use 'max_completion_tokens' instead."}));
    api.stream(&[json!({"content": "a"})], "stop");
    harness.chat(&ticket, &ask("1")).await;
    api.stream(&[json!({"content": "b"})], "length");
    let cut = harness.chat(&ticket, &ask("2")).await;
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    let asked = api.asked();
    let limits: Vec<bool> = asked
        .iter()
        .map(|body| body.get("max_completion_tokens").is_some())
        .collect();
    assert_eq!(limits, [false, true, true]);
    // A server that does not stream.
    let whole = json!({"choices": [{"message": {"content": "whole", "tool_calls": null}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 4}});
    let json_type = vec![("content-type", "application/json".to_owned())];
    api.answers
        .lock()
        .unwrap()
        .push_back((200, json_type, whole.to_string()));
    let answer = harness.chat(&ticket, &ask("3")).await;
    assert_eq!(
        (
            &answer["choices"][0]["message"]["content"],
            &answer["usage"]["completion_tokens"]
        ),
        (&json!("whole"), &json!(4))
    );
    // One that breaks off: the stream ends with its error, and the same request may come again.
    api.answers.lock().unwrap().push_back((
        200,
        Vec::new(),
        "data: {\"choices\":[{\"delta\":{\"content\":\"c\"}}]}\n\n".to_owned(),
    ));
    let mut body = ask("4");
    body["stream"] = true.into();
    // Whether the first piece was shown by then is a matter of time.
    let broken = harness.post(&ticket, &body).send().await.unwrap();
    let (status, text) = (broken.status().as_u16(), broken.text().await.unwrap());
    assert!(
        matches!(status, 200 | 503) && text.contains("without a finish reason"),
        "{status}: {text}"
    );
    api.stream(&[json!({"content": "c"})], "stop");
    let (events, _) = harness.stream(&ticket, &body).await;
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "stop");
    // What continues no text says so; what counts tokens guesses.
    let post = |path: &str, body: Value| {
        let url = format!("{}{path}", ticket.url);
        harness.client.post(url).bearer_auth(&ticket.token).json(&body).send()
    };
    let response = post("/v1/completions", json!({"prompt": "a"})).await.unwrap();
    assert_eq!(response.status(), 400);
    assert!(response.text().await.unwrap().contains("/v1/chat/completions"));
    let counted = post(
        "/v1/messages/count_tokens",
        json!({"messages": [{"role": "user", "content": "x".repeat(400)}]}),
    );
    let counted: Value = counted.await.unwrap().json().await.unwrap();
    assert!(
        (100..150).contains(&counted["input_tokens"].as_u64().unwrap()),
        "{counted}"
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!((capture.n_engine_errors, capture.audit.num_turns), (1, 4));
}
