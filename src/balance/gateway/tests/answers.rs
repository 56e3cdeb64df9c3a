//! What clients are answered, whatever becomes of a replica.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn sessions_stay_and_requests_are_handed_on_as_they_came() {
    let harness = Harness::start(
        2,
        GatewayOptions {
            tell_reason: true,
            ..GatewayOptions::default()
        },
    )
    .await;
    let home = harness.by("s").await;
    for _ in 0..4 {
        assert_eq!(harness.by("s").await, home);
    }
    assert_ne!(harness.by("other").await, home);
    let raw = "{ \"messages\" : [ ] ,\"unknown\":1.50, \"stream\":true}";
    let url = format!("{}/sess/s/v1/chat/completions?beta=true", harness.url);
    let request = harness
        .client
        .post(url)
        .body(raw)
        .header("x-mine", "1")
        .header("authorization", "Bearer k");
    let response = request.send().await.unwrap();
    assert_eq!(response.headers()["x-lego-reason"], "home");
    let text = response.text().await.unwrap();
    assert!(
        text.ends_with("data: [DONE]\n\n") && text.matches("\"by\"").count() == 5,
        "{text}"
    );
    {
        let asked = harness.servers[harness.index(&home)].asked.lock().unwrap();
        let (headers, body) = asked.last().unwrap();
        assert_eq!(body, raw);
        assert_eq!(
            (&headers["x-mine"], &headers["authorization"]),
            (&"1".parse().unwrap(), &"Bearer k".parse().unwrap())
        );
    }
    let sessions: Vec<SessionRow> = harness
        .client
        .get(format!("{}/sessions", harness.url))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    let of = |name: &str| sessions.iter().find(|row| row.session == name).unwrap();
    assert_eq!(of("other").tokens, 700);
    assert_eq!(of("s").tokens, 9, "the stream's usage");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_before_its_first_byte_is_answered_by_another() {
    let harness = Harness::start(2, GatewayOptions::default()).await;
    let home = harness.index(&harness.by("s").await);
    for fault in [
        Fault::Status(503),
        Fault::Events(0),
        Fault::HalfAnswer,
        Fault::Status(502),
    ] {
        harness.servers[home].break_with(&[fault]);
        let is_stream = fault == Fault::Events(0);
        let body = if is_stream { stream() } else { json!({ "messages": [] }) };
        let (status, text) = harness.chat("s", body).await;
        assert_eq!(status, 200, "{fault:?}: {text}");
        assert!(!text.contains("half") && text.contains("\"by\""), "{fault:?}: {text}");
        // It goes back where it was: the other is broken now.
        let other = &harness.servers[1 - home];
        let before = other.asked();
        other.break_with(&[Fault::Status(503)]);
        assert_eq!(harness.chat("s", json!({ "messages": [] })).await.0, 200, "{fault:?}");
        assert!(other.asked() > before);
    }
    // Where all fail, the client is told what the last one said.
    for server in &harness.servers {
        server.break_with(&[Fault::Status(503), Fault::Status(503)]);
    }
    let (status, text) = harness.chat("s", json!({ "messages": [] })).await;
    assert_eq!((status, text.contains("\"no\"")), (503, true), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_fails_later_is_told_in_the_clients_grammar() {
    let harness = Harness::start(1, GatewayOptions::default()).await;
    for (path, says) in [
        (
            "/v1/chat/completions",
            "data: {\"error\":{\"message\":\"The replica was lost",
        ),
        ("/v1/messages", "event: error\ndata: {\"type\":\"error\""),
    ] {
        harness.servers[0].break_with(&[Fault::Events(2)]);
        let text = harness
            .post(path, "s", stream())
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        assert_eq!(text.matches("\"by\"").count(), 2, "{text}");
        assert!(text.contains(says), "{text}");
    }
    assert_eq!(harness.servers[0].asked(), 2, "never silently again");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_at_fault_open_no_circuit() {
    let harness = Harness::start(1, GatewayOptions::default()).await;
    let storm = [
        Fault::Status(400),
        Fault::Status(404),
        Fault::Status(429),
        Fault::Status(401),
    ]
    .repeat(10);
    harness.servers[0].break_with(&storm);
    for _ in 0..storm.len() {
        assert!(harness.chat("s", json!({})).await.0 < 500);
    }
    // Nor do clients that go away.
    for _ in 0..5 {
        harness.servers[0].break_with(&[Fault::Silent]);
        let request = harness
            .post("/v1/chat/completions", "s", stream())
            .timeout(Duration::from_millis(50));
        assert!(request.send().await.is_err());
    }
    assert_eq!(harness.gateway.replicas()[0].state, "healthy");
    assert_eq!(harness.by("s").await, "a");
    harness.until(|rows| rows[0].requests == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_stream_is_kept_alive_and_may_still_be_answered_elsewhere() {
    let options = GatewayOptions {
        keep_alive: Duration::from_millis(60),
        ..GatewayOptions::default()
    };
    let harness = Harness::start(2, options).await;
    let home = harness.index(&harness.by("s").await);
    harness.servers[home].pause_ms.store(400, Ordering::SeqCst);
    harness.servers[home].break_with(&[Fault::Events(0)]);
    let (status, text) = harness.chat("s", stream()).await;
    assert_eq!(status, 200);
    assert!(
        text.starts_with(": keep-alive\n\n") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    assert_eq!(
        text.matches(&format!("\"by\":\"{}\"", harness.servers[1 - home].name))
            .count(),
        5
    );
    // What an answer says that is none is said in the stream, for its status was sent.
    harness.servers[1 - home].pause_ms.store(400, Ordering::SeqCst);
    harness.servers[1 - home].break_with(&[Fault::Status(400)]);
    let (status, text) = harness.chat("s", stream()).await;
    assert!(
        status == 200 && text.contains("answers 400") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn more_requests_than_the_bound_are_told_to_come_again() {
    let options = GatewayOptions {
        most_requests: 2,
        ..GatewayOptions::default()
    };
    let harness = Harness::start(1, options).await;
    harness.servers[0].pause_ms.store(2_000, Ordering::SeqCst);
    let sent = (0..6).map(|index| {
        let request = harness.post("/v1/chat/completions", &format!("s{index}"), json!({ "messages": [] }));
        async move {
            let response = request.send().await.unwrap();
            let after = response.headers().get("retry-after").cloned();
            (response.status().as_u16(), after)
        }
    });
    let answers = futures_util::future::join_all(sent).await;
    let refused: Vec<_> = answers.iter().filter(|(status, _)| *status == 429).collect();
    assert!(refused.iter().all(|(_, after)| after.is_some()));
    assert_eq!((refused.len(), harness.servers[0].asked()), (4, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_sends_half_a_request_is_not_waited_for() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let options = GatewayOptions {
        patience: Duration::from_millis(200),
        ..GatewayOptions::default()
    };
    let harness = Harness::start(1, options).await;
    let host = harness.url.strip_prefix("http://").unwrap();
    for (sent, answered) in [
        (
            "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{",
            " 408 ",
        ),
        ("POST /v1/chat/compl", ""),
    ] {
        let mut stream = tokio::net::TcpStream::connect(host).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut said = String::new();
        let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_string(&mut said)).await;
        assert!(read.is_ok() && said.contains(answered), "{said}");
    }
    assert_eq!(harness.by("s").await, "a");
    assert_eq!(harness.servers[0].asked(), 1);
}
