//! What real agents sent, replayed: each capture is one session, its answers are sampled again, and what the
//! agents make of ids is kept. The captures hold digests for long texts, so that equality still shows.

use super::*;
use crate::config::CaptureScope;
use crate::prompt::testing::{DROPS_THINKING, with_template};
use crate::prompt::{Message, Role, ToolCall};
use crate::trajectory::Ledger;

fn load(name: &str) -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/proxy/tests/captures")
        .join(format!("{name}.json"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// A captured answer as a message; calls under no id.
fn message_of(answer: &Value) -> Message {
    let mut message = Message::text(Role::Assistant, answer["text"].as_str().unwrap_or_default());
    message.reasoning_content = answer["think"].as_str().map(str::to_owned);
    for call in answer["calls"].as_array().into_iter().flatten() {
        let name = call["name"].as_str().unwrap();
        message.tool_calls.push(ToolCall::new(None, name, call["args"].clone()));
    }
    message
}

/// How the policy would have sampled it.
fn answer_text(message: &Message) -> String {
    let mut text = String::new();
    if let Some(thinking) = &message.reasoning_content {
        text += &format!("<think>\n{thinking}\n</think>\n\n");
    }
    text += &message.content;
    for call in &message.tool_calls {
        let json = json!({"name": call.function.name, "arguments": call.function.arguments});
        text += &format!("\n<tool_call>\n{json}\n</tool_call>");
    }
    text
}

fn last_event(path: &str) -> &'static str {
    if path.contains("/messages") {
        "message_stop"
    } else if path.contains("/responses") {
        "response.completed"
    } else {
        "[DONE]"
    }
}

/// What a capture must become.
#[derive(serde::Deserialize)]
struct Expected {
    /// Segments of the main agent, and of others.
    main: usize,
    others: usize,
    /// Answers that their agent left before they ended, and never had.
    #[serde(default)]
    unseen: usize,
    rewrites: Option<u32>,
}

/// One session of a capture: most are of one.
struct Replayed {
    ticket: SessionTicket,
    /// Each request, and how the policy answered it; an identical one is a retry, which is given the same answer.
    asked: Vec<(String, Message)>,
    /// Answers of which this agent saw no end.
    unseen: Vec<usize>,
}

/// The start of what comes when an answer does.
fn first_delta(path: &str) -> &'static str {
    if path.contains("/messages") {
        "content_block_delta"
    } else if path.contains("/responses") {
        "response.output_text.delta"
    } else {
        "\"content\":\""
    }
}

