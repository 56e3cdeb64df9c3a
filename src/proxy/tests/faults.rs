//! Wrong values, in every dialect: refused in the client's own shape, by the name of the field.

use super::*;

/// Where each dialect is, a request that it takes, and its name for the limit of tokens.
fn dialects() -> [(&'static str, Value, &'static str); 4] {
    let messages = json!([{"role": "user", "content": "a"}]);
    [
        (
            "/v1/chat/completions",
            json!({"messages": messages.clone()}),
            "max_tokens",
        ),
        ("/v1/completions", json!({"prompt": "a"}), "max_tokens"),
        ("/v1/messages", json!({"messages": messages}), "max_tokens"),
        ("/v1/responses", json!({"input": "a"}), "max_output_tokens"),
    ]
}

async fn post(harness: &Harness, ticket: &SessionTicket, path: &str, body: &Value) -> (u16, Value) {
    let request = harness.client.post(format!("{}{path}", ticket.url));
    let response = request.bearer_auth(&ticket.token).json(body).send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

/// The request must be refused as its dialect refuses, for this field.
async fn refused(harness: &Harness, ticket: &SessionTicket, path: &str, body: &Value, field: &str, says: &str) {
    let (status, answer) = post(harness, ticket, path, body).await;
    let error = &answer["error"];
    assert_eq!(
        (status, &error["type"]),
        (400, &json!("invalid_request_error")),
        "{path} {body}: {answer}"
    );
    if path == "/v1/messages" {
        assert_eq!(answer["type"], "error");
    } else {
        assert_eq!(error["param"], field, "{path} {body}: {answer}");
    }
    let message = error["message"].as_str().unwrap();
    assert!(
        message.starts_with(&format!("{field}: ")) && message.contains(says),
        "{path} {body}: {message}"
    );
}

fn with(body: &Value, field: &str, value: Value) -> Value {
    let mut body = body.clone();
    body[field] = value;
    body
}

#[tokio::test]
async fn sampling_values_out_of_range_are_named() {
    let harness = Harness::with(vec!["ok".into(); 8], |_| {}).await;
    let ticket = harness.open();
    for (path, body, limit) in dialects() {
        for (field, value, says) in [
            ("temperature", json!(-0.1), "expected a number from 0 to 2, found -0.1"),
            ("temperature", json!(2.01), "expected a number from 0 to 2, found 2.01"),
            ("temperature", json!("hot"), "found a string"),
            ("top_p", json!(0), "expected a number above 0 and at most 1, found 0"),
            (
                "top_p",
                json!(1.5),
                "expected a number above 0 and at most 1, found 1.5",
            ),
            ("top_p", json!([]), "found a list"),
            (limit, json!(0), "expected at least 1"),
            (limit, json!(-3), "found -3"),
            (limit, json!(1.5), "found 1.5"),
        ] {
            refused(&harness, &ticket, path, &with(&body, field, value), field, says).await;
        }
        if path != "/v1/responses" {
            let wrong = with(&body, "top_k", json!(-2));
            refused(&harness, &ticket, path, &wrong, "top_k", "at least -1, found -2").await;
        }
        for (field, value) in [("temperature", json!(2)), ("top_p", json!(1))] {
            let (status, answer) = post(&harness, &ticket, path, &with(&body, field, value)).await;
            assert_eq!(status, 200, "{path}: {answer}");
        }
    }
}

#[tokio::test]
async fn tools_without_a_name_are_named_by_their_place_and_foreign_ones_ignored() {
    let harness = Harness::with(vec!["ok".into(); 3], |_| {}).await;
    let ticket = harness.open();
    let [
        (chat, chat_body, _),
        _,
        (messages, messages_body, _),
        (responses, responses_body, _),
    ] = dialects();
    let nameless = json!({"type": "function", "function": {"description": "Run"}});
    for (path, body, tool, field, says) in [
        (
            chat,
            &chat_body,
            nameless.clone(),
            "tools[0].function.name",
            "is missing",
        ),
        (
            chat,
            &chat_body,
            json!({"function": {"name": 3}}),
            "tools[0].function.name",
            "expected a string, found 3",
        ),
        (
            chat,
            &chat_body,
            json!({"type": "function"}),
            "tools[0].function",
            "is missing",
        ),
        (
            chat,
            &chat_body,
            json!("bash"),
            "tools[0]",
            "expected a tool, found a string",
        ),
        (
            messages,
            &messages_body,
            json!({"input_schema": {}}),
            "tools.0.name",
            "is missing",
        ),
        (
            messages,
            &messages_body,
            json!({"type": "custom", "name": ""}),
            "tools.0.name",
            "an empty string",
        ),
        (
            responses,
            &responses_body,
            json!({"type": "function", "name": null}),
            "tools[0].name",
            "found null",
        ),
        (
            responses,
            &responses_body,
            nameless,
            "tools[0].function.name",
            "is missing",
        ),
        (
            responses,
            &responses_body,
            json!(7),
            "tools[0]",
            "expected a tool, found 7",
        ),
    ] {
        refused(
            &harness,
            &ticket,
            path,
            &with(body, "tools", json!([tool])),
            field,
            says,
        )
        .await;
    }
    for (path, body) in [
        (chat, chat_body),
        (messages, messages_body),
        (responses, responses_body),
    ] {
        let foreign = with(&body, "tools", json!([{"type": "web_search_2025"}]));
        let (status, answer) = post(&harness, &ticket, path, &foreign).await;
        assert_eq!(status, 200, "{path}: {answer}");
    }
}

#[tokio::test]
async fn items_of_unknown_types_are_named_and_known_ones_that_say_nothing_ignored() {
    let harness = Harness::new(&["ok"]).await;
    let ticket = harness.open();
    let with_item = |item: Value| json!({"input": [{"role": "user", "content": "a"}, item]});
    for (item, says) in [
        (
            json!({"type": "function_cal", "name": "bash"}),
            "items of type `function_cal` are not known",
        ),
        (json!({"type": 3}), "expected a string, found 3"),
    ] {
        refused(
            &harness,
            &ticket,
            "/v1/responses",
            &with_item(item),
            "input[1].type",
            says,
        )
        .await;
    }
    let reference = with_item(json!({"type": "item_reference", "id": "msg_1"}));
    let (status, answer) = post(&harness, &ticket, "/v1/responses", &reference).await;
    assert_eq!(status, 200, "{answer}");
}

#[tokio::test]
async fn an_item_that_the_limit_cut_is_incomplete() {
    let cut = |text: &str| Answer {
        finish: crate::trajectory::FinishReason::Length,
        ..text.into()
    };
    let harness = Harness::with(vec![cut("one two"), "three".into()], |_| {}).await;
    let ticket = harness.open();
    let (_, long) = post(&harness, &ticket, "/v1/responses", &json!({"input": "a"})).await;
    assert_eq!(
        (&long["status"], &long["output"][0]["status"]),
        (&json!("incomplete"), &json!("incomplete"))
    );
    assert_eq!(long["output"][0]["content"][0]["text"], "one two");
    let (_, whole) = post(&harness, &ticket, "/v1/responses", &json!({"input": "b"})).await;
    assert_eq!(
        (&whole["status"], &whole["output"][0]["status"]),
        (&json!("completed"), &json!("completed"))
    );
}
