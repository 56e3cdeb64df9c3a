//! Rebuilds a session from its call log: the log is the ground truth, segments can always be made again.

use std::collections::HashMap;
use std::path::Path;

use super::call_log::{Begin, End, Line, RowsOf, SCHEMA};
use super::recording::Recording;
use super::{ProxyError, SessionCapture};
use crate::config::{BuilderName, CaptureScope};
use crate::inference::EngineUsage;
use crate::trajectory::TokenId;

/// A session, read back.
#[derive(Debug, Default)]
pub struct RecoveredSession {
    /// The task worked on.
    pub task_id: String,
    /// Which episode of its group.
    pub episode_index: u32,
    /// Calls that began and never ended: their process did.
    pub unfinished_calls: u32,
    /// The engine's own count over all calls.
    pub usage: EngineUsage,
    /// How its calls were made rows, where the log says it.
    rows_of: Option<RowsOf>,
    pub(super) recording: Recording,
}

impl RecoveredSession {
    /// The capture that its rows were made of; `otherwise` says how, where the log does not.
    pub fn as_captured(&self, otherwise: (CaptureScope, BuilderName)) -> SessionCapture {
        let (scope, builder) = self.rows_of.map_or(otherwise, |rows| (rows.train, rows.builder));
        self.capture(scope, builder)
    }

    /// Segments, audit, ledger and transcript. Times, and what was refused, are not in the log.
    pub fn capture(&self, scope: CaptureScope, builder: BuilderName) -> SessionCapture {
        self.recording.capture(scope, builder)
    }
}

/// Reads the sessions of a call log, in order: a trial that was tried again has one for each try. A last line without its line break was being written when the process ended; it is left
/// out. Anything else that cannot be read is an error that names the line.
pub fn recover_all(path: &Path) -> Result<Vec<RecoveredSession>, ProxyError> {
    let mut last = RecoveredSession::default();
    let mut sessions = last.read(path, |_, _, _, _| {})?;
    sessions.push(last);
    Ok(sessions)
}

/// The last session of a call log.
pub fn recover(path: &Path) -> Result<RecoveredSession, ProxyError> {
    let mut session = RecoveredSession::default();
    session.read(path, |_, _, _, _| {})?;
    Ok(session)
}

impl RecoveredSession {
    /// Takes every call of a log's last session in, and gives the sessions before it. `each` is shown a call, its
    /// whole prompt and what came before it.
    pub(super) fn read(
        &mut self,
        path: &Path,
        mut each: impl FnMut(&Recording, &Begin, &[TokenId], &End),
    ) -> Result<Vec<Self>, ProxyError> {
        let mut earlier = Vec::new();
        let bad = |line: usize, reason: String| ProxyError::BadCallLog {
            path: path.to_owned(),
            line,
            reason,
        };
        let text = std::fs::read(path).map_err(|error| bad(0, error.to_string()))?;
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
                    capture,
                    ..
                } => {
                    if schema_version != SCHEMA {
                        return Err(bad(
                            number,
                            format!("schema version {schema_version}, expected {SCHEMA}"),
                        ));
                    }
                    if index > 0 {
                        self.unfinished_calls = open.len() as u32;
                        open.clear();
                        earlier.push(std::mem::take(self));
                    }
                    (self.task_id, self.episode_index) = (task_id, episode_index);
                    self.rows_of = capture;
                }
                Line::Begin(begin) => {
                    self.recording.restore_conversation(&begin);
                    open.insert(begin.call, begin);
                }
                Line::End(end) => {
                    let begin = open
                        .remove(&end.call)
                        .ok_or_else(|| bad(number, format!("call {} ends, but has not begun", end.call)))?;
                    let prompt = self.recording.prompt(&begin).ok_or_else(|| {
                        bad(
                            number,
                            format!(
                                "the {} tokens before call {} are not recorded",
                                begin.base_len, end.call
                            ),
                        )
                    })?;
                    each(&self.recording, &begin, &prompt, &end);
                    self.recording
                        .record(&prompt, begin, &end)
                        .map_err(|error| bad(number, error.to_string()))?;
                    self.usage.prompt += end.usage.prompt;
                    self.usage.cached += end.usage.cached;
                    self.usage.completion += end.usage.completion;
                }
                Line::Seen { call, seen } => {
                    self.recording.note_seen(call, seen);
                }
            }
        }
        self.unfinished_calls = open.len() as u32;
        Ok(earlier)
    }
}
