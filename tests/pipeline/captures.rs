//! What `lego serve-proxy --capture` leaves: finished once and for all, by names that stay theirs, and accounted for.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::accounts::diagnose;
use super::quickstart;
use super::serving::{Http, Server, episodes, question, serve, terminate};

const ADMIN: [&str; 3] = ["--anonymous", "--admin-token", "sesame"];

fn ask(server: &Server, session: &str) -> u16 {
    let path = format!("/sess/{session}/v1/chat/completions");
    Http::to(&server.url).post(&path, &question(20)).status
}

fn finish(server: &Server, session: &str) -> (u16, String) {
    let path = format!("/sess/{session}/finish");
    let answer = Http::to(&server.url).key("sesame").post(&path, &json!({"reward": 1.0}));
    (answer.status, answer.body)
}

#[test]
fn a_finish_is_repeated_until_it_is_durable_and_the_folder_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    let server = Server::start(&mut serve(folder.path(), &ADMIN));
    assert_eq!(ask(&server, "first"), 200);
    assert_eq!(ask(&server, "open"), 200);
    // Where its shard would go there is a file.
    std::fs::write(shards.join("000000"), "").unwrap();
    let (status, refused) = finish(&server, "first");
    assert_eq!(status, 500, "{refused}");
    assert!(refused.contains("finish it again"), "{refused}");
    assert_eq!(ask(&server, "first"), 410);
    std::fs::remove_file(shards.join("000000")).unwrap();
    let done = finish(&server, "first");
    assert_eq!(done.0, 200, "{}", done.1);
    assert_eq!(finish(&server, "first"), done);
    server.kill();
    assert_eq!(episodes(&shards).len(), 1);

    // Its name is taken, in this process and the next.
    let server = Server::start(&mut serve(folder.path(), &ADMIN));
    assert_eq!(ask(&server, "first"), 410);
    assert_eq!(ask(&server, "second"), 200);
    assert_eq!(finish(&server, "second").0, 200);
    server.kill();
    let episodes = episodes(&shards);
    let tokens: u64 = episodes.iter().map(|episode| episode.audit.sampled_tokens).sum();
    let (code, accounts, said) = diagnose(&shards);
    assert_eq!(code, Some(0), "{said}");
    let rows: Vec<Value> = accounts.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows[0], json!({"account": "trained", "tokens": tokens}));
    assert_eq!(rows[1]["account"], "dropped: no_episode");
    assert!(said.contains("2 episodes") && said.contains("in 3 sessions"), "{said}");
    assert!(
        said.contains("1 sessions were never finished and are in no row: open"),
        "{said}"
    );

    // A log that lost a call, and one that is gone.
    let log = |name: &str| shards.join(format!("calls/{name}.jsonl"));
    let whole = std::fs::read_to_string(log("first")).unwrap();
    let first_line = whole.lines().next().unwrap();
    std::fs::write(log("first"), format!("{first_line}\n")).unwrap();
    std::fs::remove_file(log("second")).unwrap();
    let (code, _, said) = diagnose(&shards);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("first.jsonl: 0 tokens train by the log"), "{said}");
    assert!(
        said.contains("second.jsonl: the call log of an episode is missing"),
        "{said}"
    );
}

/// Lets a process write no file beyond so many bytes, as on a full disk.
fn fill_disk(server: &Server, bytes: &str) {
    let mut command = Command::new("prlimit");
    command.args([
        "--pid",
        &server.pid().to_string(),
        &format!("--fsize={bytes}:unlimited"),
    ]);
    assert!(command.status().unwrap().success());
}

#[test]
fn a_log_is_whole_again_after_a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let shards = folder.path().join("shards");
    // What would otherwise end a process that writes too much.
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    let served = serve(folder.path(), &ADMIN);
    command.arg(served.get_program()).args(served.get_args());
    command.current_dir(folder.path()).env_remove("LEGO_ADMIN_TOKEN");
    let server = Server::start(&mut command);
    let log = |name: &str| std::fs::read_to_string(shards.join(format!("calls/{name}.jsonl"))).unwrap();
    let other = |session: &str, text: &str| {
        let mut body = question(20);
        body["messages"][0]["content"] = text.into();
        let path = format!("/sess/{session}/v1/chat/completions");
        Http::to(&server.url).post(&path, &body).status
    };
    // The beginning of a call still fits, its end does not.
    assert_eq!(ask(&server, "mine"), 200);
    let first = log("mine");
    let begin = first.lines().nth(1).unwrap().len();
    fill_disk(&server, &(first.len() + begin + 60).to_string());
    assert_eq!(other("mine", "Mend the prograM."), 500);
    let (status, refused) = finish(&server, "mine");
    assert!(status == 500 && refused.contains("finish it again"), "{refused}");
    assert!(!log("mine").ends_with('\n'));
    fill_disk(&server, "unlimited");
    assert_eq!(finish(&server, "mine").0, 200);
    // Not even the beginning fits: the call is not made.
    assert_eq!(ask(&server, "yours"), 200);
    let first = log("yours");
    fill_disk(&server, &first.len().to_string());
    assert_eq!(other("yours", "Mend it."), 500);
    assert_eq!(log("yours"), first);
    fill_disk(&server, "unlimited");
    assert_eq!(other("yours", "Mend it."), 200);
    assert_eq!(finish(&server, "yours").0, 200);
    server.kill();
    for name in ["mine", "yours"] {
        let ends = log(name).matches("\"kind\":\"end\"").count();
        assert_eq!(ends, 2, "{name}");
    }
    let (code, _, said) = diagnose(&shards);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("2 episodes") && !said.contains("cut off"), "{said}");
}

