use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;
use crate::scaffold::testing::{Reply, ScriptedModel, bash_calls, job, no_env, raw_call};

const DONE: &str = "done";

fn done() -> Reply {
    Reply::Message(json!({"role": "assistant", "content": DONE}))
}

fn quick() -> Builtin {
    let limits = BuiltinLimits {
        command: Duration::from_secs(5),
        model_attempts: 3,
        model_backoff: Duration::from_millis(2),
    };
    Builtin::with_limits(no_env(), limits)
}

async fn play(replies: Vec<Reply>) -> (Result<AgentReport, ScaffoldError>, Vec<Value>, tempfile::TempDir) {
    play_with(replies, |_| {}).await
}

async fn play_with(
    replies: Vec<Reply>,
    change: impl FnOnce(&mut AgentJob),
) -> (Result<AgentReport, ScaffoldError>, Vec<Value>, tempfile::TempDir) {
    let root = tempfile::tempdir().unwrap();
    let model = ScriptedModel::start(replies).await;
    let mut job = job(root.path(), &model.url);
    change(&mut job);
    let report = quick().run(job).await;
    (report, model.requests(), root)
}

#[tokio::test]
async fn commands_run_in_order_and_their_results_go_back() {
    let (report, requests, root) = play(vec![
        Reply::Message(bash_calls(&["echo a > f; echo made", "cat f; exit 3"])),
        done(),
    ])
    .await;
    let report = report.unwrap();
    assert_eq!(
        (report.end, report.turns, report.tool_calls),
        (AgentEnd::Completed, 2, 2)
    );
    assert!(report.tool_s > 0.0 && report.model_s > 0.0);
    assert_eq!(fs_err::read_to_string(root.path().join("work/f")).unwrap(), "a\n");

    let first = &requests[0];
    assert_eq!(first["model"], "policy");
    assert_eq!(first["tools"], json!([bash_tool()]));
    assert_eq!(
        first["messages"],
        json!([{"role": "system", "content": SYSTEM_PROMPT}, {"role": "user", "content": "mend it"}])
    );
    let second = requests[1]["messages"].as_array().unwrap();
    assert_eq!(second[2], bash_calls(&["echo a > f; echo made", "cat f; exit 3"]));
    assert_eq!(
        second[3],
        json!({"role": "tool", "tool_call_id": "c0", "content": "made"})
    );
    assert_eq!(
        second[4],
        json!({"role": "tool", "tool_call_id": "c1", "content": "a\n[exit 3]"})
    );
}

#[tokio::test]
async fn the_log_holds_every_message_and_the_end() {
    let (_, _, root) = play(vec![Reply::Message(bash_calls(&["true"])), done()]).await;
    let log = fs_err::read_to_string(root.path().join("logs/trajectory.jsonl")).unwrap();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[3]["message"]["content"], "(no output)");
    assert_eq!(lines[4]["message"]["content"], DONE);
    assert_eq!(lines[5]["report"]["end"], "completed");
    assert!(!log.contains("secret"));
}

#[tokio::test]
async fn the_turn_cap_ends_after_the_last_commands() {
    let turns = (0..3).map(|_| Reply::Message(bash_calls(&["echo x >> f"]))).collect();
    let (report, requests, root) = play_with(turns, |job| job.max_turns = 3).await;
    assert_eq!(report.unwrap().end, AgentEnd::MaxTurns);
    assert_eq!(requests.len(), 3);
    assert_eq!(fs_err::read_to_string(root.path().join("work/f")).unwrap(), "x\nx\nx\n");
}

#[tokio::test]
async fn as_many_answers_without_a_command_as_allowed_end_the_episode() {
    let replies = vec![done(), Reply::Message(bash_calls(&["true"])), done(), done()];
    let (report, requests, _) = play_with(replies, |job| job.max_consecutive_no_tool = 2).await;
    let report = report.unwrap();
    assert_eq!((report.end, report.turns), (AgentEnd::Completed, 4));
    assert_eq!(
        requests[1]["messages"].as_array().unwrap().last(),
        Some(&json!({"role": "user", "content": NUDGE}))
    );
    assert_eq!(requests.len(), 4, "a command in between starts the count anew");
}

