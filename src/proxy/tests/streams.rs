use super::*;

fn joined(events: &[Value], key: &str) -> String {
    events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"][key].as_str())
        .collect()
}

#[tokio::test]
async fn a_stream_says_what_the_whole_answer_says() {
    let answer = "Löök 🦀.\n".to_owned() + &tool_call("cat a") + &tool_call("cat b");
    let harness = Harness::new(&[&answer, &answer]).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    let whole = harness.chat(&ticket, &body).await;
    for (key, value) in [
        ("stream", json!(true)),
        ("stream_options", json!({"include_usage": true})),
        ("logprobs", json!(true)),
        ("return_token_ids", json!(true)),
    ] {
        body[key] = value;
    }
    let (events, _) = harness.stream(&ticket, &body).await;
    assert_eq!(
        events[0]["choices"][0]["delta"],
        json!({"role": "assistant", "content": ""})
    );
    assert_eq!(joined(&events, "content"), "Löök 🦀.");
    assert_eq!(whole["choices"][0]["message"]["content"], "Löök 🦀.");
    let calls: Vec<&Value> = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"].as_array())
        .flatten()
        .collect();
    assert_eq!(calls.len(), 2);
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(call["index"], index);
        assert_eq!(
            call["function"],
            whole["choices"][0]["message"]["tool_calls"][index]["function"]
        );
    }
    let finishes: Vec<&str> = events
        .iter()
        .filter_map(|event| event["choices"][0]["finish_reason"].as_str())
        .collect();
    assert_eq!(finishes, ["tool_calls"]);
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(usage, &whole["usage"]);
    // Ids and log-probs of all chunks together are all that was sampled.
    let ids: Vec<u64> = events
        .iter()
        .filter_map(|event| event["choices"][0]["token_ids"].as_array())
        .flatten()
        .filter_map(Value::as_u64)
        .collect();
    assert_eq!(
        ids,
        harness
            .sampled(&answer)
            .iter()
            .map(|&id| u64::from(id))
            .collect::<Vec<_>>()
    );
    assert_eq!(usage["completion_tokens"], ids.len());
    let logprobs: Vec<f64> = events
        .iter()
        .filter_map(|event| event["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .filter_map(|token| token["logprob"].as_f64())
        .collect();
    assert_eq!(logprobs.len(), ids.len());
    assert_eq!((logprobs[1] as f32).to_bits(), engine::logprob(1, 1).to_bits());
    let prompt = events[0]["prompt_token_ids"].as_array().unwrap();
    assert_eq!(prompt.len(), usage["prompt_tokens"].as_u64().unwrap() as usize);
}

#[tokio::test]
async fn tokens_leave_as_they_are_sampled_and_comments_keep_the_stream_alive() {
    let held = Answer {
        hold_after: Some(3),
        ..Answer::from("one two three four five")
    };
    let harness = Harness::with(vec![held], |_| {}).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    let mut response = harness.post(&ticket, &body).send().await.unwrap();
    let mut text = String::new();
    while text.matches(": keep-alive").count() < 3 {
        text.push_str(std::str::from_utf8(&response.chunk().await.unwrap().unwrap()).unwrap());
    }
    assert!(
        text.contains("\"content\":\"one") || text.contains("\"content\":\"o"),
        "{text}"
    );
    assert!(!text.contains("[DONE]"));
    harness.engine.release.add_permits(1);
    text.push_str(&response.text().await.unwrap());
    let (events, comments) = parse_events(&text);
    assert_eq!(joined(&events, "content"), "one two three four five");
    assert!(comments >= 3);
}

/// The engine loses the generation twice; the client sees one answer and trains one segment.
#[tokio::test]
async fn a_lost_generation_is_continued_inside_the_same_stream() {
    let whole = "one two three four five";
    let harness = Harness::new(&[]).await;
    let ids = harness.encode(whole);
    let part = |from: usize| harness.prompt.tokenizer().decode(&ids[from..]);
    assert_eq!(harness.encode(&part(4)), ids[4..], "the rest encodes as it stood");
    let answers = vec![
        Answer {
            lose_after: Some(4),
            ..whole.into()
        },
        Answer {
            lose_after: Some(2),
            vanish: true,
            ..part(4).as_str().into()
        },
        part(6).as_str().into(),
    ];
    let harness = Harness::with(answers, |_| {}).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    body["max_tokens"] = 100.into();
    body["stream_options"] = json!({"include_usage": true});
    let (events, _) = harness.stream(&ticket, &body).await;
    assert_eq!(joined(&events, "content"), whole);
    let prompts = harness.engine.prompts();
    let usage = &events.last().unwrap()["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(prompts[0].len()), &json!(ids.len() + 1))
    );
    assert_eq!(prompts[1], [&prompts[0][..], &ids[..4]].concat());
    assert_eq!(harness.engine.requests.lock().unwrap()[2].sampling.max_tokens, 100 - 6);
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        capture.segments.iter().map(trained).collect::<Vec<_>>(),
        [harness.sampled(whole)]
    );
    let spans: Vec<(u32, u64)> = capture.segments[0]
        .weight_versions
        .iter()
        .map(|span| (span.end, span.version.update))
        .collect();
    assert_eq!(spans, [(4, 0), (6, 1), (ids.len() as u32 + 1, 2)]);
}

#[tokio::test]
async fn a_stream_that_fails_in_the_middle_says_so_and_ends_properly() {
    let lost: Vec<Answer> = std::iter::once(Answer {
        lose_after: Some(4),
        ..Answer::from("one two three")
    })
    .chain((0..3).map(|_| Answer {
        lose_after: Some(0),
        ..Answer::from("x")
    }))
    .collect();
    let harness = Harness::with(lost, |_| {}).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    let (events, _) = harness.stream(&ticket, &body).await;
    assert_eq!(events.last().unwrap()["error"]["type"], "server_error");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        (capture.segments.len(), capture.ledger.aborted, capture.n_engine_errors),
        (0, 4, 1)
    );
}
