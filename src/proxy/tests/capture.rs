use super::*;
use crate::config::{BuilderName, CaptureScope};
use crate::prompt::testing::{DROPS_THINKING, with_template};

/// Plays the three turns of a task; gives the messages so far.
async fn three_turns(harness: &Harness, ticket: &SessionTicket) -> Vec<Value> {
    let mut messages = opening();
    for observation in ["echo $1 | awk -F@ '{print $3}'", "(no output)"] {
        let answer = harness.chat(ticket, &request(&messages)).await;
        messages.extend([assistant(&answer), tool_result(&answer, 0, observation)]);
    }
    let answer = harness.chat(ticket, &request(&messages)).await;
    messages.push(assistant(&answer));
    messages
}

#[tokio::test]
async fn a_conversation_is_one_segment_of_exactly_what_was_sampled() {
    let answers = [
        tool_call("cat GOPI.sh"),
        tool_call("sed -i 's/F@/F:/' GOPI.sh"),
        "done".to_owned(),
    ];
    let harness = Harness::new(&answers.each_ref().map(String::as_str)).await;
    let ticket = harness.open();
    let messages = three_turns(&harness, &ticket).await;
    let flights = harness.proxy.0.session(&ticket.key.0).unwrap().state().flights.len();
    assert_eq!(flights, 1, "only the last answer can be asked for again");
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();

    let [segment] = capture.segments.as_slice() else {
        panic!("{:?}", capture.segments)
    };
    let sampled: Vec<TokenId> = answers.iter().flat_map(|answer| harness.sampled(answer)).collect();
    assert_eq!(trained(segment), sampled);
    // Prompts extend what was sampled, and all of it reads as the template would have written it.
    let whole = [&segment.prompt_ids[..], &segment.response_ids].concat();
    for (generation, prompt) in harness.engine.prompts().iter().enumerate() {
        assert_eq!(whole[..prompt.len()], prompt[..], "{generation}");
    }
    let text = harness.prompt.tokenizer().decode(&whole);
    assert!(text.starts_with("<|im_start|>system\nFix the program.\nTools: bash(command)<|im_end|><|im_start|>user\n"));
    assert!(
        text.ends_with("<|im_start|>tool\n(no output)<|im_end|><|im_start|>assistant\ndone<|im_end|>"),
        "{text}"
    );

    // Log-probs and versions are the engine's own, bit for bit.
    let mut at = segment
        .response_mask
        .iter()
        .zip(segment.response_logprobs.as_ref().unwrap());
    for (generation, answer) in answers.iter().enumerate() {
        for position in 0..harness.sampled(answer).len() {
            let (_, value) = at.by_ref().find(|(mask, _)| **mask == 1).unwrap();
            assert_eq!(value.to_bits(), engine::logprob(generation, position).to_bits());
        }
    }
    let updates: Vec<u64> = segment.weight_versions.iter().map(|span| span.version.update).collect();
    assert_eq!(updates, [0, 1, 2]);

    assert_eq!(
        (
            capture.audit.num_calls,
            capture.audit.num_turns,
            capture.audit.num_tool_calls
        ),
        (3, 3, 2)
    );
    assert!((capture.audit.delivered_fraction - 1.0).abs() < f32::EPSILON);
    assert_eq!(
        (capture.ledger.trained, capture.ledger.total()),
        (sampled.len() as u64, sampled.len() as u64)
    );
    assert_eq!(capture.tool_gaps.len(), 2);
    let transcript: Vec<Value> = serde_json::from_str(&capture.messages).unwrap();
    assert_eq!(transcript.len(), messages.len());
    assert_eq!(transcript[6]["content"], "done");
}

