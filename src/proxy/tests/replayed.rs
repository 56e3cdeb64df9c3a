//! What real agents sent, replayed: each capture is one session, its answers are sampled again, and what the
//! agents make of ids is kept. The captures hold digests for long texts, so that equality still shows.

use super::*;
use crate::config::CaptureScope;
use crate::prompt::testing::{DROPS_THINKING, with_template};
use crate::prompt::{Message, Role, ToolCall};

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

async fn replay(name: &str, main: usize, others: usize) {
    let captured = load(name);
    let calls = captured["calls"].as_array().unwrap();
    // An identical request is a retry: it is given the same answer, and nothing is sampled for it.
    let asked: Vec<String> = calls
        .iter()
        .map(|call| json!([call["path"], call["tools"], call["body"]]).to_string())
        .collect();
    let first: Vec<usize> = (0..calls.len())
        .filter(|&index| !asked[..index].contains(&asked[index]))
        .collect();
    let answers: Vec<Message> = first.iter().map(|&index| message_of(&calls[index]["answer"])).collect();
    let texts: Vec<String> = answers.iter().map(answer_text).collect();
    let scripted = texts.iter().map(|text| text.as_str().into()).collect();
    let harness = Harness::over(with_template(DROPS_THINKING), scripted, |options| {
        options.capture = CaptureScope::All;
    })
    .await;
    let ticket = harness.open();
    let mut renamed: Vec<(String, String)> = Vec::new();
    for (index, call) in calls.iter().enumerate() {
        let mut body = call["body"].clone();
        if let Some(tools) = call["tools"].as_u64() {
            body["tools"] = captured["tools"][tools as usize].clone();
        }
        let mut body = body.to_string();
        for (theirs, ours) in &renamed {
            body = body.replace(theirs, ours);
        }
        let path = call["path"].as_str().unwrap();
        let response = harness
            .client
            .post(format!("{}{path}", ticket.url))
            .bearer_auth(&ticket.token)
            .header("content-type", "application/json")
            .body(body)
            .send()
            .await
            .unwrap();
        let status = response.status();
        let text = response.text().await.unwrap();
        assert_eq!(status, 200, "{name}, call {index}: {text}");
        if call["body"]["stream"] == true {
            let last = text.trim_end().rsplit("\n\n").next().unwrap();
            assert!(last.contains(last_event(path)), "{name}: {last}");
        }
        let number = first.iter().position(|&other| asked[other] == asked[index]).unwrap();
        let said = {
            let session = harness.proxy.0.session(&ticket.key.0).unwrap();
            let said = session.state().recording.said_up_to(number as u32).unwrap();
            said.last().unwrap().clone()
        };
        assert_eq!(
            said.content.trim(),
            answers[number].content.trim(),
            "{name}, call {index}"
        );
        assert_eq!(said.reasoning_content, answers[number].reasoning_content);
        for (sent, parsed) in call["answer"]["calls"].as_array().unwrap().iter().zip(&said.tool_calls) {
            let theirs = sent["id"].as_str().unwrap();
            let ours = parsed.id.clone().unwrap();
            for prefix in ["toolu_", "call_", ""] {
                renamed.push((format!("{prefix}{theirs}"), ours.clone()));
            }
        }
    }
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let of_main = capture.segments.iter().filter(|segment| segment.is_main_agent).count();
    let found = (of_main, capture.segments.len() - of_main);
    let shown: Vec<String> = capture
        .segments
        .iter()
        .map(|segment| harness.prompt.tokenizer().decode(&segment.response_ids))
        .collect();
    assert_eq!(found, (main, others), "{name}: {shown:#?}");
    // What trains is what was sampled, once each.
    let mut sampled: Vec<Vec<TokenId>> = texts.iter().map(|text| harness.sampled(text)).collect();
    let mut trains: Vec<TokenId> = capture.segments.iter().flat_map(trained).collect();
    let mut all: Vec<TokenId> = sampled.drain(..).flatten().collect();
    trains.sort_unstable();
    all.sort_unstable();
    assert_eq!(trains, all, "{name}");
    assert!((capture.audit.delivered_fraction - 1.0).abs() < f32::EPSILON, "{name}");
    assert_eq!(capture.ledger.total(), all.len() as u64, "{name}");
}

#[tokio::test]
async fn agents_get_the_segments_that_their_conversations_are() {
    let mut failures = Vec::new();
    // By capture: segments of the main agent, and of others.
    let expected: std::collections::BTreeMap<String, [usize; 2]> = serde_json::from_value(load("expected")).unwrap();
    assert_eq!(expected.len(), 27);
    for (name, [main, others]) in expected {
        let replayed = tokio::spawn(async move { replay(&name, main, others).await });
        if let Err(panic) = replayed.await {
            let reason = panic.into_panic();
            failures.push(reason.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
