//! What each format means, by example.

use serde_json::{Value, json};

use super::*;

/// Adjacent pieces of text joined, so that results of different chunkings compare.
pub(super) fn parse_as(format: ToolFormat, chunks: &[&str]) -> Vec<ParseEvent> {
    let mut parser = format.parser().with_schemas(ToolSchemas::of(&[tool()]));
    let mut events: Vec<ParseEvent> = chunks.iter().flat_map(|chunk| parser.push(chunk)).collect();
    events.extend(parser.finish());
    let mut joined: Vec<ParseEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(ParseEvent::Text(text)), ParseEvent::Text(more)) => text.push_str(&more),
            (_, event) => joined.push(event),
        }
    }
    joined
}

fn parse(chunks: &[&str]) -> Vec<ParseEvent> {
    parse_as(ToolFormat::Hermes, chunks)
}

fn tool() -> Value {
    json!({"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {
        "command": {"type": "string"}, "timeout": {"type": "integer"}, "ratio": {"type": "number"},
        "wait": {"type": "boolean"}, "env": {"type": "object"}, "args": {"type": ["array", "null"]},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    }}}})
}

fn call(name: &str, arguments: &str) -> ParseEvent {
    ParseEvent::Call(ParsedCall {
        name: name.into(),
        arguments: arguments.into(),
        id: None,
    })
}

fn named(id: &str, name: &str, arguments: &str) -> ParseEvent {
    ParseEvent::Call(ParsedCall {
        name: name.into(),
        arguments: arguments.into(),
        id: Some(id.into()),
    })
}

fn text(text: &str) -> ParseEvent {
    ParseEvent::Text(text.into())
}

