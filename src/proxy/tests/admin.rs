//! Admin routes, anonymous sessions, the end of a server, and replays of what it recorded.

use std::sync::Mutex;

use super::*;
use crate::config::{BuilderName, CaptureScope};

type Finished = Arc<Mutex<Vec<FinishedSession>>>;

async fn served(answers: &[&str], anonymous: bool, logs: &std::path::Path) -> (Harness, Finished) {
    let finished = Finished::default();
    let taken = Arc::clone(&finished);
    let admin = Admin {
        token: "boss".to_owned(),
        on_finish: Arc::new(move |session| {
            taken.lock().unwrap().push(session.clone());
            Ok(())
        }),
        call_logs: Some(logs.to_owned()),
        anonymous,
        turn_cap: None,
        seed: 42,
    };
    let answers = answers.iter().map(|&text| text.into()).collect();
    let harness = Harness::with(answers, |options| options.admin = Some(admin)).await;
    (harness, finished)
}

async fn call(harness: &Harness, method: &str, path: &str, token: &str, body: Option<Value>) -> (u16, Value) {
    let method = method.parse().unwrap();
    let mut request = harness
        .client
        .request(method, format!("{}{path}", harness.url))
        .bearer_auth(token);
    if let Some(body) = body {
        request = request.json(&body);
    }
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.json().await.unwrap())
}

#[tokio::test]
async fn a_session_is_opened_looked_into_and_finished_by_its_admin_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (harness, finished) = served(&["one"], false, folder.path()).await;
    let opening_body = json!({"task_id": "fix-it", "episode_index": 2});
    for token in ["", "agent"] {
        let (status, _) = call(&harness, "POST", "/sess", token, Some(opening_body.clone())).await;
        assert_eq!(status, 401);
        assert_eq!(call(&harness, "GET", "/sess", token, None).await.0, 401);
    }
    let (status, opened) = call(&harness, "POST", "/sess", "boss", Some(opening_body)).await;
    assert_eq!(status, 200, "{opened}");
    let (session, token) = (opened["session"].as_str().unwrap(), opened["token"].as_str().unwrap());
    let chat = format!("/sess/{session}/v1/chat/completions");
    let (status, _) = call(&harness, "POST", &chat, token, Some(request(&opening()))).await;
    assert_eq!(status, 200);
    let (_, listed) = call(&harness, "GET", "/sess", "boss", None).await;
    assert_eq!(listed["sessions"][0]["task_id"], "fix-it");
    assert_eq!(listed["sessions"][0]["calls"], 1);
    let trajectory = format!("/sess/{session}/trajectory");
    assert_eq!(call(&harness, "GET", &trajectory, token, None).await.0, 401);
    let (_, seen) = call(&harness, "GET", &trajectory, "boss", None).await;
    assert_eq!(seen["segments"].as_array().unwrap().len(), 1);
    assert_eq!(seen["messages"][2]["content"], "one");
    let finish = format!("/sess/{session}/finish");
    assert_eq!(
        call(&harness, "POST", &finish, token, Some(json!({"reward": 1.0})))
            .await
            .0,
        401
    );
    // A misspelt field ends nothing.
    let (status, refused) = call(&harness, "POST", &finish, "boss", Some(json!({"rewrad": 0.5}))).await;
    assert_eq!(status, 400);
    let text = refused.to_string();
    assert!(
        text.contains("rewrad") && text.contains("expected one of: reward"),
        "{text}"
    );
    for body in [json!({"task_id": 5}), json!({"name": "s1"})] {
        assert_eq!(call(&harness, "POST", "/sess", "boss", Some(body)).await.0, 400);
    }
    let (status, done) = call(&harness, "POST", &finish, "boss", Some(json!({"reward": 0.5}))).await;
    assert_eq!((status, &done["segments"]), (200, &json!(1)), "{done}");
    // Who asks again is told the same, whatever the reward is then said to be.
    let again = call(&harness, "POST", &finish, "boss", Some(json!({"reward": 0.9}))).await;
    assert_eq!(again, (200, done));
    assert_eq!(call(&harness, "POST", "/sess/other/finish", "boss", None).await.0, 404);
    let (status, _) = call(&harness, "POST", &chat, token, Some(request(&opening()))).await;
    assert_eq!(status, 410);
    let finished = finished.lock().unwrap();
    let [one] = finished.as_slice() else {
        panic!("{finished:?}")
    };
    assert_eq!((one.options.task_id.as_str(), one.options.episode_index), ("fix-it", 2));
    assert_eq!(one.reward, Some(0.5));
    assert_eq!(trained(&one.capture.segments[0]), harness.sampled("one"));
    assert!(folder.path().join(format!("{session}.jsonl")).is_file());
}

