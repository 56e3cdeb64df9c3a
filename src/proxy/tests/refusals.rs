use super::*;

#[tokio::test]
async fn sessions_are_reached_by_their_own_key_alone() {
    let harness = Harness::new(&["one", "two", "three"]).await;
    let (ticket, other) = (harness.open(), harness.open());
    let body = |content: &str| json!({"messages": [{"role": "user", "content": content}]});
    let post = |path: String| harness.client.post(format!("{}{path}", harness.url));
    let status = async |request: reqwest::RequestBuilder, content: &str| {
        request.json(&body(content)).send().await.unwrap().status().as_u16()
    };
    let own = format!("/sess/{}/v1/chat/completions", ticket.key);
    assert_eq!(status(post(own.clone()), "a").await, 401);
    assert_eq!(status(post(own.clone()).bearer_auth(&other.token), "a").await, 401);
    assert_eq!(
        status(
            post(format!("/sess/{}/v1/chat/completions", "0".repeat(32))).bearer_auth(&ticket.token),
            "a"
        )
        .await,
        401
    );
    assert_eq!(
        status(post("/v1/chat/completions".into()).bearer_auth("nobody"), "a").await,
        401
    );
    assert_eq!(
        status(
            post(own.replace("/v1/", "/v1/v1/")).header("x-api-key", &ticket.token),
            "a"
        )
        .await,
        200
    );
    assert_eq!(
        status(post("/v1/chat/completions".into()).bearer_auth(&ticket.token), "b").await,
        200
    );
    harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(status(post(own).bearer_auth(&ticket.token), "c").await, 410);
    assert_eq!(
        status(post("/v1/chat/completions".into()).bearer_auth(&ticket.token), "c").await,
        410
    );
    assert!(matches!(
        harness.proxy.close_session(&ticket.key).await,
        Err(ProxyError::UnknownSession(_))
    ));
}

#[tokio::test]
async fn wrong_fields_are_named() {
    let harness = Harness::new(&[]).await;
    let ticket = harness.open();
    let message = |message: Value| json!({ "messages": [message] });
    for (body, param, says) in [
        (json!([]), Value::Null, "expected a JSON object"),
        (json!({}), json!("messages"), "is missing"),
        (
            json!({"messages": "x"}),
            json!("messages"),
            "expected a list of messages, found a string",
        ),
        (
            json!({"messages": [], "n": 2}),
            json!("n"),
            "only 1 is supported, found 2",
        ),
        (
            message(json!({"role": "robot", "content": "x"})),
            json!("messages[0].role"),
            "unknown role `robot`",
        ),
        (
            message(json!({"role": "user", "content": 3})),
            json!("messages[0].content"),
            "found 3",
        ),
        (
            message(json!({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})),
            json!("messages[0].content[0]"),
            "images are not supported",
        ),
        (
            message(json!({"role": "assistant", "tool_calls": [{"function": {}}]})),
            json!("messages[0].tool_calls[0].function.name"),
            "expected a string",
        ),
        (
            json!({"messages": [{"role": "user"}], "temperature": "hot"}),
            json!("temperature"),
            "expected a number, found a string",
        ),
        (
            json!({"messages": [{"role": "user"}], "max_tokens": 0}),
            json!("max_tokens"),
            "at least 1",
        ),
    ] {
        let (status, answer) = harness.send(&ticket, &body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &param), "{answer}");
        assert_eq!(answer["error"]["type"], "invalid_request_error");
        assert!(answer["error"]["message"].as_str().unwrap().contains(says), "{answer}");
    }
    let broken = harness
        .post(&ticket, &json!({}))
        .body("{\"messages\": [")
        .send()
        .await
        .unwrap();
    assert_eq!(broken.status(), 400);
    assert!(broken.text().await.unwrap().contains("not valid JSON"));
}

#[tokio::test]
async fn routes_and_encodings() {
    let harness = Harness::new(&[]).await;
    let ticket = harness.open();
    let get = |path: &str| harness.client.get(format!("{}{path}", harness.url)).send();
    for path in [
        "/",
        "/health",
        "/api/hello",
        "/v1/models",
        "/v1/models/org/name",
        "/metrics",
    ] {
        assert_eq!(get(path).await.unwrap().status(), 200, "{path}");
    }
    let session = format!("/sess/{}", ticket.key);
    assert_eq!(harness.client.head(&ticket.url).send().await.unwrap().status(), 200);
    let models: Value = get(&format!("{session}/v1/models"))
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(models["data"][0]["id"], "policy");
    for path in ["/sess", "/v1/embeddings", "/sess/x/finish", "/sess/x/trajectory"] {
        assert_eq!(get(path).await.unwrap().status(), 404, "{path}");
    }
    assert_eq!(get("/v1/chat/completions").await.unwrap().status(), 405);
    let brotli = harness
        .post(&ticket, &json!({}))
        .header("content-encoding", "br")
        .send()
        .await
        .unwrap();
    assert_eq!(brotli.status(), 415);
    assert!(brotli.text().await.unwrap().contains("zstd, gzip and deflate are"));
    let huge = harness
        .post(&ticket, &json!({}))
        .body(vec![b' '; (64 << 20) + 1])
        .send()
        .await;
    assert!(huge.is_err() || huge.unwrap().status() == 413);
}

