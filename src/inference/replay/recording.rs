//! The recording on disk: one JSON object an episode, one episode a line.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::inference::RequestOrigin;

/// Stands for every task that is not recorded under its own name.
const ANY_TASK: &str = "*";

/// One recorded answer of the model.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedTurn {
    /// Its text; absent or `null` is none.
    #[serde(default, deserialize_with = "nullable")]
    pub content: String,
    /// Its tool calls, in order.
    #[serde(default)]
    pub tool_calls: Vec<RecordedCall>,
    /// The whole answer as the policy writes it, up to its end-of-turn token, in place of the two above: thinking,
    /// a malformed call.
    #[serde(default)]
    pub raw: Option<String>,
}

/// Answers to a conversation beside the main one: a title, a sub-agent, a summary.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SideScript {
    /// A text by which its requests are known: it stands in their first or last messages.
    pub when: String,
    /// Its answers; a single one answers whatever turn is asked for.
    pub turns: Vec<RecordedTurn>,
}

/// Everything recorded of one episode.
#[derive(Debug, PartialEq)]
pub struct RecordedEpisode {
    /// Answers of the main conversation.
    pub turns: Vec<RecordedTurn>,
    /// Of others; the first whose text fits stands in for the main one.
    pub side: Vec<SideScript>,
}

impl RecordedEpisode {
    /// The answer that is due.
    ///
    /// # Errors
    /// The number of turns that the script in question has, where it has not that many.
    pub fn answer(&self, origin: &RequestOrigin) -> Result<&RecordedTurn, usize> {
        let side = self.side.iter().find(|script| origin.text.contains(&script.when));
        let turns = match side {
            Some(SideScript { turns, .. }) if turns.len() == 1 => return Ok(&turns[0]),
            Some(script) => &script.turns,
            None => &self.turns,
        };
        turns.get(origin.turn as usize).ok_or(turns.len())
    }
}

/// One recorded tool call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedCall {
    /// The tool.
    pub name: String,
    /// Its arguments, in the order in which they are written out.
    pub arguments: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EpisodeLine {
    instance_id: String,
    #[serde(default)]
    episode: Option<u32>,
    turns: Vec<RecordedTurn>,
    #[serde(default)]
    side: Vec<SideScript>,
}

fn nullable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// A recording that cannot be played.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// The file.
    #[error("recording `{}` could not be read", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A line.
    #[error("recording `{}`, line {line}: {reason}", file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// There is nothing in it.
    #[error("recording `{}` holds no episode", .0.display())]
    Empty(PathBuf),
}

/// The number an episode is recorded under, if any, and what it holds.
type NumberedEpisode = (Option<u32>, Arc<RecordedEpisode>);

/// All recorded episodes, by task.
#[derive(Debug)]
pub struct Recording {
    file: PathBuf,
    has_side: bool,
    episodes: HashMap<String, Vec<NumberedEpisode>>,
}