#[tokio::test]
async fn unknown_tools_and_bad_arguments_are_told_to_the_model() {
    let calls = json!({"role": "assistant", "content": null, "tool_calls": [
        raw_call("a", "python", "{}"), raw_call("b", "bash", "{\"command\": \"ls"), raw_call("c", "bash", "{}")]});
    let (report, requests, _) = play(vec![Reply::Message(calls), done()]).await;
    assert_eq!(report.unwrap().tool_calls, 3);
    let told: Vec<&str> = requests[1]["messages"].as_array().unwrap()[3..]
        .iter()
        .map(|message| message["content"].as_str().unwrap())
        .collect();
    assert!(told[0].contains("no tool `python`"), "{told:?}");
    assert!(told[1].contains("not JSON"), "{told:?}");
    assert!(told[2].contains("missing"), "{told:?}");
}

#[tokio::test]
async fn a_full_window_and_a_cut_answer_are_overlong() {
    let (report, requests, _) = play(vec![Reply::Refuse(400, "context_length_exceeded")]).await;
    assert_eq!(report.unwrap().end, AgentEnd::Overlong);
    assert_eq!(requests.len(), 1);

    let (report, _, root) = play(vec![Reply::Cut(bash_calls(&["touch never"]))]).await;
    assert_eq!(report.unwrap().end, AgentEnd::Overlong);
    assert!(!root.path().join("work/never").exists());
}

#[tokio::test]
async fn the_sessions_own_turn_cap_ends_like_ours() {
    let (report, requests, _) = play(vec![Reply::Refuse(429, "turn_cap")]).await;
    assert_eq!(report.unwrap().end, AgentEnd::MaxTurns);
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn passing_failures_are_tried_again_and_lasting_ones_are_not_the_agents() {
    let (report, requests, _) = play(vec![
        Reply::Refuse(503, "unavailable"),
        Reply::Refuse(500, "bug"),
        done(),
    ])
    .await;
    assert_eq!(report.unwrap().end, AgentEnd::Completed);
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0], requests[2]);

    let (report, requests, _) = play((0..9).map(|_| Reply::Refuse(503, "unavailable")).collect()).await;
    assert!(matches!(report.unwrap_err(), ScaffoldError::Model(reason) if reason.contains("3 tries")));
    assert_eq!(requests.len(), 3);

    let (report, requests, _) = play(vec![Reply::Refuse(401, "invalid_api_key")]).await;
    assert!(matches!(report.unwrap_err(), ScaffoldError::Model(reason) if reason.contains("401")));
    assert_eq!(requests.len(), 1);
}

#[tokio::test]
async fn no_server_is_a_failure_of_the_endpoint() {
    let root = tempfile::tempdir().unwrap();
    let error = quick()
        .run(job(root.path(), "http://127.0.0.1:1/sess/s"))
        .await
        .unwrap_err();
    assert!(matches!(error, ScaffoldError::Model(_)), "{error}");
    let log = fs_err::read_to_string(root.path().join("logs/trajectory.jsonl")).unwrap();
    assert!(log.lines().last().unwrap().contains("\"error\""));
}

#[tokio::test]
async fn time_ends_a_waiting_call_and_a_running_command() {
    let (report, _, _) = play_with(vec![Reply::Silence], |job| job.timeout = Duration::from_millis(100)).await;
    assert_eq!(report.unwrap().end, AgentEnd::Timeout);

    let began = Instant::now();
    let sleepy = vec![Reply::Message(bash_calls(&["sleep 30", "touch never"]))];
    let (report, _, root) = play_with(sleepy, |job| job.timeout = Duration::from_millis(300)).await;
    assert_eq!(report.unwrap().end, AgentEnd::Timeout);
    assert!(began.elapsed() < Duration::from_secs(10));
    assert!(!root.path().join("work/never").exists());
}

#[tokio::test]
async fn one_slow_command_does_not_end_the_episode() {
    let root = tempfile::tempdir().unwrap();
    let model = ScriptedModel::start([Reply::Message(bash_calls(&["sleep 30"])), done()]).await;
    let limits = BuiltinLimits {
        command: Duration::from_millis(100),
        ..BuiltinLimits::default()
    };
    let report = Builtin::with_limits(no_env(), limits)
        .run(job(root.path(), &model.url))
        .await
        .unwrap();
    assert_eq!(report.end, AgentEnd::Completed);
    let told = model.requests()[1]["messages"][3]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(told.ends_with("[exit 124]"), "{told}");
}

#[tokio::test]
async fn cancelling_ends_at_once() {
    let began = Instant::now();
    let (report, _, _) = play_with(vec![Reply::Message(bash_calls(&["sleep 30"]))], |job| {
        let cancel = job.cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            cancel.cancel();
        });
    })
    .await;
    assert!(matches!(report, Err(ScaffoldError::Cancelled)));
    assert!(began.elapsed() < Duration::from_secs(10));
}
