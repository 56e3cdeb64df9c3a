//! A hosted API behind the whole program: an evaluation is scored, its rows have no token ids, and nothing trains on them.

use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

use super::serving::{Http, Server};
use super::trials::Rollout;

/// An API that calls `bash` with a command, and is done once it has seen the result.
struct Hosted {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
    _runtime: tokio::runtime::Runtime,
}

type Asked = (Arc<Mutex<Vec<Value>>>, String);

async fn answer(State((asked, command)): State<Asked>, request: axum::extract::Request) -> Response {
    if request.uri().path() == "/v1/models" {
        return json!({"data": [{"id": "big-1"}]}).to_string().into_response();
    }
    let body = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let called = body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .any(|message| message["role"] == "tool");
    asked.lock().unwrap().push(body);
    let arguments = json!({ "command": command }).to_string();
    let (delta, finish) = if called {
        (json!({"content": "done"}), "stop")
    } else {
        let function = json!({"name": "bash", "arguments": arguments});
        (
            json!({"tool_calls": [{"index": 0, "id": "call_1", "function": function}]}),
            "tool_calls",
        )
    };
    let chunk = json!({"choices": [{"delta": delta, "finish_reason": finish}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5}});
    format!("data: {chunk}\n\ndata: [DONE]\n\n").into_response()
}

impl Hosted {
    fn start(command: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let asked = Arc::new(Mutex::default());
        let router = Router::new()
            .fallback(answer)
            .with_state((Arc::clone(&asked), command.to_owned()));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self {
            url,
            asked,
            _runtime: runtime,
        }
    }
}

#[test]
fn an_evaluation_is_scored_and_never_trains() {
    let api = Hosted::start("echo 'echo 1' > report");
    let rollout = Rollout::new("plain", "echo 0\n", "unused");
    let endpoints = format!("engine.endpoints=[\"{}/v1\"]", api.url);
    let set = [
        "engine.kind=openai",
        endpoints.as_str(),
        "policy.model=nowhere",
        "eval.samples=2",
    ];
    let output = rollout
        .command(&set)
        .args(["--eval", "--format", "jsonl"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let scores = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(scores.contains("\"pass_at_1\":1.0"), "{scores}");
    let asked = api.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 4);
    assert!(
        asked
            .iter()
            .all(|body| body["model"] == "big-1" && body["tools"][0]["type"] == "function")
    );

    let places = [rollout.out().join("rollouts")];
    let reader = lego::shard::ShardReader::open(&places).unwrap();
    let path = reader.files()[0].to_string();
    let (meta, rows) = reader.read_local(std::path::Path::new(&path)).unwrap();
    assert_eq!(
        (meta.tokenizer_sha256.as_str(), meta.vocab_size, rows.len()),
        ("", 0, 2)
    );
    for row in &rows {
        assert_eq!(
            (&row.prompt_ids, &row.response_ids, &row.response_logprobs),
            (&None, &None, &None)
        );
        assert_eq!((row.dropped, row.drop_reason.as_deref()), (true, Some("no_token_ids")));
        assert_eq!(
            (row.reward, row.num_turns, row.num_tool_calls, row.model.as_str()),
            (Some(1.0), 2, 1, "big-1")
        );
        assert!(row.messages.contains("echo 1"), "{}", row.messages);
    }

    let diagnose = Command::new(env!("CARGO_BIN_EXE_lego"))
        .args(["diagnose", "shards", "--format", "jsonl"])
        .arg(rollout.out())
        .output()
        .unwrap();
    let (accounts, said) = (
        String::from_utf8_lossy(&diagnose.stdout),
        String::from_utf8_lossy(&diagnose.stderr),
    );
    assert_eq!(diagnose.status.code(), Some(0), "{said}");
    assert!(
        accounts.contains("{\"account\":\"dropped: no_token_ids\",\"tokens\":20}"),
        "{accounts}"
    );

    // Neither as shards nor as an engine.
    let runs = format!("run.dir={}", rollout.out().with_file_name("runs").display());
    let mut train = Command::new(env!("CARGO_BIN_EXE_lego"));
    train
        .arg("train")
        .arg(rollout.config())
        .arg("--shards")
        .arg(rollout.out());
    let output = train
        .args(["--set", &runs, "--set", "train.algorithm=sft"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("gives no token ids"), "{said}");
    let mut train = Command::new(env!("CARGO_BIN_EXE_lego"));
    train
        .arg("train")
        .arg(rollout.config())
        .args(["--set", &runs, "--set", "engine.kind=openai"]);
    let output = train.args(["--set", &endpoints]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("gives no token ids"), "{said}");
}

#[test]
fn calls_are_passed_on_without_a_run_config() {
    let api = Hosted::start("true");
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("shards");
    let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
    command.current_dir(folder.path());
    command.args([
        "serve-proxy",
        "--upstream",
        &api.url,
        "--anonymous",
        "--admin-token",
        "t",
        "--capture",
    ]);
    let server = Server::start(command.arg(&capture));
    let tool = json!({"type": "function", "function": {"name": "bash", "parameters": {"type": "object"}}});
    let body = json!({"messages": [{"role": "user", "content": "look"}], "tools": [tool]});
    let answer = Http::to(&server.url).post("/sess/mine/v1/chat/completions", &body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.body.contains("call_1"), "{}", answer.body);
    let finished = Http::to(&server.url)
        .key("t")
        .post("/sess/mine/finish", &json!({"reward": 1.0}));
    assert_eq!(finished.status, 200, "{}", finished.body);
    server.kill();
    let episodes = super::serving::episodes(&capture);
    assert_eq!((episodes.len(), episodes[0].reward), (1, Some(1.0)));
    assert_eq!(episodes[0].drop_reason.as_deref(), Some("no_token_ids"));
}
