//! Bytes as the body of a request: every route answers with one of its own statuses, and soon.
//!
//! The first byte picks the route and the second the encoding.
#![no_main]

use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use lego::inference::{Recording, ReplayEngine};
use lego::prompt::PromptBuilder;
use lego::proxy::{Proxy, ProxyOptions, SessionOptions};
use libfuzzer_sys::fuzz_target;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

const ROUTES: [&str; 5] = [
    "chat/completions",
    "completions",
    "messages",
    "messages/count_tokens",
    "responses",
];
const ENCODINGS: [&str; 5] = ["identity", "zstd", "gzip", "deflate", "br"];

static SERVED: LazyLock<(Runtime, Proxy)> = LazyLock::new(|| served().expect("the quickstart's policy is there"));

fn served() -> Result<(Runtime, Proxy), Box<dyn std::error::Error>> {
    let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/policy");
    let prompt = Arc::new(PromptBuilder::load(&policy, None)?);
    let mut file = tempfile::NamedTempFile::new()?;
    file.write_all(br#"{"instance_id": "*", "turns": [{"content": "ok"}]}"#)?;
    let recording = Recording::load(file.path())?;
    let writer = Arc::clone(&prompt);
    let render = Arc::new(move |_: &_| writer.written("ok").map_err(|error| error.to_string()));
    let engine = Arc::new(ReplayEngine::new(recording, render));
    let proxy = Proxy::new(ProxyOptions::new(engine, prompt, "policy", "http://127.0.0.1"));
    Ok((Builder::new_current_thread().enable_all().build()?, proxy))
}

fuzz_target!(|data: &[u8]| {
    let [route, encoding, body @ ..] = data else { return };
    let (runtime, proxy) = &*SERVED;
    let route = ROUTES[usize::from(*route) % ROUTES.len()];
    let encoding = ENCODINGS[usize::from(*encoding) % ENCODINGS.len()];
    runtime.block_on(async {
        let ticket = proxy
            .open_session(SessionOptions::default())
            .expect("no log is written");
        let request = Request::post(format!("/sess/{}/v1/{route}", ticket.key.0))
            .header("authorization", format!("Bearer {}", ticket.token))
            .header("content-encoding", encoding)
            .body(Body::from(body.to_vec()))
            .expect("a request");
        let answered = async {
            let response = proxy.router().oneshot(request).await.expect("a router never fails");
            let status = response.status().as_u16();
            let text = to_bytes(response.into_body(), usize::MAX)
                .await
                .expect("a whole answer");
            assert!(!text.is_empty(), "{route}: {status} with an empty body");
            // 500 and 503: the recording has no second turn.
            assert!([200, 400, 413, 415, 500, 503].contains(&status), "{route}: {status}");
        };
        tokio::time::timeout(Duration::from_secs(10), answered)
            .await
            .expect("an answer within 10 s");
        proxy.close_session(&ticket.key).await.expect("it was open");
    });
});