/// Reads on until there is something in the text.
async fn read_until(response: &mut reqwest::Response, text: &mut String, found: impl Fn(&str) -> bool) {
    while !found(text) {
        let chunk = response.chunk().await.unwrap().expect("the stream goes on");
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
}

impl Replayed {
    fn flight(&self, harness: &Harness, call: usize) -> Arc<crate::proxy::flight::Flight> {
        let session = harness.proxy.0.session(&self.ticket.key.0).unwrap();
        let state = session.state();
        let mut flights = state.flights.values();
        Arc::clone(flights.find(|flight| flight.call as usize == call).unwrap())
    }

    /// Makes one captured call, as the agent did: to its end, or until it left.
    async fn make(&mut self, harness: &Harness, call: &Value, body: String) {
        let path = call["path"].as_str().unwrap();
        let shown = json!([path, call["tools"], call["body"]]).to_string();
        let retry = self.asked.iter().position(|(asked, _)| *asked == shown);
        let number = retry.unwrap_or_else(|| {
            self.asked.push((shown, message_of(&call["answer"])));
            self.asked.len() - 1
        });
        let sent = harness
            .client
            .post(format!("{}{path}", self.ticket.url))
            .bearer_auth(&self.ticket.token)
            .header("content-type", "application/json")
            .body(body);
        let mut response = sent.send().await.unwrap();
        let (status, mut text) = (response.status(), String::new());
        if call["left"] == true {
            read_until(&mut response, &mut text, |text| text.contains(first_delta(path))).await;
            drop(response);
            let flight = self.flight(harness, number);
            eventually("the proxy sees that it left", || flight.watched() == 0).await;
            harness.engine.release.add_permits(1);
            eventually("the answer ends", || flight.has_answered()).await;
            self.unseen.push(number);
            return;
        }
        if call["stalls"] == true {
            let pings = |text: &str| text.matches("event: ping").count();
            read_until(&mut response, &mut text, |text| {
                text.contains(first_delta(path)) && pings(text) > 2
            })
            .await;
            harness.engine.release.add_permits(1);
        }
        text += &response.text().await.unwrap();
        self.unseen.retain(|&unseen| unseen != number);
        assert_eq!(status, 200, "{text}");
        if call["body"]["stream"] == true {
            let last = text.trim_end().rsplit("\n\n").next().unwrap();
            assert!(last.contains(last_event(path)), "{last}");
        }
    }

    /// What was recorded of the last answer must be what was sampled; each call's id by the capture's and by ours.
    fn ids(&self, harness: &Harness, call: &Value) -> Vec<(String, String)> {
        let shown = json!([call["path"], call["tools"], call["body"]]).to_string();
        let number = self.asked.iter().position(|(asked, _)| *asked == shown).unwrap();
        let said = {
            let session = harness.proxy.0.session(&self.ticket.key.0).unwrap();
            let said = session.state().recording.said_up_to(number as u32).unwrap();
            said.last().unwrap().clone()
        };
        let answer = &self.asked[number].1;
        assert_eq!(said.content.trim(), answer.content.trim(), "call {number}");
        assert_eq!(said.reasoning_content, answer.reasoning_content);
        let theirs = call["answer"]["calls"].as_array().unwrap().iter();
        let pairs = theirs.zip(&said.tool_calls).flat_map(|(sent, parsed)| {
            let theirs = sent["id"].as_str().unwrap();
            let ours = parsed.id.clone().unwrap();
            ["toolu_", "call_", ""].map(|prefix| (format!("{prefix}{theirs}"), ours.clone()))
        });
        pairs.collect()
    }

    async fn end(self, harness: &Harness, expected: &Expected) {
        let capture = harness.proxy.close_session(&self.ticket.key).await.unwrap();
        let of_main = capture.segments.iter().filter(|segment| segment.is_main_agent).count();
        let found = (of_main, capture.segments.len() - of_main);
        let shown: Vec<String> = capture
            .segments
            .iter()
            .map(|segment| harness.prompt.tokenizer().decode(&segment.response_ids))
            .collect();
        assert_eq!(found, (expected.main, expected.others), "{shown:#?}");
        assert_eq!(self.unseen.len(), expected.unseen);
        if let Some(rewrites) = expected.rewrites {
            assert_eq!(capture.audit.n_rewrites, rewrites);
        }
        // What trains is what was sampled, once each, but for what its agent did not wait for.
        let answers = self
            .asked
            .iter()
            .map(|(_, answer)| harness.sampled(&answer_text(answer)));
        let (unseen, seen): (Vec<_>, Vec<_>) = answers
            .enumerate()
            .partition(|(number, _)| self.unseen.contains(number));
        let mut sampled: Vec<TokenId> = seen.into_iter().flat_map(|(_, ids)| ids).collect();
        let lost: usize = unseen.iter().map(|(_, ids)| ids.len()).sum();
        let mut trains: Vec<TokenId> = capture.segments.iter().flat_map(trained).collect();
        trains.sort_unstable();
        sampled.sort_unstable();
        assert_eq!(trains, sampled);
        let dropped = capture.ledger.dropped.get(Ledger::UNSEEN).copied().unwrap_or_default();
        assert_eq!((dropped, capture.ledger.aborted), (lost as u64, 0));
        assert_eq!(capture.ledger.total(), (sampled.len() + lost) as u64);
        let delivered = sampled.len() as f32 / (sampled.len() + lost) as f32;
        assert!((capture.audit.delivered_fraction - delivered).abs() < 1e-6);
    }
}

async fn replay(name: &str, expected: &Expected) {
    let captured = load(name);
    let calls = captured["calls"].as_array().unwrap();
    let shown = |call: &Value| json!([call["session"], call["path"], call["tools"], call["body"]]);
    let first = calls.iter().enumerate().filter(|&(index, call)| {
        call["method"] != "HEAD" && !calls[..index].iter().any(|earlier| shown(earlier) == shown(call))
    });
    let prompts = with_template(DROPS_THINKING);
    let scripted = first.map(|(_, call)| {
        let text = answer_text(&message_of(&call["answer"]));
        let halfway = prompts.tokenizer().encode(&text).unwrap().len() / 2;
        let held = call["left"] == true || call["stalls"] == true;
        Answer {
            hold_after: held.then_some(halfway),
            ..Answer::from(&*text)
        }
    });
    let scripted = scripted.collect();
    let harness = Harness::over(prompts, scripted, |options| options.capture = CaptureScope::All).await;
    let mut sessions: std::collections::BTreeMap<String, Replayed> = std::collections::BTreeMap::new();
    let mut renamed: Vec<(String, String)> = Vec::new();
    for call in calls {
        let named = call["session"].as_str().unwrap_or_default().to_owned();
        let session = sessions.entry(named).or_insert_with(|| Replayed {
            ticket: harness.open(),
            asked: Vec::new(),
            unseen: Vec::new(),
        });
        if call["method"] == "HEAD" {
            for url in [&format!("{}/", harness.url), &session.ticket.url] {
                assert_eq!(harness.client.head(url).send().await.unwrap().status(), 200);
            }
            continue;
        }
        let mut body = call["body"].clone();
        if let Some(tools) = call["tools"].as_u64() {
            body["tools"] = captured["tools"][tools as usize].clone();
        }
        let mut body = body.to_string();
        for (theirs, ours) in &renamed {
            body = body.replace(theirs, ours);
        }
        session.make(&harness, call, body).await;
        renamed.extend(session.ids(&harness, call));
    }
    for session in sessions.into_values() {
        session.end(&harness, expected).await;
    }
}

#[tokio::test]
async fn agents_get_the_segments_that_their_conversations_are() {
    let mut failures = Vec::new();
    let expected: std::collections::BTreeMap<String, Expected> = serde_json::from_value(load("expected")).unwrap();
    assert_eq!(expected.len(), 35);
    for (name, expected) in expected {
        let capture = name.clone();
        let replayed = tokio::spawn(async move { replay(&capture, &expected).await });
        if let Err(panic) = replayed.await {
            let reason = panic.into_panic();
            failures.push(format!(
                "{name}: {}",
                reason.downcast_ref::<String>().cloned().unwrap_or_default()
            ));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Gemini's own API is not served: its client is told so, and what there is.
#[tokio::test]
async fn a_dialect_that_is_not_served_is_refused_with_the_routes_there_are() {
    let captured = load("gemini-hello");
    let harness = Harness::new(&[]).await;
    let ticket = harness.open();
    for call in captured["calls"].as_array().unwrap() {
        let path = call["path"].as_str().unwrap();
        let sent = harness.client.post(format!("{}{path}", ticket.url));
        let response = sent.header("x-goog-api-key", &ticket.token).json(&call["body"]).send();
        let response = response.await.unwrap();
        assert_eq!(response.status(), 404);
        assert_eq!(response.headers()["x-should-retry"], "false");
        let refusal: Value = response.json().await.unwrap();
        let said = refusal["error"]["message"].as_str().unwrap();
        let path = path.split('?').next().unwrap();
        for part in [
            path,
            "/v1/chat/completions",
            "/v1/completions",
            "/v1/messages",
            "/v1/messages/count_tokens",
            "/v1/responses",
            "/v1/models",
        ] {
            assert!(said.contains(part), "{said}");
        }
    }
    assert!(
        harness
            .proxy
            .close_session(&ticket.key)
            .await
            .unwrap()
            .segments
            .is_empty()
    );
}
