//! Failures that were reported against other systems, each with the value that is right.

use super::*;
use crate::prompt::testing::{DROPS_THINKING, with_template};

/// Where each line of the list is held: system and issue, file, test. `LINES` are checked to exist.
const LINES: &[(&str, &str, &str)] = &[
    (
        "verl 6719",
        "proxy/tests/known_failures.rs",
        "tokens_that_no_text_encodes_to_stay_what_was_sampled",
    ),
    (
        "rllm 272",
        "proxy/tests/known_failures.rs",
        "tokens_that_no_text_encodes_to_stay_what_was_sampled",
    ),
    (
        "rllm 352",
        "proxy/tests/known_failures.rs",
        "a_history_that_drifts_late_loses_no_token",
    ),
    (
        "rllm 816",
        "trajectory/forest/tests.rs",
        "log_probs_are_never_padded_and_never_invented",
    ),
    (
        "NeMo RL 1337",
        "proxy/tests/capture.rs",
        "an_answer_cut_by_length_is_continued_behind_one_synthetic_end",
    ),
    (
        "NeMo Gym 1787",
        "proxy/tests/known_failures.rs",
        "many_lines_and_thinking_break_no_prefix",
    ),
    (
        "NeMo Gym 1545",
        "proxy/tests/known_failures.rs",
        "unknown_fields_of_tools_reach_the_template",
    ),
    (
        "sglang 26555",
        "inference/vllm/tests/completions.rs",
        "completions_that_contradict_themselves_are_never_given_out",
    ),
    (
        "miles 1024",
        "proxy/tests/capture.rs",
        "what_the_policy_never_wrote_is_context",
    ),
    (
        "rllm 773/774",
        "trajectory/forest/tests.rs",
        "interleaved_conversations_give_two_segments",
    ),
    (
        "SkyRL 758/799",
        "proxy/tests/capture.rs",
        "an_answer_cut_by_length_is_continued_behind_one_synthetic_end",
    ),
    (
        "rllm 767",
        "trajectory/forest/tests.rs",
        "a_long_session_stores_linear_tokens",
    ),
    (
        "ART 726",
        "proxy/tests/capture.rs",
        "a_template_that_drops_thinking_still_extends_what_was_sampled",
    ),
    (
        "minimind 850",
        "proxy/tests/known_failures.rs",
        "spans_are_of_tokens_where_characters_take_several",
    ),
    (
        "vllm 27482, 29074",
        "proxy/tests/known_failures.rs",
        "a_stream_with_calls_gives_every_token_id",
    ),
    (
        "trl 4708",
        "prompt/tool_parser/tests.rs",
        "every_format_gives_text_and_parallel_calls",
    ),
    (
        "vllm 22885, 17790",
        "prompt/tool_parser/tests.rs",
        "a_malformed_call_stays_text_and_is_reported",
    ),
    (
        "vllm 55082",
        "prompt/tool_parser/chunking_tests.rs",
        "the_result_does_not_depend_on_the_chunking",
    ),
    (
        "AReaL 1458",
        "proxy/tests/capture.rs",
        "histories_that_come_back_changed_are_the_same_conversation",
    ),
    (
        "prime-rl 1011",
        "proxy/tests/known_failures.rs",
        "arguments_in_a_string_reach_the_template_as_an_object",
    ),
    (
        "verifiers 1756",
        "proxy/tests/refusals.rs",
        "an_engine_that_is_down_is_a_503_and_the_next_try_is_fresh",
    ),
    (
        "inspect_swe 99",
        "proxy/tests/known_failures.rs",
        "four_identical_requests_are_one_generation",
    ),
    (
        "claude-code 69415",
        "proxy/tests/retries.rs",
        "a_generation_that_nobody_waits_for_is_aborted_and_kept_as_such",
    ),
    (
        "agentcore-rl-toolkit 97",
        "proxy/tool_alarm.rs",
        "it_speaks_once_and_only_where_no_call_ever_came",
    ),
    (
        "clodex 93, ollama 14918",
        "proxy/tests/messages.rs",
        "a_conversation_with_thinking_and_parallel_calls_is_one_segment",
    ),
];

#[test]
fn every_line_has_its_test() {
    let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for (line, file, test) in LINES {
        let text = std::fs::read_to_string(source.join(file)).unwrap();
        assert!(text.contains(&format!("fn {test}(")), "{line}: {file} has no {test}");
    }
}

