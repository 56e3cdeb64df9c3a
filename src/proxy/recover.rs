//! Rebuilds a session from its call log: the log is the ground truth, segments can always be made again.

use std::collections::HashMap;
use std::path::Path;

use super::call_log::{Begin, Line, SCHEMA};
use super::recording::Recording;
use super::{ProxyError, SessionCapture};
use crate::config::{BuilderName, CaptureScope};
use crate::inference::EngineUsage;

/// A session, read back.
#[derive(Debug)]
pub struct RecoveredSession {
    /// The task worked on.
    pub task_id: String,
    /// Which episode of its group.
    pub episode_index: u32,
    /// Calls that began and never ended: their process did.
    pub unfinished_calls: u32,
    /// The engine's own count over all calls.
    pub usage: EngineUsage,
    recording: Recording,
}

impl RecoveredSession {
    /// Segments, audit, ledger and transcript. Times, and what was refused, are not in the log.
    pub fn capture(&self, scope: CaptureScope, builder: BuilderName) -> SessionCapture {
        self.recording.capture(scope, builder)
    }
}

/// Reads a call log. A last line without its line break was being written when the process ended; it is left
/// out. Anything else that cannot be read is an error that names the line.
pub fn recover(path: &Path) -> Result<RecoveredSession, ProxyError> {
    let bad = |line: usize, reason: String| ProxyError::BadCallLog {
        path: path.to_owned(),
        line,
        reason,
    };
    let text = std::fs::read(path).map_err(|error| bad(0, error.to_string()))?;
    let mut session = RecoveredSession {
        task_id: String::new(),
        episode_index: 0,
        unfinished_calls: 0,
        usage: EngineUsage::default(),
        recording: Recording::default(),
    };
    let mut open: HashMap<u32, Begin> = HashMap::new();
    let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
    for (index, line) in text[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let number = index + 1;
        let line: Line = serde_json::from_slice(line).map_err(|error| bad(number, error.to_string()))?;
        match line {
            Line::Session {
                schema_version,
                task_id,
                episode_index,
                ..
            } => {
                if schema_version != SCHEMA {
                    return Err(bad(
                        number,
                        format!("schema version {schema_version}, expected {SCHEMA}"),
                    ));
                }
                (session.task_id, session.episode_index) = (task_id, episode_index);
            }
            Line::Begin(begin) => {
                session.recording.restore_conversation(&begin);
                open.insert(begin.call, begin);
            }
            Line::End(end) => {
                let begin = open
                    .remove(&end.call)
                    .ok_or_else(|| bad(number, format!("call {} ends, but has not begun", end.call)))?;
                let prompt = session.recording.prompt(&begin).ok_or_else(|| {
                    bad(
                        number,
                        format!(
                            "the {} tokens before call {} are not recorded",
                            begin.base_len, end.call
                        ),
                    )
                })?;
                session
                    .recording
                    .record(&prompt, begin, &end)
                    .map_err(|error| bad(number, error.to_string()))?;
                session.usage.prompt += end.usage.prompt;
                session.usage.cached += end.usage.cached;
                session.usage.completion += end.usage.completion;
            }
        }
    }
    session.unfinished_calls = open.len() as u32;
    Ok(session)
}