#[tokio::test]
async fn a_session_that_could_not_be_written_is_kept_and_finished_again() {
    let tries: Arc<Mutex<Vec<FinishedSession>>> = Arc::default();
    let taken = Arc::clone(&tries);
    let admin = Admin {
        token: "boss".to_owned(),
        on_finish: Arc::new(move |session| {
            let mut tries = taken.lock().unwrap();
            tries.push(session.clone());
            if tries.len() < 3 {
                return Err("the disk is full".to_owned());
            }
            Ok(())
        }),
        call_logs: None,
        anonymous: true,
        turn_cap: None,
        seed: 42,
    };
    let harness = Harness::with(vec!["one".into()], |options| options.admin = Some(admin)).await;
    let (chat, finish) = ("/sess/mine/v1/chat/completions", "/sess/mine/finish");
    assert_eq!(
        call(&harness, "POST", chat, "any", Some(request(&opening()))).await.0,
        200
    );
    for body in [Some(json!({"reward": 0.5})), None] {
        let (status, refused) = call(&harness, "POST", finish, "boss", body).await;
        assert_eq!(status, 500);
        let text = refused.to_string();
        assert!(
            text.contains("the disk is full") && text.contains("finish it again"),
            "{text}"
        );
        assert_eq!(harness.proxy.unwritten_sessions(), 1);
        // It takes no more calls, and none begins anew under its name.
        let (status, _) = call(&harness, "POST", chat, "any", Some(request(&opening()))).await;
        assert_eq!(status, 410);
    }
    // Of those who ask at once one writes, and all are told the same.
    let (first, second) = tokio::join!(
        call(&harness, "POST", finish, "boss", None),
        call(&harness, "POST", finish, "boss", None)
    );
    assert_eq!((first.0, &first.1["reward"]), (200, &json!(0.5)), "{}", first.1);
    assert_eq!(first, second);
    assert_eq!(harness.proxy.unwritten_sessions(), 0);
    let tries = tries.lock().unwrap();
    assert_eq!(tries.len(), 3);
    for one in tries.iter() {
        assert_eq!(trained(&one.capture.segments[0]), harness.sampled("one"));
        assert_eq!((one.reward, one.ended_at), (Some(0.5), tries[0].ended_at));
    }
}

#[tokio::test]
async fn a_name_of_an_earlier_process_is_not_taken_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = "/sess/run1/v1/chat/completions";
    let body = || Some(request(&opening()));
    let (first, _) = served(&["one"], true, folder.path()).await;
    assert_eq!(call(&first, "POST", path, "any", body()).await.0, 200);
    call(&first, "POST", "/sess/run1/finish", "boss", None).await;
    let log = std::fs::read(folder.path().join("run1.jsonl")).unwrap();
    // The proxy starts anew over the same folder.
    let (second, finished) = served(&["two"], true, folder.path()).await;
    let (status, refused) = call(&second, "POST", path, "any", body()).await;
    assert_eq!(status, 410);
    let text = refused.to_string();
    assert!(text.contains("run1") && text.contains("take another name"), "{text}");
    assert_eq!(call(&second, "POST", "/sess/run1/finish", "boss", None).await.0, 404);
    assert_eq!(std::fs::read(folder.path().join("run1.jsonl")).unwrap(), log);
    let other = "/sess/run2/v1/chat/completions";
    assert_eq!(call(&second, "POST", other, "any", body()).await.0, 200);
    call(&second, "POST", "/sess/run2/finish", "boss", None).await;
    assert_eq!(finished.lock().unwrap().len(), 1);
    // One that is opened by hand has a name and a log of its own each time.
    let tickets = [(); 2].map(|()| second.proxy.open_by_hand().unwrap().unwrap());
    for ticket in &tickets {
        assert!(folder.path().join(format!("{}.jsonl", ticket.key)).is_file());
    }
    let (_, listed) = call(&second, "GET", "/sess", "boss", None).await;
    let named = |row: &Value| row["session"] == row["task_id"];
    assert!(listed["sessions"].as_array().unwrap().iter().all(named), "{listed}");
}

#[tokio::test]
async fn many_clients_begin_one_session_and_its_log_once() {
    let folder = tempfile::tempdir().unwrap();
    let (harness, _) = served(&["one"; 8], true, folder.path()).await;
    let path = "/sess/shared/v1/chat/completions";
    let calls = (0..8).map(|number| {
        let message = json!({"role": "user", "content": format!("number {number}")});
        call(&harness, "POST", path, "any", Some(request(&[message])))
    });
    for (status, answer) in futures_util::future::join_all(calls).await {
        assert_eq!(status, 200, "{answer}");
    }
    let log = std::fs::read_to_string(folder.path().join("shared.jsonl")).unwrap();
    assert_eq!(log.matches("\"kind\":\"session\"").count(), 1);
}

