//! Which replicas are given requests, and when.

use super::*;
use crate::balance::hold::HoldRule;

#[tokio::test(flavor = "multi_thread")]
async fn one_whose_requests_fail_is_given_none_and_tried_again() {
    let harness = Harness::start(2, GatewayOptions::default()).await;
    harness.servers[0].break_with(&[Fault::Status(502); 40]);
    for index in 0..30 {
        let (status, _) = harness.chat(&format!("s{index}"), json!({ "messages": [] })).await;
        assert_eq!(status, 200);
    }
    assert!(harness.servers[0].asked() < 15, "it was passed over");
    assert_eq!(harness.gateway.replicas()[0].state, "broken");
    harness.servers[0].break_with(&[]);
    let mut index = 0;
    while harness.gateway.replicas()[0].state != "healthy" {
        index += 1;
        assert!(index < 2_000);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert_eq!(
            harness.chat(&format!("t{index}"), json!({ "messages": [] })).await.0,
            200
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_unwell_is_out_and_its_sessions_go() {
    let harness = Harness::start(2, GatewayOptions::default()).await;
    let home = harness.by("s").await;
    let at = harness.index(&home);
    // A turn that waits there is answered elsewhere once it is known.
    harness.servers[at].break_with(&[Fault::Silent]);
    let waiting = harness
        .post("/v1/chat/completions", "s", json!({ "messages": [] }))
        .send();
    let waiting = tokio::spawn(waiting);
    harness.until(|rows| rows[at].requests == 1).await;
    harness.servers[at].unwell.store(true, Ordering::SeqCst);
    harness.until(|rows| rows[at].state == "out").await;
    let text = waiting.await.unwrap().unwrap().text().await.unwrap();
    assert!(
        text.contains("\"by\"") && !text.contains(&format!("\"{home}\"")),
        "{text}"
    );
    assert_ne!(harness.by("s").await, home);
    harness.servers[at].unwell.store(false, Ordering::SeqCst);
    harness.until(|rows| rows[at].state == "healthy").await;
    assert_ne!(harness.by("s").await, home, "nothing moves back");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_come_and_go() {
    let harness = Harness::start(2, GatewayOptions::default()).await;
    let home = harness.by("s").await;
    let (url, other) = (
        &harness.urls[harness.index(&home)],
        &harness.urls[1 - harness.index(&home)],
    );
    let change = |method: reqwest::Method, body: Value| {
        harness
            .client
            .request(method, format!("{}/replicas", harness.url))
            .json(&body)
            .send()
    };
    let drained = change(reqwest::Method::DELETE, json!({ "url": url })).await.unwrap();
    assert!(drained.status().is_success());
    assert_eq!(
        harness
            .gateway
            .replicas()
            .iter()
            .filter(|row| row.state == "draining")
            .count(),
        1
    );
    // Its session stays, new ones go elsewhere; and when it has none left it is gone.
    assert_eq!(harness.by("s").await, home);
    for name in ["n1", "n2", "n3"] {
        assert_ne!(harness.by(name).await, home);
    }
    let ended = harness
        .client
        .delete(format!("{}/sessions/s", harness.url))
        .send()
        .await
        .unwrap();
    assert!(ended.status().is_success());
    harness.until(|rows| rows.len() == 1 && rows[0].replica == *other).await;
    let unknown = change(reqwest::Method::DELETE, json!({ "url": url })).await.unwrap();
    assert_eq!(unknown.status().as_u16(), 404);
    let added = change(reqwest::Method::POST, json!({ "url": url, "wait_s": 20 }))
        .await
        .unwrap();
    assert!(added.status().is_success());
    assert!(harness.gateway.replicas().iter().all(|row| row.state == "healthy"));
    for wrong in [
        json!({ "url": "gpu:1" }),
        json!({ "url": "ftp://a" }),
        json!({ "uri": "x" }),
    ] {
        let refused = change(reqwest::Method::POST, wrong.clone()).await.unwrap();
        assert_eq!(refused.status().as_u16(), 400, "{wrong}");
    }
    let now = change(reqwest::Method::DELETE, json!({ "url": other, "now": true }))
        .await
        .unwrap();
    assert!(now.status().is_success());
    assert_eq!(harness.by("n1").await, home, "its sessions go elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_all_are_drained_a_new_session_waits_for_so_long() {
    let options = GatewayOptions {
        patience: Duration::from_millis(300),
        ..GatewayOptions::default()
    };
    let harness = Harness::start(1, options).await;
    harness.by("s").await;
    assert!(harness.gateway.0.pool.drain(&harness.urls[0]));
    let (status, text) = harness.chat("new", json!({ "messages": [] })).await;
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("took new sessions"), "{text}");
    assert_eq!(harness.by("s").await, "a");
}

#[tokio::test(flavor = "multi_thread")]
async fn turns_are_held_until_there_is_room_and_ends_make_it() {
    let options = GatewayOptions {
        hold: Some(HoldSettings {
            capacity: None,
            rule: HoldRule::Lease {
                lease: Duration::from_mins(10),
                tax: 0.05,
            },
            max_hold: Duration::from_mins(10),
            idle_ttl: Duration::from_mins(10),
        }),
        keep_alive: Duration::from_millis(100),
        ..GatewayOptions::default()
    };
    let harness = Harness::start(1, options).await;
    // Nothing is known of the cache, and nothing is held.
    harness.by("s0").await;
    assert_eq!(harness.gateway.replicas()[0].capacity_tokens, Some(0));
    *harness.servers[0].metrics.lock().unwrap() =
        "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1.0\n".to_owned();
    harness.until(|rows| rows[0].capacity_tokens == Some(1520)).await;
    // A session holds 700 tokens after its first turn: two fit.
    let first = harness.by("s1").await;
    harness.by("s2").await;
    let long = json!({ "messages": [{ "role": "user", "content": "x".repeat(2_000) }], "stream": true });
    let third = tokio::spawn(harness.post("/v1/chat/completions", "s3", long).send());
    let response = third.await.unwrap().unwrap();
    harness.until(|rows| rows[0].held == Some(1)).await;
    let before = harness.servers[0].asked();
    // A turn of a session that has a place is sent at once.
    assert_eq!(harness.by("s1").await, first);
    assert_eq!(harness.servers[0].asked(), before + 1);
    let end = harness
        .client
        .delete(format!("{}/sessions/s2", harness.url))
        .send()
        .await
        .unwrap();
    assert!(end.status().is_success());
    let text = response.text().await.unwrap();
    assert!(
        text.starts_with(": keep-alive") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    assert_eq!(harness.gateway.replicas()[0].held, Some(0));
    let metrics = harness
        .client
        .get(format!("{}/metrics", harness.url))
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        metrics.contains("lego_balance_held_total{replica=")
            && metrics.contains("lego_balance_placed_total{reason=\"home\"}")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_accepts_and_never_answers_is_never_up() {
    let harness = Harness::start(1, GatewayOptions::default()).await;
    // Half open: the system takes its connections, and nobody reads them.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    harness.gateway.add(&url).unwrap();
    harness.until(|rows| rows[1].reason.is_some()).await;
    for index in 0..10 {
        assert_eq!(harness.by(&format!("s{index}")).await, "a");
    }
    assert_eq!(harness.gateway.replicas()[1].state, "starting");
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_behind_tls_are_reached_by_whom_they_are_trusted() {
    let trusting = |name: Option<&str>| GatewayOptions {
        ca_file: name.map(fixture),
        ..GatewayOptions::default()
    };
    let harness = Harness::start_servers(1, trusting(Some("authority.pem")), true).await;
    assert_eq!(harness.by("s").await, "a");
    let (status, text) = harness.chat("s", stream()).await;
    assert!(status == 200 && text.ends_with("data: [DONE]\n\n"), "{text}");
    // Nobody has vouched for it; and it is another host's certificate there.
    let url = &harness.urls[0];
    for (gateway, url) in [
        (Gateway::new(trusting(None)), url.clone()),
        (harness.gateway.clone(), url.replace("localhost", "127.0.0.2")),
    ] {
        gateway.add(&url).unwrap();
        let said = tokio::time::timeout(Duration::from_secs(30), async {
            loop {
                if let Some(reason) = gateway.replicas().into_iter().last().and_then(|row| row.reason) {
                    return reason;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        let said = said.await.unwrap();
        assert!(said.contains("certificate") && said.contains("`--ca-file`"), "{said}");
    }
    let error = Gateway::new(trusting(Some("server.key")))
        .add(url)
        .unwrap_err()
        .to_string();
    assert!(error.contains("server.key: expected certificates in PEM"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_that_are_missing_or_renamed_only_hide_their_figures() {
    let harness = Harness::start(1, GatewayOptions::default()).await;
    let page = |text: &str| *harness.servers[0].metrics.lock().unwrap() = text.to_owned();
    page("vllm:gpu_cache_usage_perc 0.5\nvllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"100\"} 1\n");
    harness.until(|rows| rows[0].kv_percent == Some(50.0)).await;
    page("sglang:num_used_tokens 30\nsglang:max_total_num_tokens 40\nsglang:num_running_reqs 3\n");
    harness
        .until(|rows| rows[0].kv_percent == Some(75.0) && rows[0].running == 3)
        .await;
    page("<html>nothing of the kind");
    harness.until(|rows| rows[0].kv_percent.is_none()).await;
    assert_eq!(harness.gateway.replicas()[0].state, "healthy");
    assert_eq!(harness.by("s").await, "a");
}
