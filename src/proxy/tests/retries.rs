use super::*;
use crate::config::{BuilderName, CaptureScope};
use crate::trajectory::CaptureAudit;

fn held(text: &str) -> Answer {
    Answer {
        hold_after: Some(2),
        ..Answer::from(text)
    }
}

/// Waits until so many calls of the session wait for their conversation's turn.
async fn waiting(harness: &Harness, ticket: &SessionTicket, count: usize) {
    let session = harness.proxy.0.session(&ticket.key.0).unwrap();
    eventually("a call waits", || session.state().waiting.len() == count).await;
}

/// What an open session has counted so far.
fn audit(harness: &Harness, ticket: &SessionTicket) -> CaptureAudit {
    let session = harness.proxy.0.session(&ticket.key.0).unwrap();
    session
        .state()
        .recording
        .capture(CaptureScope::default(), BuilderName::default())
        .audit
}

/// Client time-outs are disconnect and the same request again.
#[tokio::test]
async fn the_identical_request_attaches_to_the_running_generation() {
    let harness = Harness::with(vec![held("one two three")], |_| {}).await;
    let ticket = harness.open();
    let body = request(&opening());
    for _ in 0..2 {
        let given_up = harness
            .post(&ticket, &body)
            .timeout(Duration::from_millis(100))
            .send()
            .await;
        assert!(given_up.unwrap_err().is_timeout());
    }
    harness.engine.release.add_permits(1);
    let answer = harness.chat(&ticket, &body).await;
    let again = harness.chat(&ticket, &body).await;
    assert_eq!(answer["choices"], again["choices"]);
    assert_eq!(harness.engine.prompts().len(), 1);
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        capture.segments.iter().map(trained).collect::<Vec<_>>(),
        [harness.sampled("one two three")]
    );
    assert_eq!((capture.audit.num_calls, capture.audit.n_unresolved_retries), (1, 0));
}

#[tokio::test]
async fn a_stream_that_drops_is_given_again_from_its_beginning() {
    let harness = Harness::with(vec![held("one two three")], |_| {}).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    let mut dropped = harness.post(&ticket, &body).send().await.unwrap();
    dropped.chunk().await.unwrap();
    drop(dropped);
    harness.engine.release.add_permits(1);
    let (events, _) = harness.stream(&ticket, &body).await;
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!((text.as_str(), harness.engine.prompts().len()), ("one two three", 1));
}

/// A client that left in the middle and does not come back had no part of the answer; one that does come back, all of it.
#[tokio::test]
async fn an_answer_whose_client_left_before_its_end_does_not_train_unless_it_comes_back() {
    for comes_back in [false, true] {
        let harness = Harness::with(vec!["zero".into(), held("one two three")], |_| {}).await;
        let (ticket, log, _folder) = harness.open_logged();
        let first = harness.chat(&ticket, &request(&opening())).await;
        let mut messages = opening();
        messages.extend([assistant(&first), json!({"role": "user", "content": "more"})]);
        let mut body = request(&messages);
        body["stream"] = true.into();
        let mut dropped = harness.post(&ticket, &body).send().await.unwrap();
        while !String::from_utf8_lossy(&dropped.chunk().await.unwrap().unwrap()).contains("one") {}
        drop(dropped);
        let session = harness.proxy.0.session(&ticket.key.0).unwrap();
        let flight = session
            .state()
            .flights
            .values()
            .find(|flight| flight.call == 1)
            .cloned()
            .unwrap();
        eventually("it has left", || flight.watched() == 0).await;
        harness.engine.release.add_permits(1);
        eventually("the answer ends", || flight.has_answered()).await;
        if comes_back {
            harness.stream(&ticket, &body).await;
        }
        let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
        let (zero, one) = (harness.sampled("zero"), harness.sampled("one two three"));
        let sampled = (zero.len() + one.len()) as u64;
        let (trains, unseen) = if comes_back {
            ([zero, one].concat(), 0)
        } else {
            (zero, one.len() as u64)
        };
        assert_eq!(capture.segments.iter().flat_map(trained).collect::<Vec<_>>(), trains);
        let dropped = &capture.ledger.dropped;
        assert_eq!(
            dropped
                .get(crate::trajectory::Ledger::UNSEEN)
                .copied()
                .unwrap_or_default(),
            unseen
        );
        assert_eq!(capture.ledger.total(), sampled);
        let delivered = trains.len() as f32 / sampled as f32;
        assert!((capture.audit.delivered_fraction - delivered).abs() < 1e-6);
        // The log knows it, too.
        let (scope, builder) = (CaptureScope::default(), BuilderName::default());
        let recovered = recover(&log).unwrap().capture(scope, builder);
        assert_eq!(
            (recovered.segments, recovered.ledger),
            (capture.segments.clone(), capture.ledger)
        );
        let replayed = replay(
            &log,
            &harness.prompt,
            harness.prompt.detected_tool_format(),
            scope,
            builder,
        )
        .unwrap();
        assert_eq!((replayed.changes, replayed.today.segments), (vec![], capture.segments));
    }
}

#[tokio::test]
async fn a_generation_that_nobody_waits_for_is_aborted_and_kept_as_such() {
    let harness = Harness::with(vec![held("one two three"), "again".into()], |options| {
        options.retry_grace = Duration::from_millis(50);
    })
    .await;
    let ticket = harness.open();
    let body = request(&opening());
    let given_up = harness
        .post(&ticket, &body)
        .timeout(Duration::from_millis(100))
        .send()
        .await;
    assert!(given_up.is_err());
    eventually("it is given up", || audit(&harness, &ticket).sampled_tokens == 2).await;
    let answer = harness.chat(&ticket, &body).await;
    assert_eq!(answer["choices"][0]["message"]["content"], "again");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        capture.segments.iter().map(trained).collect::<Vec<_>>(),
        [harness.sampled("again")]
    );
    assert_eq!((capture.ledger.aborted, capture.audit.num_aborts), (2, 1));
}

