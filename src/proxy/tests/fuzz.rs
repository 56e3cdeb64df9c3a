//! Bodies that no client should send: every route answers each with a refusal or an answer, soon, and in bounded memory.
//!
//! What real agents sent is broken in many ways. `LEGO_TEST_FUZZ` is the number of bodies (`tests/run --full`: 100,000).

use std::fmt::Write as _;

use rand::{Rng as _, SeedableRng as _};

use super::*;

const ROUTES: [&str; 5] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/responses",
];

/// Requests of each dialect, to be broken.
fn seeds() -> Vec<Value> {
    vec![
        request(&opening()),
        json!({"prompt": [1, 2, 3], "stop": ["x"], "logprobs": 1}),
        json!({"max_tokens": 5, "system": [{"type": "text", "text": "s"}], "messages": [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "tool_use", "id": "i", "name": "bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "i", "content": [{"type": "text", "text": "r"}]}]},
        ], "tools": [{"name": "bash", "input_schema": {}}]}),
        json!({"instructions": "i", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "function_call", "call_id": "c", "name": "bash", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "r"},
        ], "tools": [{"type": "function", "name": "bash"}], "previous_response_id": null}),
    ]
}

/// The requests of all captures.
fn captured() -> Vec<Value> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/proxy/tests/captures");
    let mut paths: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    let mut bodies = Vec::new();
    for path in paths {
        let captured: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        for call in captured["calls"].as_array().into_iter().flatten() {
            // A probe has no body.
            if !call["body"].is_object() {
                continue;
            }
            let mut body = call["body"].clone();
            if let Some(tools) = call["tools"].as_u64() {
                body["tools"] = captured["tools"][tools as usize].clone();
            }
            bodies.push(body);
        }
    }
    bodies
}

fn memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn odd(rng: &mut impl rand::Rng) -> Value {
    let all = [
        json!(null),
        json!(true),
        json!(-1),
        json!(1e300),
        json!(u64::MAX),
        json!(""),
        json!("\u{0}🦀"),
        json!([]),
        json!([[[]]]),
        json!({}),
        json!({"type": "image"}),
        json!({"type": "text", "text": 3}),
    ];
    all[rng.random_range(0..all.len())].clone()
}

/// Replaces, removes or adds somewhere below.
fn mutate(value: &mut Value, rng: &mut impl rand::Rng) {
    let replace = rng.random_bool(0.2);
    match value {
        Value::Object(fields) if !replace && !fields.is_empty() => {
            let at = rng.random_range(0..fields.len());
            let key = fields.keys().nth(at).unwrap().clone();
            if rng.random_bool(0.15) {
                fields.remove(&key);
            } else {
                mutate(&mut fields[&key], rng);
            }
        }
        Value::Array(list) if !replace && !list.is_empty() => {
            let at = rng.random_range(0..list.len());
            match rng.random_range(0..8) {
                0 => {
                    list.remove(at);
                }
                1 => list.push(odd(rng)),
                _ => mutate(&mut list[at], rng),
            }
        }
        other => *other = odd(rng),
    }
}

fn broken(seeds: &[Value], rng: &mut impl rand::Rng) -> Vec<u8> {
    let mut value = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..4) {
        mutate(&mut value, rng);
    }
    let mut bytes = serde_json::to_vec(&value).unwrap();
    match rng.random_range(0..6) {
        0 => bytes.truncate(rng.random_range(0..=bytes.len())),
        1 if !bytes.is_empty() => {
            let at = rng.random_range(0..bytes.len());
            bytes[at] = rng.random();
        }
        2 => bytes = (0..rng.random_range(0..64)).map(|_| rng.random()).collect(),
        _ => {}
    }
    bytes
}

#[tokio::test]
async fn every_body_is_answered() {
    const BODIES_OF_A_SESSION: usize = 500;
    let count = std::env::var("LEGO_TEST_FUZZ").map_or(2000, |count| count.parse().unwrap());
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(7);
    let (seeds, captured) = (seeds(), captured());
    assert!(captured.len() > 100, "{}", captured.len());
    let harness = Harness::with(vec!["ok".into(); count], |_| {}).await;
    let mut ticket = harness.open();
    let mut statuses = std::collections::BTreeMap::<u16, u32>::new();
    let mut memory = 0;
    for number in 0..count {
        if number % BODIES_OF_A_SESSION == BODIES_OF_A_SESSION - 1 {
            harness.proxy.close_session(&ticket.key).await.unwrap();
            harness.engine.requests.lock().unwrap().clear();
            ticket = harness.open();
            // What the first sessions needed is needed again and again, and no more.
            if number < 4 * BODIES_OF_A_SESSION {
                memory = memory_kib();
            }
        }
        let route = ROUTES[number % ROUTES.len()];
        let body = broken(if rng.random_bool(0.5) { &seeds } else { &captured }, &mut rng);
        let mut request = harness
            .client
            .post(format!("{}{route}", ticket.url))
            .bearer_auth(&ticket.token)
            .timeout(Duration::from_secs(10));
        let packed = number / ROUTES.len() % 40;
        if packed.is_multiple_of(10) {
            request = request.header("content-encoding", ["zstd", "gzip", "deflate", "br"][packed / 10]);
        }
        let response = request.body(body.clone()).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        let shown = || String::from_utf8_lossy(&body).chars().take(2000).collect::<String>();
        assert!(
            [200, 400, 413, 415].contains(&status),
            "{route}: {status} {text} for {}",
            shown()
        );
        assert!(!text.is_empty(), "{route}: {status} for {}", shown());
        *statuses.entry(status).or_default() += 1;
    }
    let mut told = String::new();
    for (status, count) in &statuses {
        let _ = write!(told, "{status}: {count}  ");
    }
    assert!(statuses[&200] > 20 && statuses[&400] > 500, "{told}");
    harness.proxy.close_session(&ticket.key).await.unwrap();
    let grown = memory_kib().saturating_sub(memory);
    assert!(grown < 256 << 10, "{grown} KiB more than after the first sessions");
}