/// One call of every format, as its templates write it, with the arguments that it means.
pub(super) fn sample(format: ToolFormat) -> (&'static str, ParseEvent) {
    const OBJECT: &str = r#"{"command": "é </x> [1]"}"#;
    match format {
        ToolFormat::Hermes => (
            "<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"é </x> [1]\"}}\n</tool_call>",
            call("bash", OBJECT),
        ),
        ToolFormat::Qwen3Coder => (
            "<tool_call>\n<function=bash>\n<parameter=command>\né </x> [1]\n</parameter>\n</function>\n</tool_call>",
            call("bash", r#"{"command":"é </x> [1]"}"#),
        ),
        ToolFormat::Llama3Json => (
            "{\"name\": \"bash\", \"parameters\": {\"command\": \"é </x> [1]\"}}",
            call("bash", OBJECT),
        ),
        ToolFormat::Mistral => (
            "[TOOL_CALLS][{\"name\": \"bash\", \"arguments\": {\"command\": \"é </x> [1]\"}}]",
            call("bash", OBJECT),
        ),
        ToolFormat::Glm => (
            "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value>é </x> [1]</arg_value>\n</tool_call>",
            call("bash", r#"{"command":"é </x> [1]"}"#),
        ),
        ToolFormat::KimiK2 => (
            "<|tool_call_begin|>functions.bash:0<|tool_call_argument_begin|>{\"command\": \"é </x> [1]\"}<|tool_call_end|>",
            named("functions.bash:0", "bash", OBJECT),
        ),
        ToolFormat::DeepseekV3 => (
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n```json\n{\"command\": \"é </x> [1]\"}\n```<｜tool▁call▁end｜>",
            call("bash", OBJECT),
        ),
        ToolFormat::Pythonic => (
            "[bash(command='é </x> [1]')]",
            call("bash", r#"{"command":"é </x> [1]"}"#),
        ),
    }
}

#[test]
fn every_format_gives_text_and_parallel_calls() {
    for format in ToolFormat::all() {
        let (written, meant) = sample(format);
        let space = if matches!(format, ToolFormat::Llama3Json) {
            "; "
        } else {
            "\n"
        };
        let two = format!("{written}{space}{written}\n");
        assert_eq!(parse_as(format, &[&two]), [meant.clone(), meant.clone()], "{format:?}");
        if !matches!(format, ToolFormat::Llama3Json | ToolFormat::Pythonic) {
            let behind = format!("Look.\n{written}");
            assert_eq!(parse_as(format, &[&behind]), [text("Look."), meant], "{format:?}");
        }
        assert_eq!(ToolFormat::from_name(format.name()), Some(format));
    }
}

#[test]
fn schemas_are_read_where_arguments_are_plain_text_alone() {
    let tool = json!({"name": "bash", "parameters": {"properties": {"command": {"type": "integer"}}}});
    for format in ToolFormat::all() {
        let written = sample(format).0.replace("é </x> [1]", "5");
        let with = |schemas: ToolSchemas| {
            let mut parser = format.parser().with_schemas(schemas);
            [parser.push(&written), parser.finish()].concat()
        };
        let differs = with(ToolSchemas::of(std::slice::from_ref(&tool))) != with(ToolSchemas::default());
        assert_eq!(differs, format.has_plain_arguments(), "{format:?}");
    }
}

#[test]
fn a_call_that_is_cut_stays_text_in_every_format() {
    for format in ToolFormat::all() {
        let (written, _) = sample(format);
        let cut = &written[..written.find("[1]").unwrap()];
        let events = parse_as(format, &[cut]);
        assert!(
            matches!(events.as_slice(), [ParseEvent::Text(text), ParseEvent::Malformed { reason }] if text == cut && !reason.is_empty()),
            "{format:?}: {events:?}"
        );
    }
}

#[test]
fn parameters_have_the_types_of_the_schema() {
    let pairs = [
        ("command", "1"),
        ("timeout", "30"),
        ("ratio", "0.5"),
        ("wait", "True"),
        ("env", "{\"A\": \"b\"}"),
        ("args", "['x', 2]"),
        ("maybe", "null"),
        ("unknown", "7"),
    ];
    let expected = r#"{"command":"1","timeout":30,"ratio":0.5,"wait":true,"env":{"A":"b"},"args":["x",2],"maybe":null,"unknown":"7"}"#;
    let each = |write: fn(&str, &str) -> String| pairs.map(|(key, value)| write(key, value)).concat();
    let qwen = each(|key, value| format!("<parameter={key}>\n{value}\n</parameter>\n"));
    let qwen = format!("<tool_call>\n<function=bash>\n{qwen}</function>\n</tool_call>");
    assert_eq!(parse_as(ToolFormat::Qwen3Coder, &[&qwen]), [call("bash", expected)]);
    let glm = each(|key, value| format!("<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n"));
    let glm = format!("<tool_call>bash\n{glm}</tool_call>");
    assert_eq!(parse_as(ToolFormat::Glm, &[&glm]), [call("bash", expected)]);
    // What does not fit stays as it was written, for the tool to refuse.
    let bad = "<tool_call>bash<arg_key>timeout</arg_key><arg_value>soon</arg_value></tool_call>";
    assert_eq!(
        parse_as(ToolFormat::Glm, &[bad]),
        [call("bash", r#"{"timeout":"soon"}"#)]
    );
}

#[test]
fn plain_text_values_may_hold_the_marks_and_keep_their_space() {
    let value = "  a\n\n</parameter> b </tool_call>\n</function> c\n";
    let answer = format!("<function=bash>\n<parameter=command>\n{value}\n</parameter>\n</function>");
    for answer in [answer.clone(), format!("<tool_call>\n{answer}\n</tool_call>")] {
        let expected = json!({ "command": value }).to_string();
        assert_eq!(parse_as(ToolFormat::Qwen3Coder, &[&answer]), [call("bash", &expected)]);
    }
    let forgotten = "<tool_call><function=bash><parameter=command>\nls\n<parameter=timeout>\n3\n</parameter></function></tool_call>";
    assert_eq!(
        parse_as(ToolFormat::Qwen3Coder, &[forgotten]),
        [call("bash", r#"{"command":"ls","timeout":3}"#)]
    );
    let glm = "<tool_call>bash\n<arg_key>command</arg_key>\n<arg_value> a </tool_call> </arg_value> b\n</arg_value>\n</tool_call>";
    assert_eq!(
        parse_as(ToolFormat::Glm, &[glm]),
        [call("bash", r#"{"command":" a </tool_call> </arg_value> b\n"}"#)]
    );
}

#[test]
fn the_variants_of_each_family() {
    let object = r#"{"command": "ls"}"#;
    let ls = || call("bash", object);
    for (format, answer, expected) in [
        (
            ToolFormat::Mistral,
            "[TOOL_CALLS]bash[ARGS]{\"command\": \"ls\"}",
            vec![ls()],
        ),
        (
            ToolFormat::Mistral,
            "[TOOL_CALLS]bash{\"command\": \"ls\"}[TOOL_CALLS]bash{\"command\": \"ls\"}",
            vec![ls(), ls()],
        ),
        (
            ToolFormat::Mistral,
            "[TOOL_CALLS]bash[CALL_ID]a1b2c3d4e[ARGS]{\"command\": \"ls\"}",
            vec![named("a1b2c3d4e", "bash", object)],
        ),
        (
            ToolFormat::Mistral,
            "Hm.[TOOL_CALLS] [{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}, \"id\": \"x\"}, {\"name\": \"bash\", \"arguments\": {}}]",
            vec![text("Hm."), named("x", "bash", object), call("bash", "{}")],
        ),
        (
            ToolFormat::Llama3Json,
            "<|python_tag|>{\"name\": \"bash\", \"parameters\": {\"command\": \"ls\"}}",
            vec![ls()],
        ),
        (
            ToolFormat::Llama3Json,
            "{\"type\": \"function\", \"function\": {\"name\": \"bash\", \"parameters\": {\"command\": \"ls\"}}}",
            vec![ls()],
        ),
        (
            ToolFormat::Llama3Json,
            "{\"files\": [1]}",
            vec![text("{\"files\": [1]}")],
        ),
        (
            ToolFormat::DeepseekV3,
            "A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{\"command\": \"ls\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            vec![text("A"), ls()],
        ),
        (
            ToolFormat::KimiK2,
            "A<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:3<|tool_call_argument_begin|>{\"command\": \"ls\"}<|tool_call_end|><|tool_calls_section_end|>",
            vec![text("A"), named("functions.bash:3", "bash", object)],
        ),
        (
            ToolFormat::Pythonic,
            "<|python_start|>[bash(command=\"ls\"), a.b()]<|python_end|>",
            vec![call("bash", r#"{"command":"ls"}"#), call("a.b", "{}")],
        ),
        (ToolFormat::Pythonic, "[1, 2]", vec![text("[1, 2]")]),
    ] {
        assert_eq!(parse_as(format, &[answer]), expected, "{answer}");
    }
}

#[test]
fn raw_line_breaks_inside_strings_are_accepted() {
    let answer =
        "<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"cat <<E\n\ta \\\"b\\\"\nE\"}}</tool_call>";
    assert_eq!(
        parse(&[answer]),
        [call("bash", "{\"command\": \"cat <<E\\n\\ta \\\"b\\\"\\nE\"}")]
    );
}

#[test]
fn a_malformed_call_stays_text_and_is_reported() {
    for body in [
        "{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}",
        "{\"name\": \"bash\", \"arguments\": {}} x",
        "{}",
        "",
    ] {
        let answer = format!("A\n<tool_call>{body}</tool_call> B");
        let events = parse(&[&answer]);
        assert_eq!(events[0], text(&format!("A\n<tool_call>{body}</tool_call>")), "{body}");
        assert!(
            matches!(&events[1], ParseEvent::Malformed { reason } if !reason.is_empty()),
            "{body}"
        );
        assert_eq!(events[2..], [text(" B")], "{body}");
    }
}

#[test]
fn a_complete_object_without_closing_tag_is_a_call() {
    let whole = "<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}";
    assert_eq!(parse(&[whole]), [call("bash", "{\"command\": \"ls\"}")]);
}

#[test]
fn arguments_as_a_string_and_none_at_all() {
    let wrapped = r#"<tool_call>{"name": "bash", "arguments": "{\"command\": \"ls\"}"}</tool_call>"#;
    assert_eq!(parse(&[wrapped]), [call("bash", r#"{"command": "ls"}"#)]);
    assert_eq!(
        parse(&[r#"<tool_call>{"name": "submit"}</tool_call>"#]),
        [call("submit", "{}")]
    );
}

#[test]
fn text_alone_keeps_its_space_and_leaves_at_once() {
    for format in ToolFormat::all() {
        assert_eq!(
            parse_as(format, &["\n\nDone. ", "\n"]),
            [text("\n\nDone. \n")],
            "{format:?}"
        );
        assert_eq!(format.parser().push("a"), [text("a")], "{format:?}");
    }
    let mut parser = ToolFormat::Hermes.parser();
    assert_eq!(parser.push("a <b"), [text("a <b")]);
    assert_eq!(parser.push(" <tool"), []);
    assert_eq!(parser.push("box>"), [text(" <toolbox>")]);
    assert_eq!(ToolFormat::Llama3Json.parser().push("{\"x"), [text("{\"x")]);
}

#[test]
fn the_format_is_read_off_the_template_then_off_the_family() {
    for (template, family, expected) in [
        ("… <tool_call> …", None, Some(ToolFormat::Hermes)),
        ("<tool_call><function={{ name }}>", None, Some(ToolFormat::Qwen3Coder)),
        ("<tool_call>{{ name }}<arg_key>", None, Some(ToolFormat::Glm)),
        ("{{ messages }}", Some("qwen3"), None),
        ("{{ tools }}", Some("qwen3"), Some(ToolFormat::Hermes)),
        (
            "{{ tools }} \"parameters\": ",
            Some("llama"),
            Some(ToolFormat::Llama3Json),
        ),
        ("{{ tools }}", Some("llama"), None),
    ] {
        assert_eq!(ToolFormat::detect(template, family), expected, "{template}");
    }
}
