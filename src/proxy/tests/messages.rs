//! The Messages dialect.

use super::*;
use crate::prompt::testing::{DROPS_THINKING, with_template};
use crate::trajectory::FinishReason;

async fn post(harness: &Harness, ticket: &SessionTicket, path: &str, body: &Value) -> (u16, String) {
    let request = harness.client.post(format!("{}{path}", ticket.url));
    let response = request
        .header("x-api-key", &ticket.token)
        .json(body)
        .send()
        .await
        .unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn ask(harness: &Harness, ticket: &SessionTicket, body: &Value) -> Value {
    let (status, text) = post(harness, ticket, "/v1/messages?beta=true", body).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn bash() -> Value {
    json!({"name": "bash", "description": "Run", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}})
}

fn body(messages: &[Value]) -> Value {
    json!({
        "model": "claude", "max_tokens": 100, "messages": messages, "tools": [bash(), {"type": "web_search_20250305", "name": "web_search"}],
        "system": [
            {"type": "text", "text": format!("x-anthropic-billing-header: cch={};", messages.len())},
            {"type": "text", "text": "Fix the program.", "cache_control": {"type": "ephemeral"}},
        ],
    })
}

/// Events by name and data; the names agree with the data.
fn events(text: &str) -> Vec<Value> {
    text.split_terminator("\n\n")
        .map(|block| {
            let (name, data) = block.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
            data
        })
        .collect()
}

/// Puts a stream together as clients do.
fn assemble(events: &[Value]) -> Value {
    let mut message = events[0]["message"].clone();
    let mut arguments = String::new();
    for event in &events[1..] {
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                let blocks = message["content"].as_array_mut().unwrap();
                assert_eq!(event["index"], blocks.len());
                blocks.push(event["content_block"].clone());
                arguments.clear();
            }
            "content_block_delta" => {
                let block = &mut message["content"][event["index"].as_u64().unwrap() as usize];
                let delta = &event["delta"];
                let (key, more) = match delta["type"].as_str().unwrap() {
                    "text_delta" => ("text", &delta["text"]),
                    "thinking_delta" => ("thinking", &delta["thinking"]),
                    "signature_delta" => ("signature", &delta["signature"]),
                    "input_json_delta" => {
                        arguments += delta["partial_json"].as_str().unwrap();
                        continue;
                    }
                    other => panic!("{other}"),
                };
                block[key] = (block[key].as_str().unwrap().to_owned() + more.as_str().unwrap()).into();
            }
            "content_block_stop" => {
                let block = &mut message["content"][event["index"].as_u64().unwrap() as usize];
                if block["type"] == "tool_use" {
                    block["input"] = serde_json::from_str(&arguments).unwrap();
                }
            }
            "message_delta" => {
                message["usage"] = event["usage"].clone();
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
            }
            "ping" | "message_stop" => {}
            other => panic!("{other}"),
        }
    }
    message
}