fn only_segment(capture: &SessionCapture) -> &Segment {
    let [segment] = capture.segments.as_slice() else {
        panic!("{} segments", capture.segments.len())
    };
    segment
}

/// One byte a token: what no tokenizer makes of a text, and a policy may sample all the same.
#[tokio::test]
async fn tokens_that_no_text_encodes_to_stay_what_was_sampled() {
    let text = tool_call("cat GOPI.sh");
    let prompt = quickstart();
    let bytewise: Vec<TokenId> = text
        .chars()
        .flat_map(|char| prompt.tokenizer().encode(&char.to_string()).unwrap())
        .chain(prompt.tokenizer().stop_ids())
        .collect();
    assert_eq!(prompt.tokenizer().decode(&bytewise), format!("{text}<|im_end|>"));
    let odd = Answer {
        ids: Some(bytewise[..bytewise.len() - 1].to_vec()),
        ..text.as_str().into()
    };
    let harness = Harness::with(vec![odd, "done".into()], |_| {}).await;
    assert_ne!(harness.sampled(&text), bytewise);
    let ticket = harness.open();
    let first = harness.chat(&ticket, &request(&opening())).await;
    let mut messages = opening();
    messages.extend([assistant(&first), tool_result(&first, 0, "a")]);
    harness.chat(&ticket, &request(&messages)).await;
    let prompts = harness.engine.prompts();
    assert!(prompts[1].starts_with(&[&prompts[0][..], &bytewise].concat()));
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        trained(only_segment(&capture)),
        [bytewise, harness.sampled("done")].concat()
    );
}