/// What mini-swe-agent, opencode and OpenHands do to earlier messages.
#[tokio::test]
async fn histories_that_come_back_changed_are_the_same_conversation() {
    let answers = [
        "Look.\n".to_owned() + &tool_call("cat a") + "\n" + &tool_call("cat b"),
        "done".to_owned(),
    ];
    let harness = Harness::new(&answers.each_ref().map(String::as_str)).await;
    let ticket = harness.open();
    let first = harness.chat(&ticket, &request(&opening())).await;
    let calls = &first["choices"][0]["message"]["tool_calls"];
    assert_eq!(first["choices"][0]["finish_reason"], "tool_calls");
    let changed: Vec<Value> = calls
        .as_array()
        .unwrap()
        .iter()
        .map(|call| {
            let arguments = call["function"]["arguments"].as_str().unwrap().replace(": ", ":");
            json!({"function": {"name": "bash", "arguments": arguments}, "id": call["id"], "type": "function"})
        })
        .collect();
    let messages = json!([
        {"role": "system", "content": [{"type": "text", "text": "Fix the program.", "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [{"type": "text", "text": "GOPI.sh must split fields at :"}]},
        {"content": " Look. ", "role": "assistant", "reasoning_content": "", "tool_calls": changed},
        // Parallel results in order of completion.
        tool_result(&first, 1, "b"), tool_result(&first, 0, "a"),
    ]);
    harness.chat(&ticket, &request(messages.as_array().unwrap())).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let sampled: Vec<TokenId> = answers.iter().flat_map(|answer| harness.sampled(answer)).collect();
    assert_eq!(capture.segments.iter().map(trained).collect::<Vec<_>>(), [sampled]);
    let tail = harness.encode("<|im_start|>tool\nb<|im_end|><|im_start|>tool\na<|im_end|><|im_start|>assistant\n");
    assert!(harness.engine.prompts()[1].ends_with(&tail));
    assert_eq!(capture.audit.n_rewrites, 0);
}

#[tokio::test]
async fn side_conversations_are_served_and_not_trained() {
    let harness = Harness::new(&["A title", &tool_call("ls"), "ok", "done"]).await;
    let ticket = harness.open();
    let title =
        json!({"messages": [{"role": "system", "content": "You write titles."}, {"role": "user", "content": "x"}]});
    harness.chat(&ticket, &title).await;
    let first = harness.chat(&ticket, &request(&opening())).await;
    // A sub-agent in between: other instructions, the same tools.
    let sub = [
        json!({"role": "system", "content": "You search."}),
        json!({"role": "user", "content": "find a"}),
    ];
    harness.chat(&ticket, &request(&sub)).await;
    let mut messages = opening();
    messages.extend([assistant(&first), tool_result(&first, 0, "a")]);
    harness.chat(&ticket, &request(&messages)).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let main = [harness.sampled(&tool_call("ls")), harness.sampled("done")].concat();
    assert_eq!(capture.segments.iter().map(trained).collect::<Vec<_>>(), [main]);
    let side = harness.sampled("A title").len() + harness.sampled("ok").len();
    assert_eq!(capture.ledger.side_conversation, side as u64);
    assert_eq!(capture.audit.n_rewrites, 0);
}

/// The agent drops its first tool turn and goes on from a summary.
#[tokio::test]
async fn a_compacted_history_starts_a_new_segment_of_the_main_agent() {
    let harness = Harness::new(&[&tool_call("ls"), "summary", "done"]).await;
    let ticket = harness.open();
    let first = harness.chat(&ticket, &request(&opening())).await;
    let mut messages = opening();
    messages.extend([
        assistant(&first),
        tool_result(&first, 0, "a"),
        json!({"role": "user", "content": "Summarise."}),
    ]);
    harness.chat(&ticket, &request(&messages)).await;
    let compacted = [
        opening()[0].clone(),
        json!({"role": "user", "content": "Summary: summary. Go on."}),
    ];
    harness.chat(&ticket, &request(&compacted)).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(capture.segments.len(), 2);
    assert!(capture.segments.iter().all(|segment| segment.is_main_agent));
    assert!((capture.audit.delivered_fraction - 1.0).abs() < f32::EPSILON);
}

/// An assistant message of the agent's own, and changed tools.
#[tokio::test]
async fn what_the_policy_never_wrote_is_context() {
    let harness = Harness::new(&["one", "two", "three"]).await;
    let ticket = harness.open();
    let mut messages = opening();
    messages.insert(1, json!({"role": "assistant", "content": "few-shot"}));
    let first = harness.chat(&ticket, &request(&messages)).await;
    messages.extend([
        assistant(&first),
        json!({"role": "assistant", "content": "inserted"}),
        json!({"role": "user", "content": "go on"}),
    ]);
    harness.chat(&ticket, &request(&messages)).await;
    let mut other_tools = request(&messages);
    other_tools["tools"][0]["function"]["name"] = "shell".into();
    harness.chat(&ticket, &other_tools).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(
        trained(&capture.segments[0]),
        [harness.sampled("one"), harness.sampled("two")].concat()
    );
    assert_eq!(capture.ledger.side_conversation, harness.sampled("three").len() as u64);
}

#[tokio::test]
async fn a_template_that_drops_thinking_still_extends_what_was_sampled() {
    let thinking = format!("<think>\nhm\n</think>\n\n{}", tool_call("ls"));
    let answers = vec![
        thinking.as_str().into(),
        "<think>\nso\n</think>\n\ndone".into(),
        "bye".into(),
    ];
    let harness = Harness::over(with_template(DROPS_THINKING), answers, |_| {}).await;
    let ticket = harness.open();
    let mut messages = opening();
    let first = harness.chat(&ticket, &request(&messages)).await;
    assert_eq!(first["choices"][0]["message"]["reasoning_content"], "hm");
    // One agent sends thinking back, another drops it.
    messages.extend([assistant(&first), tool_result(&first, 0, "a")]);
    let second = harness.chat(&ticket, &request(&messages)).await;
    messages.extend([
        json!({"role": "assistant", "content": "done"}),
        json!({"role": "user", "content": "sure?"}),
    ]);
    assert_eq!(second["choices"][0]["message"]["content"], "done");
    harness.chat(&ticket, &request(&messages)).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let [segment] = capture.segments.as_slice() else {
        panic!("{}", capture.segments.len())
    };
    let whole = [&segment.prompt_ids[..], &segment.response_ids].concat();
    let text = harness.prompt.tokenizer().decode(&whole);
    assert!(
        text.contains("<think>\nhm\n</think>\n\n<tool_call>")
            && text.contains("<think>\nso\n</think>\n\ndone<|im_end|>\n")
    );
    assert_eq!(text.matches("<|im_start|>assistant").count(), 3);
    assert_eq!(text.matches("<|im_end|>").count(), 3 + 4);
}

#[tokio::test]
async fn an_answer_cut_by_length_is_continued_behind_one_synthetic_end() {
    let cut = Answer {
        finish: crate::trajectory::FinishReason::Length,
        ..Answer::from("one two three")
    };
    let harness = Harness::with(vec![cut, "done".into()], |_| {}).await;
    let ticket = harness.open();
    let mut messages = opening();
    let first = harness.chat(&ticket, &request(&messages)).await;
    assert_eq!(first["choices"][0]["finish_reason"], "length");
    messages.extend([assistant(&first), json!({"role": "user", "content": "go on"})]);
    harness.chat(&ticket, &request(&messages)).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let [segment] = capture.segments.as_slice() else {
        panic!("{}", capture.segments.len())
    };
    assert_eq!(
        trained(segment),
        [harness.encode("one two three"), harness.sampled("done")].concat()
    );
    let cut_len = harness.encode("one two three").len();
    assert_eq!(
        (segment.response_ids[cut_len], segment.response_mask[cut_len]),
        (harness.prompt.tokenizer().stop_ids()[0], 0)
    );
}

#[tokio::test]
async fn a_session_is_rebuilt_from_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trial/calls.jsonl");
    let harness = Harness::new(&[&tool_call("ls"), &tool_call("cat a"), "done", "other"]).await;
    let options = SessionOptions {
        task_id: "org/task".into(),
        episode_index: 3,
        call_log: Some(path.clone()),
        ..SessionOptions::default()
    };
    let ticket = harness.proxy.open_session(options).unwrap();
    three_turns(&harness, &ticket).await;
    harness
        .chat(&ticket, &json!({"messages": [{"role": "user", "content": "x"}]}))
        .await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();

    let recovered = recover(&path).unwrap();
    assert_eq!(
        (
            recovered.task_id.as_str(),
            recovered.episode_index,
            recovered.unfinished_calls
        ),
        ("org/task", 3, 0)
    );
    let again = recovered.capture(CaptureScope::Main, BuilderName::Segments);
    assert_eq!(again.segments, capture.segments);
    assert_eq!(
        (&again.audit, &again.ledger, &again.messages),
        (&capture.audit, &capture.ledger, &capture.messages)
    );
    assert_eq!(u64::from(recovered.usage.completion), capture.ledger.total());

    // The process ended while it wrote the last line; then a line that is damaged.
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&ticket.token));
    let torn = folder.path().join("torn.jsonl");
    std::fs::write(&torn, &text[..text.len() - 10]).unwrap();
    let recovered = recover(&torn).unwrap();
    assert_eq!(
        (
            recovered.unfinished_calls,
            recovered.capture(CaptureScope::Main, BuilderName::Segments).segments
        ),
        (1, capture.segments)
    );
    std::fs::write(&torn, text.replacen("\"ids\":[", "\"ids\":[x", 1)).unwrap();
    assert!(
        recover(&torn)
            .unwrap_err()
            .to_string()
            .contains("torn.jsonl`, line 2: "),
        "{:?}",
        recover(&torn)
    );
}
