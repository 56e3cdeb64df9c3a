//! Whatever a policy writes and however it is cut: one result, and nothing lost.

use proptest::prelude::*;

use super::tests::{parse_as, sample};
use super::{ParseEvent, ToolFormat};

/// The marks of a format, and pieces of which its answers are made.
fn marks(format: ToolFormat) -> &'static [&'static str] {
    match format {
        ToolFormat::Hermes => &["<tool_call>", "</tool_call>"],
        ToolFormat::Qwen3Coder => &[
            "<tool_call>",
            "</tool_call>",
            "<function=bash>",
            "</function>",
            "<parameter=timeout>",
            "</parameter>",
        ],
        ToolFormat::Llama3Json => &["<|python_tag|>", "{\"name\"", ";"],
        ToolFormat::Mistral => &["[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"],
        ToolFormat::Glm => &[
            "<tool_call>",
            "</tool_call>",
            "<arg_key>",
            "</arg_key>",
            "<arg_value>",
            "</arg_value>",
        ],
        ToolFormat::KimiK2 => &[
            "<|tool_calls_section_begin|>",
            "<|tool_calls_section_end|>",
            "<|tool_call_begin|>",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
        ],
        ToolFormat::DeepseekV3 => &[
            "<｜tool▁calls▁begin｜>",
            "<｜tool▁calls▁end｜>",
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            "```json",
        ],
        ToolFormat::Pythonic => &["<|python_start|>", "<|python_end|>", "bash(", "command='"],
    }
}

fn answers() -> impl Strategy<Value = (ToolFormat, String)> {
    let formats: Vec<ToolFormat> = ToolFormat::all().collect();
    prop::sample::select(formats).prop_flat_map(|format| {
        let mark = prop::sample::select(marks(format));
        let piece = prop_oneof![
            3 => mark.clone().prop_map(str::to_owned),
            1 => (mark, any::<prop::sample::Index>()).prop_map(|(mark, at)| {
                let ends: Vec<usize> = mark.char_indices().map(|(at, _)| at).collect();
                mark[..ends[at.index(ends.len())]].to_owned()
            }),
            3 => Just(sample(format).0.to_owned()),
            1 => prop::sample::select(vec!["\n", " ", "{}", ";", "A\n"]).prop_map(str::to_owned),
            2 => "[a-c<>/é\"'{}()=,\\[\\]]{0,4}",
        ];
        prop::collection::vec(piece, 0..8).prop_map(move |pieces| (format, pieces.concat()))
    })
}

/// What is left of a text without space and the marks of its format.
fn bare(format: ToolFormat, text: &str) -> String {
    let mut text = text.to_owned();
    for mark in marks(format) {
        text = text.replace(mark, "");
    }
    text.split_whitespace().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// One text, any cutting, one result: at every place, everywhere, and anyhow.
    #[test]
    fn the_result_does_not_depend_on_the_chunking(
        (format, answer) in answers(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12)
    ) {
        let boundaries: Vec<usize> = answer.char_indices().map(|(at, _)| at).chain([answer.len()]).collect();
        let whole = parse_as(format, &[&answer]);
        for &at in &boundaries {
            prop_assert_eq!(&parse_as(format, &[&answer[..at], &answer[at..]]), &whole, "{:?} at {}", format, at);
        }
        let mut at: Vec<usize> = cuts.iter().map(|cut| boundaries[cut.index(boundaries.len())]).collect();
        at.extend([0, answer.len()]);
        at.sort_unstable();
        let chunks: Vec<&str> = at.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect();
        let each: Vec<&str> = boundaries.windows(2).map(|pair| &answer[pair[0]..pair[1]]).collect();
        prop_assert_eq!(&parse_as(format, &chunks), &whole);
        prop_assert_eq!(&parse_as(format, &each), &whole);
    }

    /// Nothing but the format's own marks and space is ever lost.
    #[test]
    fn text_is_never_dropped((format, answer) in answers()) {
        let (written, meant) = sample(format);
        let mut kept = String::new();
        for event in parse_as(format, &[&answer]) {
            match event {
                ParseEvent::Text(text) => kept.push_str(&text),
                call @ ParseEvent::Call(_) => {
                    // Pieces can make up calls of their own; what those are made of is not known here.
                    prop_assume!(call == meant);
                    kept.push_str(written);
                }
                ParseEvent::Malformed { .. } => {}
            }
        }
        prop_assert_eq!(bare(format, &kept), bare(format, &answer));
    }
}
