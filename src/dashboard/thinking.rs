//! How much of what the policy wrote was thinking: characters of thinking over those of thinking, text and calls with
//! their arguments, of a sample of trials.

use std::path::PathBuf;

use serde_json::Value;

use super::trials::Trial;
use crate::shard::ShardReader;

/// Trials that are read.
const SAMPLE: usize = 16;

/// `None` where nothing was written, or none of it can be read.
pub(super) fn share(trials: &[&Trial], files: &[PathBuf]) -> Option<f64> {
    let (mut thought, mut all) = (0, 0);
    for trial in trials.iter().step_by(trials.len().div_ceil(SAMPLE).max(1)) {
        let file = files.get(trial.file as usize)?;
        let reader = ShardReader::open(&[file]).and_then(|reader| reader.with_columns(&["messages"]));
        // A shard that cannot be read is told with the list of trials.
        let _ = reader.and_then(|reader| {
            reader.each_batch(file, 1, (trial.row as usize, Some(1)), |rows| {
                for row in rows {
                    let (thinking, response) = of(&row.messages);
                    thought += thinking;
                    all += thinking + response;
                }
            })
        });
    }
    (all > 0).then(|| thought as f64 / all as f64)
}

/// Characters of thinking, and of everything else that the policy wrote.
fn of(messages: &str) -> (usize, usize) {
    let messages: Vec<Value> = serde_json::from_str(messages).unwrap_or_default();
    let (mut thinking, mut response) = (0, 0);
    for message in messages.iter().filter(|message| message["role"] == "assistant") {
        let text = |key: &str| message[key].as_str().map_or(0, |text| text.chars().count());
        thinking += text("reasoning_content");
        response += text("content");
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            response += call["function"]["name"].as_str().map_or(0, str::len);
            let arguments = &call["function"]["arguments"];
            response += arguments
                .as_str()
                .map_or_else(|| arguments.to_string().chars().count(), |text| text.chars().count());
        }
    }
    (thinking, response)
}

#[cfg(test)]
mod tests {
    #[test]
    fn calls_count_as_response() {
        let messages = r#"[{"role":"user","content":"a long question"},
            {"role":"assistant","reasoning_content":"hmm","content":"ok","tool_calls":[{"function":{"name":"sh","arguments":{"c":1}}}]}]"#;
        assert_eq!(super::of(messages), (3, 2 + 2 + 7));
        assert_eq!(super::of("no json"), (0, 0));
    }
}
