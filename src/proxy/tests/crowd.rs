//! Many sessions at once: each gets its own answers, nothing is refused, and nothing grows that has no bound.

use std::sync::atomic::Ordering;

use futures_util::StreamExt as _;

use super::*;

const SESSIONS: usize = 2000;

/// Sockets of both sides, and what else the tests have open.
fn room_for_sockets() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let needed = 2 * SESSIONS as u64 + 512;
    assert!(
        hard >= needed,
        "{SESSIONS} sessions need {needed} open files, {hard} are allowed"
    );
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(needed), hard).unwrap();
}

/// All of them are in the middle of their first answer at the same moment, half of them streamed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_sessions_are_served_at_once() {
    room_for_sockets();
    let held = Answer {
        hold_after: Some(1),
        ..Answer::from(tool_call("ls").as_str())
    };
    let mut answers = vec![held; SESSIONS];
    answers.extend(vec![Answer::from("done"); SESSIONS]);
    let harness = Harness::with(answers, |_| {}).await;
    let tickets: Vec<SessionTicket> = (0..SESSIONS).map(|_| harness.open()).collect();
    let first = futures_util::stream::iter(tickets.iter().enumerate()).map(|(number, ticket)| {
        let harness = &harness;
        async move {
            let mut body = request(&opening());
            body["messages"][1]["content"] = format!("task {number}").into();
            body["stream"] = (number % 2 == 0).into();
            let response = harness
                .post(ticket, &body)
                .timeout(Duration::from_mins(2))
                .send()
                .await
                .unwrap();
            let status = response.status();
            let text = response.text().await.unwrap();
            assert_eq!(status, 200, "{text}");
            assert!(text.contains("\"name\":\"bash\""), "{text}");
            assert!(number % 2 == 1 || text.ends_with("data: [DONE]\n\n"), "{text}");
        }
    });
    let released = async {
        eventually_within(Duration::from_mins(1), || {
            harness.engine.requests.lock().unwrap().len() == SESSIONS
        })
        .await;
        harness.engine.release.add_permits(SESSIONS);
    };
    let ((), ()) = tokio::join!(first.buffer_unordered(SESSIONS).collect::<()>(), released);
    assert_eq!(harness.engine.most_at_once.load(Ordering::SeqCst), SESSIONS as u32);

    for ticket in &tickets {
        let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
        assert_eq!(trained(&capture.segments[0]), harness.sampled(&tool_call("ls")));
        assert_eq!(capture.ledger.total(), capture.ledger.trained);
    }
    assert_eq!(harness.proxy.open_sessions(), 0);
}

async fn eventually_within(patience: Duration, mut holds: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + patience;
    while !holds() {
        assert!(std::time::Instant::now() < until, "not within {patience:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A session of 100,000 tokens, in turns of an agent's size.
#[tokio::test]
async fn a_long_session_stays_small() {
    const TURNS: usize = 100;
    let answer = "word ".repeat(100) + &tool_call("ls -l");
    let harness = Harness::with(vec![answer.as_str().into(); TURNS], |options| {
        options.window = 1 << 20;
    })
    .await;
    let ticket = harness.open();
    let session = harness.proxy.0.session(&ticket.key.0).unwrap();
    let mut messages = opening();
    for _ in 0..TURNS {
        let answer = harness.chat(&ticket, &request(&messages)).await;
        messages.extend([
            assistant(&answer),
            tool_result(&answer, 0, &"a line of it\n".repeat(40)),
        ]);
    }
    let prompts = harness.engine.prompts();
    let tokens = prompts.last().unwrap().len();
    assert!(tokens > 40_000, "{tokens}");
    // Every later prompt extends the one before: nothing of it is encoded or stored again.
    assert!(prompts.windows(2).all(|pair| pair[1].starts_with(&pair[0])));
    let stored = session.state().recording.stored_tokens();
    assert!(stored < tokens + tokens / 10, "{stored} stored for {tokens}");
    assert_eq!(
        session.state().flights.len(),
        1,
        "only the last answer can be asked for again"
    );
}
