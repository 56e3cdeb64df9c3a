//! The few fields of a request that are needed, found without reading the rest: bodies are handed on as they came.

use memchr::{memchr2, memmem};
use serde_json::Value;

/// Bytes of the first message of a person by which a conversation is told from others.
const HEAD: usize = 1024;
/// Messages among which that one is looked for.
const FIRST: usize = 8;

/// What was found; slices of the body, as JSON has them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Fields<'b> {
    pub(super) stream: bool,
    pub(super) session_id: Option<&'b [u8]>,
    pub(super) prompt_cache_key: Option<&'b [u8]>,
    pub(super) user: Option<&'b [u8]>,
    /// `messages`, `input` or `prompt`.
    pub(super) said: Option<&'b [u8]>,
}

/// Looks at the keys of the outermost object. What is no JSON has no fields: the replica says what is wrong with it.
pub(super) fn fields(body: &[u8]) -> Fields<'_> {
    let mut found = Fields::default();
    let mut at = space(body, 0);
    if body.get(at) != Some(&b'{') {
        return found;
    }
    at += 1;
    loop {
        at = space(body, at);
        let Some(key_end) = string_end(body, at) else {
            return found;
        };
        let key = &body[at + 1..key_end - 1];
        at = space(body, key_end);
        if body.get(at) != Some(&b':') {
            return found;
        }
        at = space(body, at + 1);
        let Some(end) = value_end(body, at) else { return found };
        let value = &body[at..end];
        match key {
            b"stream" => found.stream = value == b"true",
            b"session_id" => found.session_id = Some(value),
            b"prompt_cache_key" => found.prompt_cache_key = Some(value),
            b"user" => found.user = Some(value),
            b"messages" | b"input" | b"prompt" => found.said = Some(value),
            _ => {}
        }
        at = space(body, end);
        if body.get(at) != Some(&b',') {
            return found;
        }
        at += 1;
    }
}

