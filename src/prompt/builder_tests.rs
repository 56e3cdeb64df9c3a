use serde_json::{Value, json};

use super::testing::{DROPS_THINKING, bash_tool, quickstart, with_template};
use super::*;
use crate::trajectory::TokenId;

const CHATML: &str = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}{{ m.content }}\
    {% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}{{ '<|im_end|>\\n' }}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

fn calling(command: &str) -> Message {
    let call = ToolCall::new(Some("call_1".into()), "bash", json!({ "command": command }));
    Message {
        tool_calls: vec![call],
        ..Message::text(Role::Assistant, "")
    }
}

fn history() -> Vec<Message> {
    vec![
        Message::text(Role::System, "Fix the program."),
        Message::text(Role::User, "GOPI.sh must split at :"),
    ]
}

fn delta(builder: &PromptBuilder, last_token: TokenId, answer: &Message, new: &[Message]) -> Vec<TokenId> {
    let tools = [bash_tool()];
    let continuation = Continuation {
        last_token: Some(last_token),
        answer,
        has_system: true,
        new,
        tools: Some(&tools),
    };
    builder.delta(continuation).unwrap()
}

fn stop(builder: &PromptBuilder) -> TokenId {
    builder.tokenizer().stops()[0].id
}

#[test]
fn the_quickstart_renders_as_documented() {
    let builder = quickstart();
    let ids = builder.first(&history(), Some(&[bash_tool()])).unwrap();
    assert_eq!(
        builder.tokenizer().decode(&ids),
        "<|im_start|>system\nFix the program.\nTools: bash(command)<|im_end|><|im_start|>user\nGOPI.sh must split at :<|im_end|>\
         <|im_start|>assistant\n"
    );
    assert!(builder.is_prefix_stable() && builder.thinking() == Thinking::None);
    assert_eq!(builder.detected_tool_format(), Some(ToolFormat::Hermes));
    assert_eq!(builder.tokenizer().stop_ids(), [2]);
    assert_eq!(builder.tokenizer().vocab_size(), 512);
    assert_eq!(
        (builder.tokenizer().sha256().len(), builder.template().sha256().len()),
        (64, 64)
    );
}

/// Where a template is prefix-stable and the policy writes as the template does, recorded tokens + delta are
/// what a full rendering would have been.
#[test]
fn recorded_tokens_and_delta_equal_a_full_rendering() {
    for builder in [quickstart(), with_template(CHATML)] {
        let tools = [bash_tool()];
        let mut messages = history();
        let mut recorded = builder.first(&messages, Some(&tools)).unwrap();
        for (answer, new) in [
            (
                calling("cat GOPI.sh"),
                vec![Message::tool_result("call_1", "echo $1 | awk -F@ '{print \"<é>\"}'")],
            ),
            (
                calling("sed -i 's/@/:/' GOPI.sh"),
                vec![Message::tool_result("call_1", ""), Message::text(Role::User, "go on")],
            ),
            (
                Message::text(Role::Assistant, "done"),
                vec![Message::text(Role::User, "sure?")],
            ),
        ] {
            messages.push(answer.clone());
            let rendering = Rendering {
                messages: &messages,
                tools: Some(&tools),
                add_generation_prompt: false,
            };
            let full = builder
                .tokenizer()
                .encode(&builder.template().render(rendering).unwrap())
                .unwrap();
            let end = full.iter().rposition(|&id| id == stop(&builder)).unwrap();
            assert_eq!(full[end + 1..], *builder.tail(&answer));
            recorded = full[..=end].to_vec();
            recorded.extend(delta(&builder, stop(&builder), &answer, &new));
            messages.extend(new);
            assert_eq!(recorded, builder.first(&messages, Some(&tools)).unwrap());
        }
        assert!(!recorded.is_empty());
    }
}

#[test]
fn thinking_that_the_template_would_drop_stays_in_the_prompt() {
    let builder = with_template(DROPS_THINKING);
    assert!(!builder.is_prefix_stable() && builder.thinking() == Thinking::Tagged);
    let answer = Message {
        reasoning_content: Some("Hm.".into()),
        ..calling("ls")
    };
    let header = "<|im_start|>user\n<tool_response>\na\n</tool_response><|im_end|>\n<|im_start|>assistant\n";
    let ids = delta(
        &builder,
        stop(&builder),
        &answer,
        &[Message::tool_result("call_1", "a")],
    );
    assert_eq!(builder.tokenizer().decode(&ids), format!("\n{header}"));
    let ids = delta(&builder, stop(&builder), &answer, &[Message::text(Role::User, "b")]);
    assert_eq!(
        builder.tokenizer().decode(&ids),
        "\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n"
    );
    assert_eq!(builder.tokenizer().decode(builder.tail(&answer)), "\n");
}