#[tokio::test]
async fn an_empty_token_opens_nothing() {
    let admin = Admin {
        token: String::new(),
        on_finish: Arc::new(|_| Ok(())),
        call_logs: None,
        anonymous: false,
        turn_cap: None,
        seed: 42,
    };
    let harness = Harness::with(vec![], |options| options.admin = Some(admin)).await;
    let request = harness.client.get(format!("{}/sess", harness.url));
    assert_eq!(request.header("x-api-key", "").send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn anonymous_clients_have_sessions_only_where_that_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    let (closed, _) = served(&[], false, folder.path()).await;
    let body = request(&opening());
    let path = "/sess/my-task/v1/chat/completions";
    assert_eq!(call(&closed, "POST", path, "any", Some(body.clone())).await.0, 401);
    let (open, finished) = served(&["one", "two", "three"], true, folder.path()).await;
    let (_, first) = call(&open, "POST", path, "any", Some(body.clone())).await;
    let mut messages = opening();
    messages.extend([assistant(&first), json!({"role": "user", "content": "more"})]);
    let (status, _) = call(&open, "POST", path, "other", Some(request(&messages))).await;
    assert_eq!(status, 200);
    assert_eq!(
        call(&open, "POST", "/v1/chat/completions", "any", Some(body.clone()))
            .await
            .0,
        200
    );
    let odd = "/sess/..%2fx/v1/chat/completions";
    let (status, refused) = call(&open, "POST", odd, "any", Some(body)).await;
    assert_eq!(status, 400);
    assert!(refused.to_string().contains("cannot name a session"), "{refused}");
    call(
        &open,
        "POST",
        "/sess/my-task/finish",
        "boss",
        Some(json!({"reward": 1.0})),
    )
    .await;
    let finished = finished.lock().unwrap();
    assert_eq!(finished[0].options.task_id, "my-task");
    assert_eq!(finished[0].capture.segments.len(), 1);
    assert_eq!(finished[0].capture.audit.num_calls, 2);
}

#[tokio::test]
async fn running_calls_may_end_before_the_server_does() {
    let held = Answer {
        hold_after: Some(1),
        ..Answer::from("one two")
    };
    let harness = Harness::with(vec![held], |_| {}).await;
    let ticket = harness.open();
    let body = request(&opening());
    let running = tokio::spawn(harness.post(&ticket, &body).send());
    eventually("the call runs", || !harness.engine.prompts().is_empty()).await;
    let proxy = harness.proxy.clone();
    let draining = tokio::spawn(async move { proxy.drain(Duration::from_secs(10)).await });
    tokio::time::sleep(Duration::from_millis(50)).await;
    let (status, refused) = harness.send(&ticket, &request(&opening()[1..])).await;
    assert_eq!(status, 503, "{refused}");
    assert!(!draining.is_finished());
    harness.engine.release.add_permits(1);
    assert_eq!(running.await.unwrap().unwrap().status(), 200);
    draining.await.unwrap();
}

#[tokio::test]
async fn a_recorded_session_runs_again_and_tells_what_changes() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.jsonl");
    let answers = [tool_call("cat a"), "done".to_owned()];
    let harness = Harness::new(&answers.each_ref().map(String::as_str)).await;
    let ticket = harness
        .proxy
        .open_session(SessionOptions {
            call_log: Some(log.clone()),
            ..SessionOptions::default()
        })
        .unwrap();
    let mut messages = opening();
    let first = harness.chat(&ticket, &request(&messages)).await;
    messages.extend([assistant(&first), tool_result(&first, 0, "1:2")]);
    harness.chat(&ticket, &request(&messages)).await;
    harness.proxy.close_session(&ticket.key).await.unwrap();
    let again = |format| replay(&log, &harness.prompt, format, CaptureScope::Main, BuilderName::Segments).unwrap();
    let same = again(harness.prompt.detected_tool_format());
    assert_eq!((same.calls, same.changes.as_slice()), (2, [].as_slice()));
    assert_eq!(same.recorded.segments, same.today.segments);
    // A parser that knows no calls takes them for text, and the history no longer continues what was said.
    let plain = again(None);
    let of_first: Vec<&str> = plain
        .changes
        .iter()
        .filter(|change| change.call == 0)
        .map(|change| change.what)
        .collect();
    assert_eq!(of_first, ["text", "tool_calls"]);
    assert!(
        plain
            .changes
            .iter()
            .any(|change| change.call == 1 && change.what == "parent")
    );
}

#[tokio::test]
async fn a_completion_runs_again_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.jsonl");
    let harness = Harness::new(&["one"]).await;
    let options = SessionOptions {
        call_log: Some(log.clone()),
        ..SessionOptions::default()
    };
    let ticket = harness.proxy.open_session(options).unwrap();
    let path = format!("/sess/{}/v1/completions", ticket.key);
    let (status, _) = call(&harness, "POST", &path, &ticket.token, Some(json!({"prompt": "x"}))).await;
    assert_eq!(status, 200);
    harness.proxy.close_session(&ticket.key).await.unwrap();
    let again = replay(&log, &harness.prompt, None, CaptureScope::Main, BuilderName::Segments).unwrap();
    assert_eq!((again.calls, again.changes.len()), (1, 0));
    assert_eq!(again.recorded.segments.len(), 1);
    assert_eq!(again.today.segments, again.recorded.segments);
}
