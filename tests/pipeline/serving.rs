//! `lego serve-proxy` as a program: what it prints, who may do what, and what survives its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lego::shard::ShardReader;
use lego::trajectory::Episode;
use serde_json::{Value, json};

use super::quickstart;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(1);

/// A server in a process of its own.
pub(super) struct Server {
    child: Child,
    pub(super) url: String,
    stderr: Option<std::thread::JoinHandle<String>>,
}

/// It does not outlive its test.
impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Waits for the first line on stdout, which is the address.
    pub(super) fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        let mut url = String::new();
        BufReader::new(child.stdout.as_mut().unwrap())
            .read_line(&mut url)
            .unwrap();
        let url = url.trim_end().to_owned();
        if !url.starts_with("http://") {
            let _ = child.kill();
            panic!("no address, but {url:?}: {}", stderr.join().unwrap());
        }
        let stderr = Some(stderr);
        Self { child, url, stderr }
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives it no time for anything.
    pub(super) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to end: its exit code, and what it said.
    pub(super) fn ends(mut self) -> (Option<i32>, String) {
        terminate(self.child.id());
        let code = self.child.wait().unwrap().code();
        (code, self.stderr.take().unwrap().join().unwrap())
    }
}

pub(super) fn terminate(pid: u32) {
    let sent = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// A server that nobody waits for; it ends with the test, also with one that fails.
struct Background(u32);

impl Drop for Background {
    fn drop(&mut self) {
        let mut kill = Command::new("kill");
        let _ = kill.arg(self.0.to_string()).stderr(Stdio::null()).status();
    }
}

/// What the server answers.
pub(super) struct Answer {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = lines.filter(|(other, _)| other.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim().to_owned())
    }
}

/// A client with at most one key.
pub(super) struct Http<'a> {
    host: &'a str,
    key: Option<&'a str>,
}

impl<'a> Http<'a> {
    pub(super) fn to(url: &'a str) -> Self {
        let host = url.strip_prefix("http://").unwrap().split('/').next().unwrap();
        Self { host, key: None }
    }

    pub(super) fn key(self, key: &'a str) -> Self {
        Self { key: Some(key), ..self }
    }

    pub(super) fn post(&self, path: &str, body: &Value) -> Answer {
        self.begin("POST", path, &body.to_string()).end()
    }

    fn get(&self, path: &str) -> Answer {
        self.begin("GET", path, "").end()
    }

    fn begin(&self, method: &str, path: &str, body: &str) -> Open {
        let mut stream = TcpStream::connect(self.host).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let key = self
            .key
            .map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"));
        let host = self.host;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nhost: {host}\r\n{key}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        Open(stream)
    }
}

/// A request whose answer is to be read.
struct Open(TcpStream);

impl Open {
    /// Waits for the first bytes.
    fn begun(&self) {
        assert!(self.0.peek(&mut [0]).unwrap() > 0);
    }

    fn end(mut self) -> Answer {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }
}

pub(super) fn episodes(folder: &Path) -> Vec<Episode> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime
        .block_on(ShardReader::open(&[folder]).unwrap().episodes(None))
        .unwrap()
}

/// `lego serve-proxy` on the quickstart's policy.
pub(super) fn serve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command.arg("serve-proxy").arg(quickstart()).args(arguments);
    command.arg("--capture").arg(folder.join("shards"));
    command.current_dir(folder).env_remove("LEGO_ADMIN_TOKEN");
    command
}

pub(super) fn question(most: u32) -> Value {
    json!({"max_tokens": most, "messages": [{"role": "user", "content": "Mend the program."}]})
}

