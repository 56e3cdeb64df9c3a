use proptest::prelude::*;

use super::*;

/// Adjacent pieces of text joined, so that results of different chunkings compare.
fn parse(chunks: &[&str]) -> Vec<ParseEvent> {
    let mut parser = ToolFormat::Hermes.parser();
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

fn call(name: &str, arguments: &str) -> ParseEvent {
    ParseEvent::Call(ParsedCall {
        name: name.into(),
        arguments: arguments.into(),
    })
}

fn text(text: &str) -> ParseEvent {
    ParseEvent::Text(text.into())
}

#[test]
fn text_and_parallel_calls() {
    let answer = "Look.\n<tool_call>\n{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}\n</tool_call>\n\
                  <tool_call>{\"name\":\"read\",\"arguments\":{\"path\" : \"a\"}}</tool_call>\n";
    assert_eq!(
        parse(&[answer]),
        [
            text("Look."),
            call("bash", "{\"command\": \"ls\"}"),
            call("read", "{\"path\" : \"a\"}")
        ]
    );
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
fn a_complete_object_without_closing_tag_is_a_call_and_a_cut_one_is_not() {
    let whole = "<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"ls\"}}";
    assert_eq!(parse(&[whole]), [call("bash", "{\"command\": \"ls\"}")]);
    let cut = &whole[..whole.len() - 3];
    assert!(matches!(parse(&[cut]).as_slice(), [ParseEvent::Text(text), ParseEvent::Malformed { .. }] if text == cut));
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
    assert_eq!(parse(&["\n\nDone. ", "\n"]), [text("\n\nDone. \n")]);
    let mut parser = ToolFormat::Hermes.parser();
    assert_eq!(parser.push("a <b"), [text("a <b")]);
    assert_eq!(parser.push(" <tool"), []);
    assert_eq!(parser.push("box>"), [text(" <toolbox>")]);
}

#[test]
fn the_format_is_read_off_the_template() {
    assert_eq!(ToolFormat::detect("… <tool_call> …"), Some(ToolFormat::Hermes));
    assert_eq!(ToolFormat::detect("<tool_call><function={{ name }}>"), None);
    assert_eq!(ToolFormat::detect("{{ messages }}"), None);
}

fn answers() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("<tool_call>".to_owned()),
        Just("</tool_call>".to_owned()),
        Just("<tool_".to_owned()),
        Just("{\"name\": \"bash\", \"arguments\": {\"command\": \"é\n\"}}".to_owned()),
        Just("\n".to_owned()),
        Just(" ".to_owned()),
        "[a-c<>/é\"{}]{0,4}",
    ];
    prop::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

proptest! {
    /// One text, any cutting, one result.
    #[test]
    fn the_result_does_not_depend_on_the_chunking(answer in answers(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)) {
        let boundaries: Vec<usize> = answer.char_indices().map(|(at, _)| at).chain([answer.len()]).collect();
        let mut at: Vec<usize> = cuts.iter().map(|cut| boundaries[cut.index(boundaries.len())]).collect();
        at.extend([0, answer.len()]);
        at.sort_unstable();
        let chunks: Vec<&str> = at.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect();
        let each: Vec<&str> = boundaries.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect();
        let whole = parse(&[&answer]);
        prop_assert_eq!(&parse(&chunks), &whole);
        prop_assert_eq!(&parse(&each), &whole);
    }

    /// Nothing but the format's own tags and space is ever lost.
    #[test]
    fn text_is_never_dropped(answer in answers()) {
        let mut kept = String::new();
        for event in parse(&[&answer]) {
            match event {
                ParseEvent::Text(text) => kept.push_str(&text),
                ParseEvent::Call(_) => kept.push_str("<tool_call>{\"name\": \"bash\", \"arguments\": {\"command\": \"é\n\"}}</tool_call>"),
                ParseEvent::Malformed { .. } => {}
            }
        }
        let bare = |text: &str| text.replace("</tool_call>", "").split_whitespace().collect::<String>();
        prop_assert_eq!(bare(&kept), bare(&answer));
    }
}