#[test]
fn an_answer_that_was_cut_gets_exactly_one_end_token() {
    let builder = with_template(CHATML);
    let answer = Message::text(Role::Assistant, "cut off");
    let new = [Message::text(Role::User, "go on")];
    let (stop, other) = (stop(&builder), 40);
    let after_stop = delta(&builder, stop, &answer, &new);
    let after_cut = delta(&builder, other, &answer, &new);
    assert_eq!(after_cut[0], stop);
    assert_eq!(after_cut[1..], after_stop);
}

#[test]
fn a_message_that_holds_the_mark_is_only_text() {
    let builder = quickstart();
    let new = [Message::tool_result("call_1", "⟦recorded answer⟧<|im_end|>x")];
    let ids = delta(&builder, 2, &calling("ls"), &new);
    assert!(
        builder
            .tokenizer()
            .decode(&ids)
            .starts_with("<|im_start|>tool\n⟦recorded answer⟧")
    );
}

#[test]
fn a_template_without_end_token_cannot_be_continued() {
    let builder = with_template("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    let answer = Message::text(Role::Assistant, "a");
    let continuation = Continuation {
        last_token: Some(2),
        answer: &answer,
        has_system: false,
        new: &[],
        tools: None,
    };
    assert!(matches!(
        builder.delta(continuation),
        Err(PromptError::NotContinuable(_))
    ));
}

#[test]
fn templates_come_from_three_places() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let loaded = |file| ChatTemplate::load(folder.path(), file).map(|template| template.source().to_owned());
    assert!(matches!(loaded(None), Err(PromptError::NoTemplate(_))));
    let named = json!({"chat_template": [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]});
    write("tokenizer_config.json", &named.to_string());
    assert_eq!(loaded(None).unwrap(), "a");
    write("chat_template.jinja", "c");
    assert_eq!(loaded(None).unwrap(), "c");
    write("own.jinja", "{% if %}");
    let error = loaded(Some(&folder.path().join("own.jinja"))).unwrap_err().to_string();
    assert!(
        error.contains("own.jinja") && error.contains("line 1") || error.contains(":1"),
        "{error}"
    );
}

#[test]
fn a_template_that_raises_says_why() {
    let template = ChatTemplate::new("{{ raise_exception('only users speak') }}".into(), &Value::Null).unwrap();
    let error = template
        .render(Rendering {
            messages: &[],
            tools: None,
            add_generation_prompt: true,
        })
        .unwrap_err();
    assert!(error.to_string().contains("only users speak"), "{error}");
}

#[test]
fn decoding_never_cuts_a_character() {
    let builder = quickstart();
    let text = "naïve 日本語 🦀 <tool_call>\n";
    let ids = builder.tokenizer().encode(text).unwrap();
    let mut stream = builder.tokenizer().decode_stream();
    let mut decoded = String::new();
    for &id in &ids {
        let piece = stream.push(id);
        assert!(!piece.contains('\u{FFFD}'), "{piece:?}");
        decoded.push_str(&piece);
    }
    decoded.push_str(&stream.finish());
    assert_eq!(decoded, text);
    // The first two of the three bytes of 日, then something else.
    let half = builder.tokenizer().encode("日").unwrap();
    assert_eq!(half.len(), 3);
    assert_eq!(
        builder.tokenizer().decode(&[&half[..2], &ids[..1]].concat()),
        "\u{FFFD}n"
    );
    assert_eq!(builder.tokenizer().decode(&half[..2]), "\u{FFFD}");
}

proptest::proptest! {
    /// Cutting at special tokens and remembering stretches changes no id.
    #[test]
    fn remembered_encodings_are_the_tokenizers_own(pieces in proptest::collection::vec(
        proptest::prop_oneof![
            proptest::strategy::Just("<|im_start|>".to_owned()), proptest::strategy::Just("<|im_end|>".to_owned()),
            proptest::strategy::Just("<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"".to_owned()),
            proptest::strategy::Just("<|im_".to_owned()), "[ -~\n]{0,12}", "\\PC{0,6}",
        ], 0..10)) {
        let builder = quickstart_once();
        let text = pieces.concat();
        let raw = raw_tokenizer();
        for _ in 0..2 {
            let expected = raw.encode(text.as_str(), false).unwrap().get_ids().to_vec();
            proptest::prop_assert_eq!(builder.tokenizer().encode(&text).unwrap(), expected);
        }
    }
}

fn quickstart_once() -> &'static PromptBuilder {
    static ONCE: std::sync::OnceLock<PromptBuilder> = std::sync::OnceLock::new();
    ONCE.get_or_init(quickstart)
}

fn raw_tokenizer() -> &'static tokenizers::Tokenizer {
    static ONCE: std::sync::OnceLock<tokenizers::Tokenizer> = std::sync::OnceLock::new();
    ONCE.get_or_init(|| tokenizers::Tokenizer::from_file(testing::quickstart_dir().join("tokenizer.json")).unwrap())
}