/// The text of a JSON string, or of another scalar.
pub(super) fn text(value: &[u8]) -> Option<String> {
    match serde_json::from_slice(value).ok()? {
        Value::String(text) if !text.is_empty() => Some(text),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// What a person said first in a conversation: the same in all of its turns, however clients mark and regroup what they
/// send.
pub(super) fn head(said: &[u8]) -> Option<String> {
    let mut at = space(said, 0);
    if said.get(at) != Some(&b'[') {
        return text(said).map(cut);
    }
    at += 1;
    for _ in 0..FIRST {
        at = space(said, at);
        let end = value_end(said, at)?;
        let message: Value = serde_json::from_slice(&said[at..end]).ok()?;
        if message["role"] == "user" {
            let mut text = String::new();
            texts(&message["content"], &mut text);
            if !text.is_empty() {
                return Some(cut(text));
            }
        }
        at = space(said, end);
        if said.get(at) != Some(&b',') {
            return None;
        }
        at += 1;
    }
    None
}

fn cut(mut text: String) -> String {
    let mut end = text.len().min(HEAD);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn texts(content: &Value, into: &mut String) {
    match content {
        Value::String(text) => into.push_str(text),
        Value::Array(parts) => {
            for part in parts {
                if let Some(text) = part["text"].as_str() {
                    into.push_str(text);
                }
            }
        }
        _ => {}
    }
}

/// Tokens of prompt and answer by the last `usage` in what has come.
pub(super) fn usage(answer: &[u8]) -> Option<u64> {
    let mut end = answer.len();
    while let Some(at) = memmem::rfind(&answer[..end], b"\"usage\"") {
        let value = space(answer, at + b"\"usage\"".len());
        if answer.get(value) == Some(&b':') {
            let begin = space(answer, value + 1);
            if let Some(stop) = value_end(answer, begin)
                && let Ok(usage) = serde_json::from_slice::<Value>(&answer[begin..stop])
                && let Some(tokens) = tokens(&usage)
            {
                return Some(tokens);
            }
        }
        end = at;
    }
    None
}

fn tokens(usage: &Value) -> Option<u64> {
    let number = |key: &str| usage[key].as_u64();
    number("total_tokens").or_else(|| {
        let prompt = number("prompt_tokens").or_else(|| {
            let cached = ["cache_read_input_tokens", "cache_creation_input_tokens"];
            let cached: u64 = cached.iter().filter_map(|key| number(key)).sum();
            Some(number("input_tokens")? + cached)
        })?;
        Some(prompt + number("completion_tokens").or_else(|| number("output_tokens"))?)
    })
}

fn space(body: &[u8], at: usize) -> usize {
    let blank = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\r' | b'\t');
    at + body
        .get(at..)
        .unwrap_or_default()
        .iter()
        .take_while(|byte| blank(byte))
        .count()
}

/// Behind the string that begins here.
fn string_end(body: &[u8], at: usize) -> Option<usize> {
    if body.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', body.get(at..)?)?;
        if body[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// Behind the value that begins here.
fn value_end(body: &[u8], at: usize) -> Option<usize> {
    match body.get(at)? {
        b'"' => string_end(body, at),
        b'{' | b'[' => {
            let (mut depth, mut at) = (0_usize, at);
            loop {
                match body.get(at)? {
                    b'"' => at = string_end(body, at)?,
                    b'{' | b'[' => {
                        depth += 1;
                        at += 1;
                    }
                    b'}' | b']' => {
                        depth -= 1;
                        at += 1;
                        if depth == 0 {
                            return Some(at);
                        }
                    }
                    _ => at += 1,
                }
            }
        }
        _ => {
            let rest = &body[at..];
            let end = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t'));
            Some(at + end.unwrap_or(rest.len())).filter(|end| *end > at)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn fields_are_found_wherever_they_stand() {
        let body = br#" { "model" : "m\"}{", "messages": [{"role":"user","content":"a ] } \" b"}],
            "nested": {"stream": false, "user": "no"}, "user":"me", "stream" : true, "n": 1.5e3 } "#;
        let found = fields(body);
        assert!(found.stream);
        assert_eq!(found.user, Some(br#""me""#.as_slice()));
        assert_eq!(head(found.said.unwrap()).as_deref(), Some("a ] } \" b"));
        assert_eq!((found.session_id, found.prompt_cache_key), (None, None));
        for torn in [
            "",
            "{",
            "[1]",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":[",
            "{\"a\":\"\\",
            "nonsense",
        ] {
            assert_eq!(fields(torn.as_bytes()), Fields::default(), "{torn}");
        }
    }

    #[test]
    fn the_head_of_a_conversation_is_what_a_person_said_first() {
        let plain =
            br#"[{"role":"system","content":"s"},{"role":"user","content":"fix it"},{"role":"user","content":"x"}]"#;
        let marked =
            br#"[{"role":"user","content":[{"type":"text","text":"fix it","cache_control":{"type":"ephemeral"}}]}]"#;
        assert_eq!(head(plain), head(marked));
        assert_eq!(head(br#""fix it""#), head(plain));
        assert_eq!(head(br#"[{"role":"system","content":"s"}]"#), None);
        let long = format!("[{{\"role\":\"user\",\"content\":\"{}\"}}]", "é".repeat(900));
        assert_eq!(head(long.as_bytes()).map(|text| text.len()), Some(HEAD));
    }

    #[test]
    fn the_last_usage_counts() {
        for (answer, tokens) in [
            (
                r#"{"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10}}"#,
                Some(10),
            ),
            (
                "data: {\"usage\": {\"total_tokens\": 1}}\n\ndata: {\"usage\":null}\n\n",
                Some(1),
            ),
            (
                r#"{"usage":{"input_tokens":5,"cache_read_input_tokens":90,"output_tokens":2}}"#,
                Some(97),
            ),
            (r#"{"usage":{"output_tokens":2}}"#, None),
            (r#"{"usage":{"total_"#, None),
            ("", None),
        ] {
            assert_eq!(usage(answer.as_bytes()), tokens, "{answer}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(body in prop::collection::vec(prop::sample::select(b"{}[]\",:\\ atrue1".to_vec()), 0..60)) {
            let found = fields(&body);
            found.said.and_then(head);
            usage(&body);
        }
    }
}
