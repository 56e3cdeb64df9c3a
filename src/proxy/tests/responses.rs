//! The Responses and the legacy Completions dialect.

use super::*;
use crate::prompt::testing::{DROPS_THINKING, with_template};

async fn post(harness: &Harness, ticket: &SessionTicket, path: &str, body: &Value) -> (u16, String) {
    let request = harness.client.post(format!("{}{path}", ticket.url));
    let response = request.bearer_auth(&ticket.token).json(body).send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

async fn ask(harness: &Harness, ticket: &SessionTicket, path: &str, body: &Value) -> Value {
    let (status, text) = post(harness, ticket, path, body).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

fn tools() -> Value {
    json!([
        {"type": "function", "name": "bash", "description": "Run", "parameters": {"type": "object"}, "strict": false},
        {"type": "web_search"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn"}]},
    ])
}

fn events(text: &str) -> Vec<Value> {
    let events: Vec<Value> = text
        .split_terminator("\n\n")
        .map(|block| {
            let (name, data) = block.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
            data
        })
        .collect();
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], index, "{event}");
    }
    events
}

#[tokio::test]
async fn items_come_back_and_make_one_segment() {
    let answers = [
        "<think>\nLook first.\n</think>\n\nLook.".to_owned() + "\n" + &tool_call("cat a") + "\n" + &tool_call("cat b"),
        "Done.".to_owned(),
    ];
    let scripted = answers.iter().map(|text| text.as_str().into()).collect();
    let harness = Harness::over(with_template(DROPS_THINKING), scripted, |_| {}).await;
    let ticket = harness.open();
    let mut input = vec![
        json!({"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}),
        json!({"role": "user", "content": "Split at :"}),
    ];
    let request = |input: &[Value]| {
        json!({
            "model": "codex", "instructions": "Fix the program.", "input": input, "tools": tools(), "stream": true,
            "store": false, "include": ["reasoning.encrypted_content"], "parallel_tool_calls": true,
        })
    };
    let (status, text) = post(&harness, &ticket, "/v1/responses", &request(&input)).await;
    assert_eq!(status, 200, "{text}");
    let streamed = events(&text);
    let kinds: Vec<&str> = streamed.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(
        kinds[..3],
        ["response.created", "response.in_progress", "response.output_item.added"]
    );
    assert_eq!(kinds.last(), Some(&"response.completed"));
    let output = streamed.last().unwrap()["response"]["output"]
        .as_array()
        .unwrap()
        .clone();
    let item_kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(item_kinds, ["reasoning", "message", "function_call", "function_call"]);
    assert_eq!(output[0]["summary"][0]["text"], "Look first.");
    assert!(!output[0]["encrypted_content"].as_str().unwrap().is_empty());
    let arguments: Value = serde_json::from_str(output[2]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"command": "cat a"}));
    // Every item that was completed on the way is in the whole, and every text is its deltas.
    let done: Vec<&Value> = streamed
        .iter()
        .filter(|event| event["type"] == "response.output_item.done")
        .map(|event| &event["item"])
        .collect();
    assert_eq!(done, output.iter().collect::<Vec<_>>());
    let said: String = streamed
        .iter()
        .filter(|event| event["type"] == "response.output_text.delta")
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(said, output[1]["content"][0]["text"].as_str().unwrap());

    input.extend(output.clone());
    // Results in the order of completion.
    for index in [3, 2] {
        let id = &output[index]["call_id"];
        input.push(json!({"type": "function_call_output", "call_id": id, "output": format!("result {index}")}));
    }
    let (status, text) = post(&harness, &ticket, "/v1/responses", &request(&input)).await;
    assert_eq!(status, 200, "{text}");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let [segment] = capture.segments.as_slice() else {
        panic!("{:?}", capture.segments)
    };
    let sampled: Vec<TokenId> = answers.iter().flat_map(|answer| harness.sampled(answer)).collect();
    assert_eq!(trained(segment), sampled);
    let prompt = harness.prompt.tokenizer().decode(&harness.engine.prompts()[0]);
    assert!(
        prompt.contains("\"name\":\"bash\"") || prompt.contains("\"name\": \"bash\""),
        "{prompt}"
    );
    assert!(!prompt.contains("spawn"), "{prompt}");
}

