//! A replica is lost in mid-stream, in every dialect and after every token: two servers, the first of which dies.

use super::peer::{self, Fault, Script};
use super::*;
use crate::balance::Replicas;
use crate::inference::{Engine, RemoteOptions, VllmEngine};
use crate::trajectory::PolicyVersion;

#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    Chat,
    Messages,
    Responses,
}

impl Dialect {
    pub(super) const ALL: [Self; 3] = [Self::Chat, Self::Messages, Self::Responses];

    pub(super) fn request(self) -> (&'static str, Value) {
        let message = json!([{"role": "user", "content": "GOPI.sh must split fields at :"}]);
        let schema = json!({"type": "object", "properties": {"command": {"type": "string"}}});
        match self {
            Self::Chat => (
                "/v1/chat/completions",
                json!({"messages": message, "tools": [bash_tool()], "stream": true, "max_tokens": 200,
                    "stream_options": {"include_usage": true}}),
            ),
            Self::Messages => (
                "/v1/messages",
                json!({"messages": message, "stream": true, "max_tokens": 200,
                    "tools": [{"name": "bash", "description": "Run", "input_schema": schema}]}),
            ),
            Self::Responses => (
                "/v1/responses",
                json!({"input": message, "stream": true, "max_output_tokens": 200,
                    "tools": [{"type": "function", "name": "bash", "parameters": schema}]}),
            ),
        }
    }