#[test]
fn a_finished_session_survives_a_kill_and_only_the_admin_finishes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&mut serve(folder.path(), &["--anonymous", "--admin-token", "sesame"]));
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    let client = || Http::to(&server.url);
    for session in ["first", "second"] {
        let answer = client().post(&format!("/sess/{session}/v1/chat/completions"), &question(20));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    // The admin's routes are nobody else's.
    for key in [None, Some("wrong")] {
        let client = || key.map_or_else(client, |key| client().key(key));
        for path in ["/sess", "/sess/first/trajectory"] {
            assert_eq!(client().get(path).status, 401, "{path} {key:?}");
        }
        assert_eq!(
            client().post("/sess/first/finish", &json!({"reward": 1.0})).status,
            401,
            "{key:?}"
        );
        assert_eq!(client().post("/sess", &json!({})).status, 401, "{key:?}");
    }
    let admin = || client().key("sesame");
    let listed = admin().get("/sess").body;
    assert!(
        listed.contains("\"first\"") && listed.contains("\"second\""),
        "{listed}"
    );
    let finished = admin().post("/sess/first/finish", &json!({"reward": 0.5}));
    assert_eq!(finished.status, 200, "{}", finished.body);
    server.kill();
    let episodes = episodes(&folder.path().join("shards"));
    assert_eq!(episodes.len(), 1, "the second was not finished");
    assert_eq!((episodes[0].task_id.as_str(), episodes[0].reward), ("first", Some(0.5)));
    let trained: usize = episodes[0]
        .segments
        .iter()
        .map(lego::trajectory::Segment::trained_tokens)
        .sum();
    let sampled: Value = serde_json::from_str(&finished.body).unwrap();
    assert_eq!(sampled["sampled_tokens"], trained);
    // What was not finished is in its log.
    let log = std::fs::read_to_string(folder.path().join("shards/calls/second.jsonl")).unwrap();
    assert!(log.contains("\"kind\":\"end\""), "{log}");
}

#[test]
fn a_stop_lets_answers_end_and_takes_no_new_ones() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(&mut serve(
        folder.path(),
        &[
            "--anonymous",
            "--set",
            "proxy.listen=0.0.0.0:0",
            "--set",
            "rollout.temperature=2.0",
        ],
    ));
    let port = server.url.rsplit(':').next().unwrap().to_owned();
    let url = format!("http://127.0.0.1:{port}");
    let mut body = question(400);
    body["stream"] = true.into();
    let open = Http::to(&url).begin("POST", "/sess/mine/v1/chat/completions", &body.to_string());
    open.begun();
    let (code, said) = server.ends();
    let answer = open.end();
    assert_eq!(answer.status, 200);
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
    assert!(answer.body.contains("\"finish_reason\":\"stop\"") || answer.body.contains("\"finish_reason\":\"length\""));
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("1 sessions were never finished"), "{said}");
    // It was bound to every address, for clients without a key.
    assert!(said.contains("warning: whoever reaches http://0.0.0.0:"), "{said}");
    assert!(TcpStream::connect(url.strip_prefix("http://").unwrap()).is_err());
}

#[test]
fn variables_point_a_client_at_a_server_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    // Who waits for the end of what it says to stderr waits for the server.
    let mut command = serve(folder.path(), &["--print-env"]);
    let output = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    let variable = |name: &str| {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("export {name}=\'")));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .trim_end_matches('\'')
            .to_owned()
    };
    let background = Background(variable("LEGO_PROXY_PID").parse().unwrap());
    let (url, key) = (variable("OPENAI_BASE_URL"), variable("OPENAI_API_KEY"));
    assert_eq!(variable("ANTHROPIC_BASE_URL") + "/v1", url);
    let path = url.strip_prefix(&variable("LEGO_PROXY_URL")).unwrap().to_owned();
    let answer = Http::to(&url)
        .key(&key)
        .post(&format!("{path}/chat/completions"), &question(10));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(
        Http::to(&url)
            .post(&format!("{path}/chat/completions"), &question(10))
            .status,
        401
    );
    let token = variable("LEGO_ADMIN_TOKEN");
    let finish = format!("/sess/{}/finish", variable("LEGO_SESSION"));
    assert_eq!(
        Http::to(&url).key(&token).post(&finish, &json!({"reward": 1.0})).status,
        200
    );
    assert_eq!(episodes(&folder.path().join("shards")).len(), 1);
    let pid = background.0;
    terminate(pid);
    let began = Instant::now();
    while Path::new(&format!("/proc/{pid}/stat")).exists()
        && !std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    {
        assert!(began.elapsed() < PATIENCE, "it did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
}