#[tokio::test]
async fn a_full_window_is_said_in_the_words_that_agents_know() {
    let harness = Harness::with(vec!["one two three four".into()], |options| options.window = 60).await;
    let ticket = harness.open();
    let long = json!({"messages": [{"role": "user", "content": "XY".repeat(100)}]});
    let (status, answer) = harness.send(&ticket, &long).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &json!("context_length_exceeded")),
        "{answer}"
    );
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("maximum context length is 60 tokens")
    );
    // What fits is clamped to what is left.
    let body = json!({"messages": [{"role": "user", "content": "x"}], "max_completion_tokens": 4000});
    harness.chat(&ticket, &body).await;
    let prompt = harness.engine.prompts()[0].len();
    assert_eq!(
        harness.engine.requests.lock().unwrap()[0].sampling.max_tokens as usize,
        60 - prompt
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert!(capture.context_overflow && !capture.turn_cap_reached);
}

#[tokio::test]
async fn the_turn_cap_holds() {
    let harness = Harness::new(&["one", "two"]).await;
    let ticket = harness
        .proxy
        .open_session(SessionOptions {
            turn_cap: Some(1),
            ..SessionOptions::default()
        })
        .unwrap();
    let body = |content: &str| json!({"messages": [{"role": "user", "content": content}]});
    harness.chat(&ticket, &body("a")).await;
    let response = harness.post(&ticket, &body("b")).send().await.unwrap();
    assert_eq!(
        (
            response.status().as_u16(),
            response.headers()["x-should-retry"].to_str().unwrap()
        ),
        (429, "false")
    );
    // The same request again is no new call.
    harness.chat(&ticket, &body("a")).await;
    assert!(harness.proxy.close_session(&ticket.key).await.unwrap().turn_cap_reached);
}

#[tokio::test]
async fn an_engine_that_is_down_is_a_503_and_the_next_try_is_fresh() {
    let harness = Harness::new(&["one"]).await;
    let ticket = harness.open();
    harness.engine.down.store(true, Ordering::SeqCst);
    let mut body = request(&opening());
    for stream in [false, true] {
        body["stream"] = stream.into();
        let response = harness.post(&ticket, &body).send().await.unwrap();
        assert_eq!(
            (
                response.status().as_u16(),
                response.headers()["retry-after"].to_str().unwrap()
            ),
            (503, "7")
        );
        assert!(response.text().await.unwrap().contains("no replica"));
    }
    harness.engine.down.store(false, Ordering::SeqCst);
    harness.chat(&ticket, &request(&opening())).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        (
            capture.segments.len(),
            capture.n_engine_errors,
            capture.audit.num_aborts
        ),
        (1, 2, 0)
    );
}

#[tokio::test]
async fn the_runs_sampling_settings_win_and_are_counted() {
    let harness = Harness::new(&["one", "two"]).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["temperature"] = 0.2.into();
    harness.chat(&ticket, &body).await;
    body["temperature"] = 1.0.into();
    harness.chat(&ticket, &body).await;
    {
        let requests = harness.engine.requests.lock().unwrap();
        assert!(
            requests
                .iter()
                .all(|request| (request.sampling.temperature - 1.0).abs() < f32::EPSILON)
        );
        assert_ne!(requests[0].sampling.seed, requests[1].sampling.seed);
    }
    assert_eq!(
        harness
            .proxy
            .close_session(&ticket.key)
            .await
            .unwrap()
            .n_sampling_overrides,
        1
    );

    let harness = Harness::with(vec!["one".into()], |options| {
        options.sampling_policy = SamplingPolicy::Agent;
    })
    .await;
    body["temperature"] = 0.5.into();
    harness.chat(&harness.open(), &body).await;
    assert!((harness.engine.requests.lock().unwrap()[0].sampling.temperature - 0.5).abs() < f32::EPSILON);
}

/// An agent may send megabytes: they are counted only until it is sure that they do not fit.
#[tokio::test]
async fn what_is_far_too_long_is_not_tokenised_whole() {
    let harness = Harness::new(&[]).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["messages"][1]["content"] = "a line of a log, 2026-01-01 00:00:00\n".repeat(200_000).into();
    let (status, answer) = harness.send(&ticket, &body).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let message = answer["error"]["message"].as_str().unwrap();
    let counted: usize = message
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .max()
        .unwrap();
    assert!((32_769..32_769 + (64 << 10)).contains(&counted), "{message}");
    let url = format!("{}/v1/messages/count_tokens", ticket.url);
    let counted = harness
        .client
        .post(url)
        .bearer_auth(&ticket.token)
        .json(&body)
        .send()
        .await
        .unwrap();
    let counted: Value = counted.json().await.unwrap();
    assert!(counted["input_tokens"].as_u64().unwrap() > 1_000_000, "{counted}");
}