    /// What a client makes of a stream; its last event must be the final one, and the only such.
    pub(super) fn read(self, text: &str) -> Read {
        let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
        let finals = match self {
            Self::Chat => &["[DONE]"][..],
            Self::Messages => &["\"type\":\"message_stop\""],
            Self::Responses => &["\"type\":\"response.completed\"", "\"type\":\"response.incomplete\""],
        };
        let is_final = |event: &str| finals.iter().any(|name| event.contains(name));
        let ends: Vec<usize> = (0..data.len()).filter(|&at| is_final(data[at])).collect();
        assert_eq!(ends, [data.len() - 1], "{self:?}: {text}");
        let mut read = Read::default();
        for event in data.iter().filter(|data| **data != "[DONE]") {
            let event: Value = serde_json::from_str(event).unwrap();
            let (shown, arguments, sampled) = match self {
                Self::Chat => {
                    let delta = &event["choices"][0]["delta"];
                    let arguments = &delta["tool_calls"][0]["function"]["arguments"];
                    (&delta["content"], arguments, &event["usage"]["completion_tokens"])
                }
                Self::Messages => {
                    let delta = &event["delta"];
                    (&delta["text"], &delta["partial_json"], &event["usage"]["output_tokens"])
                }
                Self::Responses => {
                    let delta = |kind| {
                        if event["type"] == kind {
                            &event["delta"]
                        } else {
                            &Value::Null
                        }
                    };
                    (
                        delta("response.output_text.delta"),
                        delta("response.function_call_arguments.delta"),
                        &event["response"]["usage"]["output_tokens"],
                    )
                }
            };
            read.text += shown.as_str().unwrap_or_default();
            read.arguments += arguments.as_str().unwrap_or_default();
            let usages = [&event["usage"], &event["message"]["usage"], &event["response"]["usage"]];
            let prompts = usages
                .iter()
                .flat_map(|usage| [&usage["prompt_tokens"], &usage["input_tokens"]]);
            read.prompt = prompts.filter_map(Value::as_u64).max().unwrap_or(0).max(read.prompt);
            read.sampled = sampled.as_u64().unwrap_or(read.sampled);
        }
        read
    }
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Read {
    pub(super) text: String,
    pub(super) arguments: String,
    pub(super) prompt: u64,
    pub(super) sampled: u64,
}

/// What the client reads of one streamed answer.
pub(super) async fn read(
    harness: &Harness,
    ticket: &SessionTicket,
    dialect: Dialect,
    path: &str,
    body: &Value,
) -> Read {
    let request = harness
        .client
        .post(format!("{}{path}", ticket.url))
        .bearer_auth(&ticket.token);
    let sent = request.json(body).timeout(Duration::from_secs(20)).send();
    let response = sent.await.unwrap();
    assert_eq!(response.status(), 200, "{dialect:?}");
    dialect.read(&response.text().await.unwrap())
}

pub(super) fn version(update: usize) -> PolicyVersion {
    PolicyVersion {
        lineage: 0,
        update: update as u64,
    }
}

/// Two servers, whose weights go by their numbers.
async fn servers(script: &Arc<Script>, fault: Fault) -> Arc<dyn Engine> {
    let mut engines = Vec::new();
    for number in 0..2 {
        let endpoint = peer::start(script, number, if number == 0 { fault } else { Fault::None }).await;
        let options = RemoteOptions {
            endpoint: endpoint.clone(),
            api_key: None,
            ca_file: None,
            experts: None,
            model: None,
            version: version(number),
            patience: Duration::from_secs(20),
        };
        let engine = VllmEngine::connect(options).await.unwrap();
        engines.push((endpoint, Arc::new(engine) as Arc<dyn Engine>));
    }
    Arc::new(Replicas::new(engines))
}

/// What the client reads and what the session records, with the first server lost after so many tokens.
async fn trial(dialect: Dialect, answer: &str, lost_at: Option<usize>) -> (Read, SessionCapture, Arc<Script>) {
    let prompt = quickstart();
    let stop = prompt.tokenizer().stop_ids();
    let script = Script::new([prompt.tokenizer().encode(answer).unwrap(), stop].concat());
    let engine = servers(&script, lost_at.map_or(Fault::None, Fault::LostAt)).await;
    let harness = Harness::over(prompt, Vec::new(), |options| served_by(options, engine)).await;
    let ticket = harness.open();
    let (path, body) = dialect.request();
    let read = read(&harness, &ticket, dialect, path, &body).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    (read, capture, script)
}

#[tokio::test]
async fn the_client_reads_one_answer_and_each_token_is_recorded_once() {
    let answer = "Löök 🦀.\n".to_owned() + &tool_call("cat a");
    let ids = [
        quickstart().tokenizer().encode(&answer).unwrap(),
        quickstart().tokenizer().stop_ids(),
    ]
    .concat();
    for dialect in Dialect::ALL {
        let (whole, _, _) = trial(dialect, &answer, None).await;
        assert_eq!(
            (whole.text.as_str(), whole.sampled),
            ("Löök 🦀.", ids.len() as u64),
            "{dialect:?}"
        );
        assert_eq!(
            serde_json::from_str::<Value>(&whole.arguments).unwrap(),
            json!({"command": "cat a"})
        );
        for lost_at in 0..=ids.len() {
            let case = format!("{dialect:?}, lost after {lost_at} of {}", ids.len());
            let (read, capture, script) = trial(dialect, &answer, Some(lost_at)).await;
            assert_eq!(read, whole, "{case}");
            assert_eq!(capture.segments.len(), 1, "{case}");
            let segment = &capture.segments[0];
            assert_eq!(trained(segment), ids, "{case}");
            let logprobs = segment.response_logprobs.as_ref().unwrap();
            for (at, logprob) in logprobs.iter().take(ids.len()).enumerate() {
                let server = usize::from(at >= lost_at);
                assert_eq!(
                    logprob.to_bits(),
                    peer::logprob(server, at).to_bits(),
                    "{case}, token {at}"
                );
                let version_there = segment
                    .weight_versions
                    .iter()
                    .find(|span| (span.start..span.end).contains(&(at as u32)))
                    .map(|span| span.version);
                assert_eq!(version_there, Some(version(server)), "{case}, token {at}");
            }
            assert_eq!(capture.audit.sampled_tokens, ids.len() as u64, "{case}");
            assert_eq!(capture.n_engine_errors, 0, "{case}");
            let asked = script.asked.lock().unwrap().clone();
            let mut expected = vec![(0, 200, 0)];
            // Behind its last token an answer needs no engine any more.
            if lost_at < ids.len() {
                expected.push((1, 200 - lost_at as u64, lost_at));
            }
            assert_eq!(asked, expected, "{case}");
            // A continuation is drawn by other random numbers than what it continues.
            let seeds = script.seeds.lock().unwrap().clone();
            if let [first, second] = seeds[..] {
                assert_eq!(first == second, lost_at == 0, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn with_no_replica_left_the_stream_still_ends() {
    let prompt = quickstart();
    let script = Script::new(
        [
            prompt.tokenizer().encode("one two three four").unwrap(),
            prompt.tokenizer().stop_ids(),
        ]
        .concat(),
    );
    let endpoint = peer::start(&script, 0, Fault::LostAt(3)).await;
    let options = RemoteOptions {
        endpoint: endpoint.clone(),
        api_key: None,
        ca_file: None,
        experts: None,
        model: None,
        version: version(0),
        patience: Duration::from_secs(20),
    };
    let engine = Arc::new(VllmEngine::connect(options).await.unwrap());
    let engine = Arc::new(Replicas::with_patience(
        vec![(endpoint, engine)],
        Duration::from_millis(50),
    ));
    let harness = Harness::over(prompt, Vec::new(), |options| served_by(options, engine)).await;
    let ticket = harness.open();
    let (_, body) = Dialect::Chat.request();
    let (events, _) = harness.stream(&ticket, &body).await;
    assert_eq!(events.last().unwrap()["error"]["type"], "server_error");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        (capture.segments.len(), capture.ledger.aborted, capture.n_engine_errors),
        (0, 3, 1)
    );
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_is_neither_continued_nor_trained() {
    let prompt = quickstart();
    let ids = prompt.tokenizer().encode("one two three four").unwrap();
    let script = Script::new([ids, prompt.tokenizer().stop_ids()].concat());
    let engine = servers(&script, Fault::Miscounts).await;
    let harness = Harness::over(prompt, Vec::new(), |options| served_by(options, engine)).await;
    let ticket = harness.open();
    let (_, body) = Dialect::Chat.request();
    let (events, _) = harness.stream(&ticket, &body).await;
    let error = &events.last().unwrap()["error"];
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|said| said.contains("usage says")),
        "{error}"
    );
    assert_eq!(script.asked.lock().unwrap().len(), 1);
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!((capture.segments.len(), capture.n_engine_errors), (0, 1));
}