#[test]
fn rows_that_were_made_of_every_conversation_are_checked_as_such() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = serve(folder.path(), &ADMIN);
    command.args(["--set", "capture.train=all", "--set", "capture.builder=per_call"]);
    let server = Server::start(&mut command);
    let path = "/sess/mine/v1/chat/completions";
    let mut titled = question(20);
    titled["messages"][0]["content"] = "A title, please.".into();
    let function = json!({"name": "bash", "parameters": {"type": "object"}});
    titled["tools"] = json!([{"type": "function", "function": function}]);
    for body in [question(20), titled] {
        assert_eq!(Http::to(&server.url).post(path, &body).status, 200);
    }
    assert_eq!(finish(&server, "mine").0, 200);
    server.kill();
    let (code, accounts, said) = diagnose(&folder.path().join("shards"));
    assert_eq!((code, accounts.lines().count()), (Some(0), 1), "{accounts}{said}");
}

#[test]
fn a_session_without_an_answer_trains_nothing() {
    let api = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", api.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in api.incoming() {
            refuse(&mut stream.unwrap());
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command.args(["serve-proxy", "--upstream", &url, "--capture"]);
    command.arg(folder.path()).args(ADMIN).current_dir(folder.path());
    let server = Server::start(&mut command);
    assert_eq!(ask(&server, "failing"), 400);
    assert_eq!(finish(&server, "failing").0, 200);
    server.kill();
    let [episode] = episodes(folder.path()).try_into().unwrap();
    assert_eq!(episode.drop_reason.as_deref(), Some("no_answer"));
    let (code, _, said) = diagnose(folder.path());
    assert_eq!(code, Some(0), "{said}");
}

/// A hosted API that has one model, and refuses every call of it.
fn refuse(stream: &mut TcpStream) {
    use std::io::Write as _;
    let mut head = [0; 3];
    stream.read_exact(&mut head).unwrap();
    let (status, body) = if head == *b"GET" {
        ("200 OK", r#"{"data": [{"id": "big-1"}]}"#)
    } else {
        ("400 Bad Request", r#"{"error": {"message": "no"}}"#)
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    // What it still says is read, so that its end does not take the answer with it.
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
}

#[test]
fn an_empty_admin_token_is_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(serve(folder.path(), &["--admin-token", ""]).env("LEGO_ADMIN_TOKEN", ""));
    let (code, said) = server.ends();
    assert_eq!(code, Some(0), "{said}");
    let token = said.split("admin token: ").nth(1).unwrap().lines().next().unwrap();
    assert!(token.len() >= 16, "{said}");
}

/// An engine that takes connections and never answers.
struct Silent(TcpListener);

impl Silent {
    fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    fn command(&self, subcommand: &str, folder: &Path) -> Command {
        let url = format!("http://{}", self.0.local_addr().unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command.arg(subcommand).arg(quickstart()).current_dir(folder);
        command.args([
            "--set",
            "engine.kind=vllm",
            "--set",
            &format!("engine.endpoints=[{url:?}]"),
        ]);
        command.args(["--set", &format!("run.dir={}", folder.join("runs").display())]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn asked(&self) -> TcpStream {
        let stream = self.0.accept().unwrap().0;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

#[test]
fn the_first_signal_ends_the_wait_for_an_engine_that_hangs() {
    for (subcommand, arguments) in [
        ("serve-proxy", vec![]),
        ("train", vec![]),
        ("rollout", vec!["-o", "out"]),
    ] {
        let (engine, folder) = (Silent::new(), tempfile::tempdir().unwrap());
        let child = engine
            .command(subcommand, folder.path())
            .args(arguments)
            .spawn()
            .unwrap();
        let mut asked = engine.asked();
        terminate(child.id());
        // Its end closes the connection, long before the connection's own patience does.
        asked.read_to_end(&mut Vec::new()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{subcommand}: {said}");
        assert!(
            said.contains("stopping: waits for ") && said.contains("a second signal stops at once"),
            "{subcommand}: {said}"
        );
    }
}

#[test]
fn the_one_in_the_background_ends_with_the_one_that_waits_for_it() {
    let (engine, folder) = (Silent::new(), tempfile::tempdir().unwrap());
    let mut child = engine
        .command("serve-proxy", folder.path())
        .arg("--print-env")
        .spawn()
        .unwrap();
    let mut asked = engine.asked();
    child.kill().unwrap();
    child.wait().unwrap();
    asked.read_to_end(&mut Vec::new()).unwrap();
}
