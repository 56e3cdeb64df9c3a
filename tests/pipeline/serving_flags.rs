//! `lego serve-proxy`: what it says of itself, and how it ends where a flag is wrong.

use std::process::{Command, Stdio};

use serde_json::json;

use super::quickstart;
use super::serving::{Http, Server, question, serve};

/// What a server that does not begin says.
fn refused(folder: &std::path::Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = serve(folder, arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_wrong_address_is_a_wrong_flag_and_one_in_use_is_not() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["127.0.0.1:99999", "here"] {
        let (code, said) = refused(folder.path(), &["--listen", address]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(&format!("cannot listen on {address}")), "{said}");
    }
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (code, said) = refused(folder.path(), &["--listen", &other.local_addr().unwrap().to_string()]);
    assert_eq!(code, Some(3), "{said}");
}

#[test]
fn what_clients_get_is_told_and_a_log_on_stdin_runs_again() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [
        "--anonymous",
        "--admin-token",
        "sesame",
        "--set",
        "policy.max_model_len=500",
    ];
    let server = Server::start(&mut serve(folder.path(), &arguments));
    let answer = Http::to(&server.url).post("/sess/mine/v1/chat/completions", &question(20));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let wrong = Http::to(&server.url).key("open").post("/sess/mine/finish", &json!({}));
    assert!(
        wrong.status == 401 && wrong.body.contains("admin token"),
        "{}",
        wrong.body
    );
    let finished = Http::to(&server.url)
        .key("sesame")
        .post("/sess/mine/finish", &json!({"reward": -0.0}));
    assert!(finished.body.contains("\"reward\":0.0"), "{}", finished.body);
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("serves `policy`, whatever model a request names; 500 tokens of prompt and answer together"),
        "{said}"
    );
    let log = std::fs::File::open(folder.path().join("shards/calls/mine.jsonl")).unwrap();
    let mut replay = Command::new(env!("CARGO_BIN_EXE_lego"));
    replay.arg("serve-proxy").arg(quickstart()).args(["--replay", "-"]);
    let output = replay.stdin(Stdio::from(log)).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("1 calls · 0 changes"), "{said}");
}