#[tokio::test]
async fn a_conversation_with_thinking_and_parallel_calls_is_one_segment() {
    let answers = [
        "<think>\nLook first.\n</think>\n\nLöök.".to_owned() + "\n" + &tool_call("cat a") + "\n" + &tool_call("cat b"),
        "<think>\nGood.\n</think>\n\nDone.".to_owned(),
    ];
    let scripted = answers.iter().map(|text| text.as_str().into()).collect();
    let harness = Harness::over(with_template(DROPS_THINKING), scripted, |_| {}).await;
    let ticket = harness.open();
    let mut messages = vec![json!({"role": "user", "content": "Split at :"})];
    let first = ask(&harness, &ticket, &body(&messages)).await;
    let kinds: Vec<&str> = first["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|block| block["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use", "tool_use"]);
    assert_eq!(first["stop_reason"], "tool_use");
    assert_eq!(first["content"][0]["thinking"], "Look first.");
    assert!(!first["content"][0]["signature"].as_str().unwrap().is_empty());
    assert_eq!(first["content"][2]["input"], json!({"command": "cat a"}));
    assert_eq!(first["usage"]["output_tokens"], harness.sampled(&answers[0]).len());

    messages.push(json!({"role": "assistant", "content": first["content"]}));
    let result = |index: usize, content: Value, error: bool| {
        let id = &first["content"][index]["id"];
        json!({"type": "tool_result", "tool_use_id": id, "content": content, "is_error": error, "cache_control": {"type": "ephemeral"}})
    };
    messages.push(json!({"role": "user", "content": [
        result(2, json!([{"type": "text", "text": "1:2"}]), false), result(3, json!(""), true), {"type": "text", "text": "Go on."},
    ]}));
    messages.push(json!({"role": "system", "content": "Be quick."}));
    let mut second = body(&messages);
    second["stream"] = true.into();
    let (status, text) = post(&harness, &ticket, "/v1/v1/messages", &second).await;
    assert_eq!(status, 200, "{text}");
    let events = events(&text);
    assert_eq!(
        (&events[0]["type"], &events[1]["type"]),
        (&json!("message_start"), &json!("ping"))
    );
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let streamed = assemble(&events);
    assert_eq!(streamed["content"][0]["thinking"], "Good.");
    assert_eq!(streamed["content"][1], json!({"type": "text", "text": "Done."}));
    assert_eq!(streamed["stop_reason"], "end_turn");
    // The identical request, not streamed, is the same answer.
    let prompt = harness.prompt.tokenizer().decode(&harness.engine.prompts()[1]);
    let added = prompt.rsplit_once("cat b\"}}\n</tool_call>").unwrap().1;
    assert_eq!(
        added,
        "<|im_end|>\n<|im_start|>user\n<tool_response>\n1:2\n</tool_response><|im_end|>\n\
         <|im_start|>user\n<tool_response>\nError\n</tool_response><|im_end|>\n<|im_start|>user\nGo on.<|im_end|>\n\
         <|im_start|>system\nBe quick.<|im_end|>\n<|im_start|>assistant\n"
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let [segment] = capture.segments.as_slice() else {
        panic!("{:?}", capture.segments)
    };
    let sampled: Vec<TokenId> = answers.iter().flat_map(|answer| harness.sampled(answer)).collect();
    assert_eq!(trained(segment), sampled);
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let text = "<think>\nhm\n</think>\n\na 🦀 b\n".to_owned() + &tool_call("ls") + "then\n" + &tool_call("pwd");
    let harness = Harness::over(
        with_template(DROPS_THINKING),
        vec![text.as_str().into(), text.as_str().into()],
        |_| {},
    )
    .await;
    let (one, two) = (harness.open(), harness.open());
    let mut asked = body(&[json!({"role": "user", "content": "x"})]);
    let whole = ask(&harness, &one, &asked).await;
    asked["stream"] = true.into();
    let (_, streamed) = post(&harness, &two, "/v1/messages", &asked).await;
    let mut streamed = assemble(&events(&streamed));
    let mut whole = whole;
    for message in [&mut whole, &mut streamed] {
        message["id"] = Value::Null;
        for block in message["content"].as_array_mut().unwrap() {
            if block["type"] == "tool_use" {
                block["id"] = Value::Null;
            }
        }
    }
    assert_eq!(streamed, whole);
}

#[tokio::test]
async fn ends_are_told_apart() {
    let cut = Answer {
        finish: FinishReason::Length,
        ..Answer::from("one two")
    };
    let harness = Harness::with(vec![cut, "one STOP two three".into(), "".into()], |_| {}).await;
    let ticket = harness.open();
    let question = |text: &str| body(&[json!({"role": "user", "content": text})]);
    let long = ask(&harness, &ticket, &question("a")).await;
    assert_eq!(long["stop_reason"], "max_tokens");
    let mut stopping = question("b");
    stopping["stop_sequences"] = json!(["STOP"]);
    let stopped = ask(&harness, &ticket, &stopping).await;
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!("STOP"))
    );
    assert_eq!(stopped["content"], json!([{"type": "text", "text": "one "}]));
    let empty = ask(&harness, &ticket, &question("c")).await;
    assert_eq!(empty["content"], json!([{"type": "text", "text": ""}]));
    assert_eq!(empty["stop_reason"], "end_turn");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    // Everything that the engine sampled is in an account, also what came behind the stop text.
    let usage: u64 = [&long, &stopped, &empty]
        .iter()
        .map(|answer| answer["usage"]["output_tokens"].as_u64().unwrap())
        .sum();
    assert_eq!(capture.ledger.total(), usage);
    assert_eq!(capture.audit.sampled_tokens, usage);
}

#[tokio::test]
async fn refusals_have_anthropics_shape() {
    let harness = Harness::with(vec![], |options| options.window = 40).await;
    let ticket = harness.open();
    let user = |content: Value| json!({"messages": [{"role": "user", "content": content}]});
    for (asked, status, kind, says) in [
        (json!({}), 400, "invalid_request_error", "messages: is missing"),
        (
            user(json!(7)),
            400,
            "invalid_request_error",
            "messages.0.content: expected a string or a list of blocks, found 7",
        ),
        (
            user(json!([{"type": "image", "source": {}}])),
            400,
            "invalid_request_error",
            "messages.0.content.0: images are not supported by this model",
        ),
        (
            user(json!([{"type": "tool_result", "content": "x"}])),
            400,
            "invalid_request_error",
            "messages.0.content.0.tool_use_id: expected a string",
        ),
        (
            user(json!("word ".repeat(100))),
            400,
            "invalid_request_error",
            "prompt is too long: ",
        ),
    ] {
        let (found, text) = post(&harness, &ticket, "/v1/messages", &asked).await;
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((found, &answer["type"]), (status, &json!("error")), "{answer}");
        assert_eq!(answer["error"]["type"], kind);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(says), "{message}");
        if says.starts_with("prompt") {
            assert!(message.ends_with(" tokens > 40 maximum"), "{message}");
        }
    }
    let stranger = harness.client.post(format!("{}/v1/messages", harness.url));
    let answer = stranger
        .header("x-api-key", "nobody")
        .json(&user(json!("x")))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
    let answer: Value = answer.json().await.unwrap();
    assert_eq!(answer["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn tokens_are_counted_without_sampling() {
    let harness = Harness::new(&["yes"]).await;
    let ticket = harness.open();
    let asked = body(&[json!({"role": "user", "content": "How many?"})]);
    let (status, text) = post(&harness, &ticket, "/v1/messages/count_tokens", &asked).await;
    let counted: Value = serde_json::from_str(&text).unwrap();
    let answer = ask(&harness, &ticket, &asked).await;
    assert_eq!(
        (status, &counted["input_tokens"]),
        (200, &answer["usage"]["input_tokens"])
    );
    assert_eq!(harness.engine.prompts().len(), 1);
}
