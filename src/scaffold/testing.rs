//! What scaffold tests share: a model endpoint that plays a script, and a job in a plain folder.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router, routing::post};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::AgentJob;
use crate::sandbox::{ExecOutput, ExecRequest, Isolation, Sandbox, SandboxError};
use crate::task::{NetworkPolicy, Task};

/// What the endpoint does with one call.
pub(super) enum Reply {
    /// Answers with this assistant message.
    Message(Value),
    /// Answers with this message, cut by the budget.
    Cut(Value),
    /// Answers with a status and an error code.
    Refuse(u16, &'static str),
    /// Never answers.
    Silence,
}

#[derive(Default)]
struct Script {
    replies: Mutex<VecDeque<Reply>>,
    requests: Mutex<Vec<Value>>,
}

/// A Chat Completions endpoint that plays a script and keeps what it was sent.
pub(super) struct ScriptedModel {
    pub(super) url: String,
    script: Arc<Script>,
    server: tokio::task::JoinHandle<()>,
}

impl ScriptedModel {
    pub(super) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let script = Arc::new(Script {
            replies: Mutex::new(replies.into_iter().collect()),
            ..Script::default()
        });
        let app = Router::new()
            .route("/sess/s/v1/chat/completions", post(play))
            .with_state(Arc::clone(&script));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sess/s", listener.local_addr().unwrap());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { url, script, server }
    }

    pub(super) fn requests(&self) -> Vec<Value> {
        self.script.requests.lock().unwrap().clone()
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn play(State(script): State<Arc<Script>>, headers: HeaderMap, Json(request): Json<Value>) -> Response {
    assert_eq!(headers["authorization"], "Bearer secret");
    script.requests.lock().unwrap().push(request);
    let reply = script.replies.lock().unwrap().pop_front();
    let answer = |message: Value, reason: &str| {
        Json(json!({"choices": [{"index": 0, "message": message, "finish_reason": reason}]})).into_response()
    };
    match reply {
        Some(Reply::Message(message)) => answer(message, "stop"),
        Some(Reply::Cut(message)) => answer(message, "length"),
        Some(Reply::Refuse(status, code)) => {
            let error = json!({"error": {"message": "refused", "type": "test", "code": code}});
            (StatusCode::from_u16(status).unwrap(), Json(error)).into_response()
        }
        Some(Reply::Silence) => std::future::pending().await,
        None => (StatusCode::GONE, "the script is over").into_response(),
    }
}

/// An assistant message with `bash` calls.
pub(super) fn bash_calls(commands: &[&str]) -> Value {
    let calls: Vec<Value> = commands
        .iter()
        .enumerate()
        .map(|(i, command)| raw_call(&format!("c{i}"), "bash", &json!({"command": command}).to_string()))
        .collect();
    json!({"role": "assistant", "content": "", "tool_calls": calls})
}

/// One tool call, whatever it says.
pub(super) fn raw_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A job whose sandbox is a folder below `root`.
pub(super) fn job(root: &Path, session_url: &str) -> AgentJob {
    let workdir = root.join("work");
    let logs = root.join("logs");
    let task = root.join("task");
    for folder in [&workdir, &logs, &task] {
        fs_err::create_dir_all(folder).unwrap();
    }
    fs_err::create_dir_all(task.join("tests")).unwrap();
    fs_err::write(task.join("tests/test.sh"), "#!/bin/sh\n").unwrap();
    fs_err::write(task.join("instruction.md"), "  mend it\n").unwrap();
    AgentJob {
        task: Arc::new(Task::load(&task).unwrap()),
        instruction: "  mend it\n".to_owned(),
        solution: task.join("solution"),
        user: None,
        sandbox: Arc::new(Folder {
            root: root.to_owned(),
            workdir,
        }),
        session_url: session_url.to_owned(),
        session_token: "secret".to_owned(),
        model: "policy".to_owned(),
        window: 4096,
        max_tokens: 512,
        max_turns: 6,
        max_consecutive_no_tool: 1,
        timeout: Duration::from_secs(20),
        logs,
        no_more_calls: CancellationToken::new(),
        cancel: CancellationToken::new(),
    }
}

/// Runs commands in a plain folder: what a scaffold needs of a sandbox, without its walls.
struct Folder {
    root: PathBuf,
    workdir: PathBuf,
}

#[async_trait]
impl Sandbox for Folder {
    async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError> {
        let began = Instant::now();
        // `/solution` inside is a folder below the root here.
        let root = self.root.display().to_string();
        let argv: Vec<String> = request
            .argv
            .iter()
            .map(|word| word.replace("/solution", &format!("{root}/solution")))
            .collect();
        let child = tokio::process::Command::new(&argv[0])
            .args(&argv[1..])
            .envs(&request.env)
            .current_dir(&self.workdir)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let ended = tokio::time::timeout(request.timeout, child).await;
        let (exit_code, output, timed_out) = match ended {
            Ok(output) => {
                let output = output.unwrap();
                let text = [output.stdout, output.stderr].concat();
                (
                    output.status.code().unwrap(),
                    String::from_utf8_lossy(&text).into_owned(),
                    false,
                )
            }
            Err(_elapsed) => (124, String::new(), true),
        };
        Ok(ExecOutput {
            exit_code,
            output,
            truncated: 0,
            timed_out,
            duration: began.elapsed(),
        })
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let to = self.root.join(to.trim_start_matches('/'));
        fs_err::create_dir_all(&to).unwrap();
        for entry in fs_err::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs_err::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        Ok(())
    }

    async fn download_within(&self, from: &str, _to: &Path, _limit: u64) -> Result<(), SandboxError> {
        Err(SandboxError::NotFound {
            name: "folder".to_owned(),
            path: from.to_owned(),
        })
    }

    async fn end_processes(&self) -> Result<usize, SandboxError> {
        Ok(0)
    }

    async fn reset_dir(&self, path: &str) -> Result<(), SandboxError> {
        let path = self.root.join(path.trim_start_matches('/'));
        let _ = fs_err::remove_dir_all(&path);
        fs_err::create_dir_all(&path).unwrap();
        Ok(())
    }

    #[expect(clippy::unnecessary_literal_bound, reason = "other sandboxes keep theirs")]
    fn workdir(&self) -> &str {
        "/app"
    }

    fn path(&self, inside: &str) -> String {
        self.root.join(inside.trim_start_matches('/')).display().to_string()
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        Ok(Vec::new())
    }

    fn isolation(&self) -> Isolation {
        Isolation::Weak("a plain folder")
    }

    async fn download_entries(&self, _: &str, _: &[String], _: &Path, _: u64) -> Result<(), SandboxError> {
        Ok(())
    }

    async fn system_changes(&self) -> Result<Vec<String>, SandboxError> {
        Ok(Vec::new())
    }

    async fn set_network(&self, _policy: &NetworkPolicy) -> Result<(), SandboxError> {
        Ok(())
    }

    fn refused_connections(&self) -> Vec<String> {
        Vec::new()
    }

    fn proxy_url(&self) -> Option<String> {
        None
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        Ok(())
    }
}

/// No variables.
pub(super) fn no_env() -> BTreeMap<String, String> {
    BTreeMap::new()
}