#[tokio::test]
async fn a_history_that_drifts_late_loses_no_token() {
    let answers: Vec<String> = (0..12).map(|turn| tool_call(&format!("cat {turn}"))).collect();
    let harness = Harness::new(&answers.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let ticket = harness.open();
    let mut messages = opening();
    for turn in 0..12 {
        if turn == 9 {
            // The agent shortens an old result.
            messages[5]["content"] = "(cleared)".into();
        }
        let answer = harness.chat(&ticket, &request(&messages)).await;
        messages.extend([assistant(&answer), tool_result(&answer, 0, "some text")]);
    }
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let sampled: Vec<Vec<TokenId>> = answers.iter().map(|answer| harness.sampled(answer)).collect();
    let trains: Vec<Vec<TokenId>> = capture.segments.iter().map(trained).collect();
    assert_eq!(trains, [sampled[..9].concat(), sampled[9..].concat()]);
    assert_eq!(
        (capture.audit.n_rewrites, capture.ledger.trained),
        (1, sampled.concat().len() as u64)
    );
    assert!((capture.audit.delivered_fraction - 1.0).abs() < f32::EPSILON);
}

#[tokio::test]
async fn many_lines_and_thinking_break_no_prefix() {
    let answer = |turn: usize| {
        let text = format!("  \n\tdef f():\n\n        return \"</think>\" # {turn}\n\n\n");
        format!("<think>\n\nline\n  line\n\n</think>\n\n\nSo:\n\n{}\n", tool_call(&text))
    };
    let answers: Vec<String> = (0..48).map(answer).collect();
    let scripted = answers.iter().map(|answer| answer.as_str().into()).collect();
    let harness = Harness::over(with_template(DROPS_THINKING), scripted, |_| {}).await;
    let ticket = harness.open();
    let mut messages = opening();
    for _ in 0..48 {
        let answer = harness.chat(&ticket, &request(&messages)).await;
        let mut said = assistant(&answer);
        // As agents do: without the thinking, the text trimmed.
        said.as_object_mut().unwrap().remove("reasoning_content");
        said["content"] = "So:".into();
        messages.extend([said, tool_result(&answer, 0, "\n\n ok \n")]);
    }
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let sampled: Vec<TokenId> = answers.iter().flat_map(|answer| harness.sampled(answer)).collect();
    assert_eq!(trained(only_segment(&capture)), sampled);
    assert_eq!((capture.audit.num_tool_calls, capture.audit.n_rewrites), (48, 0));
}

#[tokio::test]
async fn unknown_fields_of_tools_reach_the_template() {
    let harness = Harness::over(with_template(DROPS_THINKING), vec!["ok".into()], |_| {}).await;
    let ticket = harness.open();
    let mut tool = bash_tool();
    tool["cache_control"] = json!({"type": "ephemeral"});
    tool["function"]["parameters"]["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    tool["function"]["parameters"]["properties"]["n"] =
        json!({"maximum": 9_007_199_254_740_992_u64, "x-odd": [null, 1.5]});
    let mut body = request(&opening());
    body["tools"] = json!([tool]);
    harness.chat(&ticket, &body).await;
    let prompt = harness.prompt.tokenizer().decode(&harness.engine.prompts()[0]);
    for kept in [
        r#""cache_control": {"type": "ephemeral"}"#,
        r#""$schema": "https://json-schema.org/draft/2020-12/schema""#,
        r#""n": {"maximum": 9007199254740992, "x-odd": [null, 1.5]}"#,
    ] {
        assert!(prompt.contains(kept), "{kept} in {prompt}");
    }
}

#[tokio::test]
async fn spans_are_of_tokens_where_characters_take_several() {
    let answers = [
        "日本語 🦀 é ".to_owned() + &tool_call("echo 🦀🦀"),
        "žluťoučký kůň".to_owned(),
    ];
    let harness = Harness::new(&answers.each_ref().map(String::as_str)).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    let (events, _) = harness.stream(&ticket, &body).await;
    let text: String = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(text, "日本語 🦀 é");
    body["stream"] = false.into();
    let first = harness.chat(&ticket, &request(&opening())).await;
    assert_eq!(first["choices"][0]["message"]["content"], "žluťoučký kůň");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let trains: Vec<Vec<TokenId>> = capture.segments.iter().map(trained).collect();
    // The second was sampled for the same prompt; a later one of two that nothing continues is kept.
    assert_eq!(trains.last(), Some(&harness.sampled(&answers[1])));
}

#[tokio::test]
async fn a_stream_with_calls_gives_every_token_id() {
    let answer = "Look.\n".to_owned() + &tool_call("cat a") + "\n" + &tool_call("cat b");
    let harness = Harness::new(&[&answer]).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    for key in ["stream", "return_token_ids"] {
        body[key] = true.into();
    }
    body["stream_options"] = json!({"include_usage": true});
    let (events, _) = harness.stream(&ticket, &body).await;
    let ids: Vec<TokenId> = events
        .iter()
        .filter_map(|event| event["choices"][0]["token_ids"].as_array())
        .flatten()
        .map(|id| id.as_u64().unwrap() as TokenId)
        .collect();
    assert_eq!(ids, harness.sampled(&answer));
    assert_eq!(events.last().unwrap()["usage"]["completion_tokens"], ids.len());
    let names: Vec<&str> = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["function"]["name"].as_str())
        .collect();
    assert_eq!(names, ["bash", "bash"]);
}

#[tokio::test]
async fn arguments_in_a_string_reach_the_template_as_an_object() {
    const READS_FIELDS: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
        {% for call in message.tool_calls or [] %}[{{ call.function.arguments.command }}]{% endfor %}<|im_end|>\n\
        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let harness = Harness::over(with_template(READS_FIELDS), vec!["ok".into()], |_| {}).await;
    let ticket = harness.open();
    let call =
        json!({"id": "a", "type": "function", "function": {"name": "bash", "arguments": "{\"command\": \"ls -l\"}"}});
    let mut messages = opening();
    messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]}));
    messages.push(json!({"role": "tool", "tool_call_id": "a", "content": "x"}));
    harness.chat(&ticket, &request(&messages)).await;
    let prompt = harness.prompt.tokenizer().decode(&harness.engine.prompts()[0]);
    assert!(prompt.contains("<|im_start|>assistant\n[ls -l]<|im_end|>"), "{prompt}");
}

/// A client's time-outs: the same body, again and again, while the first one is still being answered.
#[tokio::test]
async fn four_identical_requests_are_one_generation() {
    let held = Answer {
        hold_after: Some(2),
        ..Answer::from("one two three")
    };
    let harness = Harness::with(vec![held], |_| {}).await;
    let ticket = harness.open();
    let mut body = request(&opening());
    body["stream"] = true.into();
    let mut waiting = Vec::new();
    for _ in 0..4 {
        let mut response = harness.post(&ticket, &body).send().await.unwrap();
        // Something comes at once although the answer does not.
        assert!(response.chunk().await.unwrap().is_some());
        waiting.push(response);
    }
    harness.engine.release.add_permits(1);
    for response in waiting {
        let rest = response.text().await.unwrap();
        assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    }
    assert_eq!(harness.engine.requests.lock().unwrap().len(), 1);
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(trained(only_segment(&capture)), harness.sampled("one two three"));
    assert_eq!(capture.audit.sampled_tokens, capture.ledger.trained);
}
