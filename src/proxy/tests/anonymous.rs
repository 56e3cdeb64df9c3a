//! Clients that bring no session: what they leave behind, and what waits when nothing can be written.

use std::path::Path;
use std::sync::Mutex;

use super::*;

/// A proxy that is run by hand; `on_finish` says of each finished session whether it was written.
async fn by_hand(
    answers: &[&str],
    logs: Option<&Path>,
    on_finish: impl Fn(&FinishedSession) -> Result<(), String> + Send + Sync + 'static,
) -> Harness {
    let admin = Admin {
        token: "boss".to_owned(),
        on_finish: Arc::new(on_finish),
        call_logs: logs.map(Path::to_owned),
        anonymous: true,
        turn_cap: None,
        seed: 42,
    };
    let answers = answers.iter().map(|&text| text.into()).collect();
    Harness::with(answers, |options| options.admin = Some(admin)).await
}

async fn post(harness: &Harness, path: &str, body: &Value) -> (u16, Value) {
    let response = post_raw(harness, path, body.to_string()).await;
    (response.status().as_u16(), response.json().await.unwrap())
}

async fn post_raw(harness: &Harness, path: &str, body: String) -> reqwest::Response {
    let request = harness.client.post(format!("{}{path}", harness.url)).body(body);
    request.bearer_auth("boss").send().await.unwrap()
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Files below a folder that this process holds open.
fn held(folder: &Path) -> usize {
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    open.filter(|fd| std::fs::read_link(fd.as_ref().unwrap().path()).is_ok_and(|file| file.starts_with(folder)))
        .count()
}

#[tokio::test]
async fn a_client_without_a_session_leaves_one_only_where_something_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let harness = by_hand(&["one", "two", "three"], Some(folder.path()), |_| Ok(())).await;
    let body = request(&opening());
    let said = json!({"messages": [{"role": "user", "content": "a"}]});
    for path in ["/v1/messages/count_tokens", "/sess/mine/v1/messages/count_tokens"] {
        let (status, counted) = post(&harness, path, &said).await;
        assert_eq!(status, 200);
        assert!(counted["input_tokens"].as_u64().unwrap() > 0);
    }
    for (path, refused) in [
        ("/v1/chat/completions", "{"),
        ("/sess/mine/v1/chat/completions", "{\"messages\": 5}"),
        ("/v1/messages", "[]"),
        ("/v1/completions", "{}"),
        (
            "/v1/responses",
            "{\"input\": \"a\", \"previous_response_id\": \"resp_1-0\"}",
        ),
    ] {
        assert_eq!(
            post_raw(&harness, path, refused.to_owned()).await.status(),
            400,
            "{path}"
        );
    }
    assert_eq!((harness.proxy.open_sessions(), files(folder.path())), (0, 0));
    // What is recorded is: a session for each call without a name, one for those that share a name.
    assert_eq!(post(&harness, "/v1/chat/completions", &body).await.0, 200);
    let named = "/sess/mine/v1/chat/completions";
    let (_, first) = post(&harness, named, &body).await;
    assert_eq!((harness.proxy.open_sessions(), files(folder.path())), (2, 2));
    eventually("no file is held", || held(folder.path()) == 0).await;
    let mut messages = opening();
    messages.extend([assistant(&first), json!({"role": "user", "content": "more"})]);
    assert_eq!(post(&harness, named, &request(&messages)).await.0, 200);
    let (_, finished) = post(&harness, "/sess/mine/finish", &json!({})).await;
    assert_eq!((&finished["num_calls"], &finished["segments"]), (&json!(2), &json!(1)));
    let log = recover(&folder.path().join("mine.jsonl")).unwrap();
    let (scope, builder) = Default::default();
    assert_eq!(log.capture(scope, builder).audit.num_calls, 2);
}

/// A log that somebody took away is not begun anew in its middle.
#[tokio::test]
async fn a_call_whose_log_is_gone_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let harness = by_hand(&["one", "two"], Some(folder.path()), |_| Ok(())).await;
    let path = "/sess/mine/v1/chat/completions";
    assert_eq!(post(&harness, path, &request(&opening())).await.0, 200);
    eventually("no file is held", || held(folder.path()) == 0).await;
    std::fs::remove_file(folder.path().join("mine.jsonl")).unwrap();
    let other = json!({"messages": [{"role": "user", "content": "more"}]});
    assert_eq!(post(&harness, path, &other).await.0, 500);
    assert_eq!((harness.engine.prompts().len(), files(folder.path())), (1, 0));
}

#[tokio::test]
async fn what_cannot_be_written_waits_in_bounded_number_and_is_tried_again() {
    let disk: Arc<Mutex<(bool, Vec<SessionKey>)>> = Arc::default();
    let taken = Arc::clone(&disk);
    let harness = by_hand(&["one"; 131], None, move |session| {
        let mut disk = taken.lock().unwrap();
        if !disk.0 {
            return Err("the disk is full".to_owned());
        }
        disk.1.push(session.key.clone());
        Ok(())
    })
    .await;
    let call = |number: usize| format!("/sess/s{number}/v1/chat/completions");
    let finish = |number: usize| format!("/sess/s{number}/finish");
    let body = request(&opening());
    for number in 0..128 {
        assert_eq!(post(&harness, &call(number), &body).await.0, 200);
        assert_eq!(post(&harness, &finish(number), &json!({"reward": 1.0})).await.0, 500);
    }
    assert_eq!(post(&harness, &call(128), &body).await.0, 200);
    let refused = post_raw(&harness, &finish(128), String::new()).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let told = refused.text().await.unwrap();
    assert!(
        told.contains("128 finished sessions could not be written") && told.contains("the disk is full"),
        "{told}"
    );
    // It was not ended, and one of those that were may be finished again at any time.
    let other = json!({"messages": [{"role": "user", "content": "more"}]});
    assert_eq!(post(&harness, &call(128), &other).await.0, 200);
    assert_eq!(
        (harness.proxy.unwritten_sessions(), harness.proxy.open_sessions()),
        (128, 1)
    );
    let (unwritten, reason) = harness.proxy.write_unwritten(Duration::from_secs(10)).await.unwrap();
    assert!(unwritten == 128 && reason.contains("the disk is full"), "{reason}");
    disk.lock().unwrap().0 = true;
    assert_eq!(post(&harness, &finish(128), &json!({"reward": 1.0})).await.0, 200);
    assert_eq!(harness.proxy.unwritten_sessions(), 127);
    assert_eq!(harness.proxy.write_unwritten(Duration::from_secs(10)).await, None);
    let mut written: Vec<String> = disk.lock().unwrap().1.iter().map(|key| key.0.clone()).collect();
    written.sort();
    written.dedup();
    assert_eq!((written.len(), disk.lock().unwrap().1.len()), (129, 129));
}