/// The same request once more, when its answer is no longer remembered, asks for another answer.
#[tokio::test]
async fn a_late_repeat_replaces_the_last_answer() {
    let harness = Harness::with(vec!["one".into(), "two".into()], |options| {
        options.retry_grace = Duration::ZERO;
    })
    .await;
    let ticket = harness.open();
    let body = request(&opening());
    harness.chat(&ticket, &body).await;
    assert_eq!(
        harness.chat(&ticket, &body).await["choices"][0]["message"]["content"],
        "two"
    );
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        capture.segments.iter().map(trained).collect::<Vec<_>>(),
        [harness.sampled("two")]
    );
    assert_eq!((capture.audit.n_discarded, capture.audit.n_unresolved_retries), (1, 0));
}

#[tokio::test]
async fn a_conversation_samples_one_answer_at_a_time_and_two_do_not_wait_for_each_other() {
    let harness = Harness::with(
        vec![held("one two three"), held("two three four"), held("three four five")],
        |_| {},
    )
    .await;
    let ticket = harness.open();
    let first = request(&opening());
    let mut same_conversation = opening();
    same_conversation.push(json!({"role": "user", "content": "more"}));
    let second = request(&same_conversation);
    let other = json!({"messages": [{"role": "user", "content": "title?"}]});
    let play = async {
        eventually("two start", || harness.engine.prompts().len() == 2).await;
        waiting(&harness, &ticket, 1).await;
        assert_eq!(harness.engine.prompts().len(), 2);
        harness.engine.release.add_permits(3);
    };
    let (a, b, c, ()) = tokio::join!(
        harness.send(&ticket, &first),
        harness.send(&ticket, &second),
        harness.send(&ticket, &other),
        play
    );
    assert_eq!((a.0, b.0, c.0), (200, 200, 200));
    assert_eq!(harness.engine.most_at_once.load(Ordering::SeqCst), 2);
}

/// The same messages under another body while the first attempt still waits for its turn.
#[tokio::test]
async fn a_newer_attempt_displaces_one_that_still_waits() {
    let harness = Harness::with(vec![held("one two three"), "two".into()], |_| {}).await;
    let ticket = harness.open();
    let running = request(&opening());
    let mut messages = opening();
    messages.push(json!({"role": "user", "content": "more"}));
    let older = request(&messages);
    let mut newer = older.clone();
    newer["user"] = "someone".into();
    let play = async {
        eventually("the first runs", || harness.engine.prompts().len() == 1).await;
        let older = harness.send(&ticket, &older);
        let newer = async {
            waiting(&harness, &ticket, 1).await;
            let release = async {
                eventually("the older is displaced", || audit(&harness, &ticket).num_preempted == 1).await;
                harness.engine.release.add_permits(1);
            };
            tokio::join!(harness.send(&ticket, &newer), release).0
        };
        tokio::join!(older, newer)
    };
    let (_, (older, newer)) = tokio::join!(harness.send(&ticket, &running), play);
    assert_eq!((older.0, &older.1["error"]["code"]), (409, &json!("preempted")));
    assert_eq!(newer.0, 200);
    assert_eq!(
        harness
            .proxy
            .close_session(&ticket.key)
            .await
            .unwrap()
            .audit
            .num_preempted,
        1
    );
}

#[tokio::test]
async fn closing_ends_what_runs_and_refuses_what_comes() {
    let harness = Harness::with(vec![held("one two three")], |_| {}).await;
    let ticket = harness.open();
    let close = async {
        eventually("tokens come", || harness.engine.prompts().len() == 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        harness.proxy.close_session(&ticket.key).await.unwrap()
    };
    let body = request(&opening());
    let (answer, capture) = tokio::join!(harness.send(&ticket, &body), close);
    assert_eq!(answer.0, 410, "{}", answer.1);
    assert_eq!(
        (capture.segments.len(), capture.ledger.aborted, capture.ledger.total()),
        (0, 2, 2)
    );
    assert_eq!(harness.send(&ticket, &body).await.0, 410);
}

#[tokio::test]
async fn what_an_operator_needs_is_on_the_metrics_page() {
    let mut lost: Answer = "one two three four".into();
    lost.lose_after = Some(2);
    let harness = Harness::with(vec!["a".into(), lost, "three four".into()], |_| {}).await;
    let ticket = harness.open();
    let body = request(&opening());
    harness.chat(&ticket, &body).await;
    harness.chat(&ticket, &body).await;
    harness
        .chat(&ticket, &request(&[json!({"role": "user", "content": "count"})]))
        .await;
    harness.send(&ticket, &json!({"messages": 3})).await;
    let page = harness
        .client
        .get(format!("{}/metrics", harness.url))
        .send()
        .await
        .unwrap();
    let page = page.text().await.unwrap();
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let sampled = capture.audit.sampled_tokens;
    for line in [
        "lego_proxy_requests_total{route=\"chat\",status=\"200\"} 3",
        "lego_proxy_requests_total{route=\"chat\",status=\"400\"} 1",
        "lego_proxy_retries_attached_total 1",
        "lego_proxy_continued_generations_total 1",
        "lego_proxy_sessions_open 1",
        "lego_proxy_generations 0",
        "lego_engine_waiting 0",
        "lego_proxy_first_token_seconds_count 2",
        &format!("lego_proxy_sampled_tokens_total {sampled}"),
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in\n{page}");
    }
}