#[tokio::test]
async fn a_previous_response_is_continued() {
    let harness = Harness::new(&["one", "two", "three"]).await;
    let (ticket, other) = (harness.open(), harness.open());
    let first = ask(
        &harness,
        &ticket,
        "/v1/responses",
        &json!({"input": "a", "instructions": "Count."}),
    )
    .await;
    assert_eq!(first["object"], "response");
    assert_eq!(first["output"][0]["content"][0]["text"], "one");
    assert_eq!(first["usage"]["output_tokens"], harness.sampled("one").len());
    let next = json!({"input": [{"role": "user", "content": "b"}], "previous_response_id": first["id"], "instructions": "Count."});
    let second = ask(&harness, &ticket, "/v1/responses", &next).await;
    assert_eq!(second["previous_response_id"], first["id"]);
    let prompts = harness.engine.prompts();
    let recorded = [&prompts[0][..], &harness.sampled("one")].concat();
    assert_eq!(prompts[1][..recorded.len()], recorded[..]);
    // It is of that session alone.
    let (status, text) = post(&harness, &other, "/v1/responses", &next).await;
    let refused: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &refused["error"]["code"]),
        (400, &json!("previous_response_not_found"))
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(capture.segments.len(), 1);
}

#[tokio::test]
async fn nobody_who_speaks_responses_is_told_429() {
    let harness = Harness::new(&["one"]).await;
    let ticket = harness
        .proxy
        .open_session(SessionOptions {
            turn_cap: Some(1),
            ..SessionOptions::default()
        })
        .unwrap();
    ask(&harness, &ticket, "/v1/responses", &json!({"input": "a"})).await;
    let (status, _) = post(&harness, &ticket, "/v1/responses", &json!({"input": "b"})).await;
    assert_eq!(status, 503);
    let (status, _) = post(&harness, &ticket, "/v1/chat/completions", &request(&opening())).await;
    assert_eq!(status, 429);
    for wrong in [
        json!({}),
        json!({"input": 3}),
        json!({"input": []}),
        json!({"input": [{"role": "x"}]}),
    ] {
        let (status, text) = post(&harness, &ticket, "/v1/responses", &wrong).await;
        assert_eq!(status, 400, "{text}");
    }
}

#[tokio::test]
async fn completions_continue_what_they_are_given() {
    let harness = Harness::new(&[" world", "!", "x END y"]).await;
    let ticket = harness.open();
    let ask = async |body: Value| ask(&harness, &ticket, "/v1/completions", &body).await;
    let first = ask(json!({"prompt": "hello", "return_token_ids": true, "logprobs": 0})).await;
    assert_eq!(first["choices"][0]["text"], " world");
    assert_eq!(first["choices"][0]["finish_reason"], "stop");
    assert_eq!(harness.engine.prompts()[0], harness.encode("hello"));
    let mut ids = harness.encode("hello");
    ids.extend(harness.sampled(" world"));
    ids.extend(harness.encode(" and"));
    let second = ask(json!({"prompt": ids.clone(), "echo": true})).await;
    assert!(second["choices"][0]["text"].as_str().unwrap().ends_with(" and!"));
    assert_eq!(harness.engine.prompts()[1], ids);
    let third = ask(json!({"prompt": ["one"], "stop": "END"})).await;
    assert_eq!(third["choices"][0]["text"], "x ");
    let (status, text) = post(&harness, &ticket, "/v1/completions", &json!({"prompt": ["a", "b"]})).await;
    assert_eq!(status, 400, "{text}");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let trained_of: Vec<Vec<TokenId>> = capture.segments.iter().map(trained).collect();
    assert_eq!(
        trained_of[0],
        [harness.sampled(" world"), harness.sampled("!")].concat()
    );
}
