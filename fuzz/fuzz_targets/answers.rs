//! What a policy writes, in any format and cut anywhere: the same answer as in one piece, and no text is lost.
//!
//! The first byte picks the format, the second how thinking is written, the third where the text is cut.
#![no_main]

use lego::prompt::{AnswerEvent, AnswerParser, Message, Thinking, ToolFormat};
use libfuzzer_sys::fuzz_target;

fn parse(format: ToolFormat, thinking: Thinking, pieces: &[&str]) -> (Message, u32, String) {
    let mut parser = AnswerParser::new(Some(format), thinking, || "id".to_owned());
    let mut events: Vec<AnswerEvent> = pieces.iter().flat_map(|piece| parser.push(piece)).collect();
    events.extend(parser.finish());
    let text = events.iter().filter_map(|event| match event {
        AnswerEvent::Text(text) => Some(text.as_str()),
        _ => None,
    });
    (parser.message().clone(), parser.malformed(), text.collect())
}

fuzz_target!(|data: &[u8]| {
    let [format, thinking, every, text @ ..] = data else {
        return;
    };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let formats: Vec<ToolFormat> = ToolFormat::all().collect();
    let format = formats[usize::from(*format) % formats.len()];
    let thinking = [Thinking::None, Thinking::Tagged, Thinking::Opened][usize::from(*thinking) % 3];
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let cut = rest
            .char_indices()
            .map(|(at, _)| at)
            .find(|&at| at > usize::from(*every))
            .unwrap_or(rest.len());
        pieces.push(&rest[..cut]);
        rest = &rest[cut..];
    }
    let whole = parse(format, thinking, &[text]);
    assert_eq!(
        parse(format, thinking, &pieces),
        whole,
        "{format:?}, {thinking:?}, cut behind {every} bytes"
    );
    assert_eq!(whole.0.content, whole.2, "what is shown is what is recorded");
});