impl Recording {
    /// Reads the whole file.
    ///
    /// # Errors
    /// Naming file and line: not an episode, or an episode number twice for one task.
    pub fn load(file: &Path) -> Result<Self, RecordingError> {
        let text = fs_err::read_to_string(file).map_err(|source| RecordingError::Read {
            file: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    fn parse(file: &Path, text: &str) -> Result<Self, RecordingError> {
        let mut recording = Self {
            file: file.to_owned(),
            has_side: false,
            episodes: HashMap::new(),
        };
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            recording.add(line).map_err(|reason| RecordingError::Line {
                file: file.to_owned(),
                line: index + 1,
                reason,
            })?;
        }
        if recording.episodes.is_empty() {
            return Err(RecordingError::Empty(file.to_owned()));
        }
        Ok(recording)
    }

    fn add(&mut self, line: &str) -> Result<(), String> {
        let episode: EpisodeLine = serde_json::from_str(line).map_err(|error| error.to_string())?;
        if episode.turns.is_empty() || episode.side.iter().any(|script| script.turns.is_empty()) {
            return Err(format!("the episode of `{}` has no turns", episode.instance_id));
        }
        self.has_side |= !episode.side.is_empty();
        let known = self.episodes.entry(episode.instance_id).or_default();
        if episode.episode.is_some() && known.iter().any(|(number, _)| *number == episode.episode) {
            return Err(format!(
                "episode {} of this task is recorded twice",
                episode.episode.unwrap_or_default()
            ));
        }
        let held = RecordedEpisode {
            turns: episode.turns,
            side: episode.side,
        };
        known.push((episode.episode, Arc::new(held)));
        Ok(())
    }

    /// Where it was read from.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Whether any episode holds answers to side conversations.
    pub fn has_side(&self) -> bool {
        self.has_side
    }

    /// Tasks with at least one episode.
    pub fn tasks(&self) -> usize {
        self.episodes.len()
    }

    /// The episode of this task, or what is recorded for any: the one of this number where one is recorded under it; else the recorded ones are cycled through
    /// in the order of the file.
    pub fn episode(&self, task: &str, index: u32) -> Option<&Arc<RecordedEpisode>> {
        let known = self.episodes.get(task).or_else(|| self.episodes.get(ANY_TASK))?;
        known
            .iter()
            .find(|(number, _)| *number == Some(index))
            .or_else(|| known.get(index as usize % known.len()))
            .map(|(_, episode)| episode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Recording, RecordingError> {
        Recording::parse(Path::new("demo.jsonl"), text)
    }

    fn says(recording: &Recording, task: &str, index: u32) -> String {
        recording.episode(task, index).unwrap().turns[0].content.clone()
    }

    #[test]
    fn recordings_are_cycled_and_numbered_ones_come_first() {
        let recording = parse(concat!(
            "{\"instance_id\":\"a\",\"turns\":[{\"content\":\"one\"}]}\n\n",
            "{\"instance_id\":\"a\",\"turns\":[{\"content\":\"two\",\"tool_calls\":[]}]}\n",
            "{\"instance_id\":\"b\",\"episode\":5,\"turns\":[{\"content\":\"five\"}]}\n",
            "{\"instance_id\":\"b\",\"episode\":0,\"turns\":[{\"content\":null,\"tool_calls\":[{\"name\":\"bash\",",
            "\"arguments\":{\"command\":\"ls\"}}]}]}",
        ))
        .unwrap();
        assert_eq!([0, 1, 2].map(|i| says(&recording, "a", i)), ["one", "two", "one"]);
        assert_eq!([0, 5, 2].map(|i| says(&recording, "b", i)), ["", "five", "five"]);
        assert_eq!(
            recording.episode("b", 0).unwrap().turns[0].tool_calls[0].arguments["command"],
            "ls"
        );
        assert!(recording.episode("c", 0).is_none());
        let any = parse("{\"instance_id\":\"*\",\"turns\":[{\"content\":\"any\"}]}").unwrap();
        assert_eq!(says(&any, "c", 3), "any");
        assert_eq!(recording.tasks(), 2);
    }

    #[test]
    fn side_conversations_are_known_by_their_text() {
        let recording = parse(concat!(
            "{\"instance_id\":\"a\",\"turns\":[{\"content\":\"one\"}],\"side\":[",
            "{\"when\":\"title\",\"turns\":[{\"content\":\"T\"}]},",
            "{\"when\":\"SUB\",\"turns\":[{\"content\":\"s0\"},{\"raw\":\"<tool_call>{\"}]}]}",
        ))
        .unwrap();
        assert!(recording.has_side());
        let episode = recording.episode("a", 0).unwrap();
        let answer = |text: &str, turn| {
            let origin = RequestOrigin {
                text: text.to_owned(),
                turn,
                ..RequestOrigin::default()
            };
            episode.answer(&origin).cloned()
        };
        assert_eq!(answer("mend it", 0).unwrap().content, "one");
        assert_eq!(answer("mend it", 1), Err(1));
        assert_eq!(answer("a title, please", 7).unwrap().content, "T");
        assert_eq!(answer("SUB task", 1).unwrap().raw.as_deref(), Some("<tool_call>{"));
        assert_eq!(answer("SUB task", 2), Err(2));
    }

    #[test]
    fn a_bad_line_is_located() {
        let good = "{\"instance_id\":\"a\",\"episode\":1,\"turns\":[{\"content\":\"x\"}]}\n";
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert!(error(&format!("{good}{{\"instance_id\":1}}")).starts_with("recording `demo.jsonl`, line 2:"));
        assert!(error(&format!("{good}{good}")).contains("line 2: episode 1 of this task is recorded twice"));
        assert!(error("{\"instance_id\":\"a\",\"turns\":[]}").contains("has no turns"));
        assert!(error("{\"instance_id\":\"a\",\"turns\":[{\"text\":\"x\"}]}").contains("unknown field `text`"));
        assert_eq!(error("\n"), "recording `demo.jsonl` holds no episode");
    }
}
