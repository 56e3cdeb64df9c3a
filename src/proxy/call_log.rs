//! `calls.jsonl`: the ground truth of a session, one line when a call begins and one when it ends.
//!
//! Lines are written before the answer is given out, so that the end of this process loses no finished call,
//! and reach the disk in batches. The log is append-only; nothing in it is ever changed.

use std::borrow::Cow;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::ProxyError;
use crate::config::{BuilderName, CaptureScope};
use crate::inference::EngineUsage;
use crate::prompt::Message;
use crate::trajectory::{ConversationId, FinishReason, RoutedRows, SamplingParams, TokenId, VersionSpan};

/// Logs of all sessions that wait for the disk at a time.
static AT_THE_DISK: Semaphore = Semaphore::const_new(8);

/// Version of the lines.
pub(super) const SCHEMA: u32 = 1;

/// Longest time between a line and its being on disk.
const SYNC_DELAY: Duration = Duration::from_millis(200);

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Line {
    /// The first one.
    Session {
        schema_version: u32,
        task_id: String,
        episode_index: u32,
        at: Timestamp,
        /// How its calls were made rows; logs of earlier versions do not say.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        capture: Option<RowsOf>,
    },
    Begin(Begin),
    End(Box<End>),
    /// Whether a client was there for the end of an ended call's answer, where that is not as it was before; at first,
    /// it was.
    Seen {
        call: u32,
        seen: bool,
    },
}

/// How calls become rows, as run.toml says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RowsOf {
    pub(super) train: CaptureScope,
    pub(super) builder: BuilderName,
}

/// A call begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Begin {
    /// Counted from 0 within the session.
    pub(super) call: u32,
    pub(super) at: Timestamp,
    /// The dialect, as shards name it.
    #[serde(default)]
    pub(super) endpoint: Cow<'static, str>,
    /// SHA-256 of the request's body.
    pub(super) digest: String,
    pub(super) conversation: ConversationId,
    /// The call whose answer it continues, decided by messages.
    pub(super) parent: Option<u32>,
    /// The call whose tokens the prompt begins with, and how many those are; `ids` is the rest.
    pub(super) base: Option<u32>,
    pub(super) base_len: usize,
    pub(super) ids: Vec<TokenId>,
    /// What the agent added behind the parent's answer.
    pub(super) new: Vec<Message>,
    /// Where a conversation begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tools: Option<Vec<Value>>,
    /// The call whose answer this one replaces, if it succeeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) replaces: Option<u32>,
    /// Whether the prompt came as it is, without a template.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) raw: bool,
    pub(super) sampling: SamplingParams,
    pub(super) max_tokens: u32,
}

/// A call ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct End {
    pub(super) call: u32,
    pub(super) at: Timestamp,
    pub(super) ids: Vec<TokenId>,
    pub(super) logprobs: Option<Vec<f32>>,
    pub(super) versions: Vec<VersionSpan>,
    /// Experts that positions went through, prompt and answer counted together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) routing: Vec<RoutedRows>,
    /// What the template emits after the answer.
    pub(super) tail: Vec<TokenId>,
    pub(super) finish: FinishReason,
    pub(super) usage: Usage,
    /// Tokens sampled behind a stop text.
    #[serde(default)]
    pub(super) beyond: u32,
    /// Whether a hosted API answered, which gives no token ids.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) without_ids: bool,
    pub(super) answer: Message,
    /// SHA-256 of the answer's JSON.
    pub(super) answer_digest: String,
    pub(super) parse_errors: u32,
    /// From the request to the engine's admission, and to the end.
    pub(super) queue_wait_s: f32,
    pub(super) total_s: f32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The engine's own count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Usage {
    pub(super) prompt: u32,
    pub(super) cached: u32,
    pub(super) completion: u32,
}

impl From<EngineUsage> for Usage {
    fn from(usage: EngineUsage) -> Self {
        Self {
            prompt: usage.prompt,
            cached: usage.cached,
            completion: usage.completion,
        }
    }
}

/// An open log.
#[derive(Debug)]
pub(super) struct CallLog {
    path: PathBuf,
    written: Mutex<Written>,
    sync_scheduled: AtomicBool,
}

/// The file, and what it could not take yet.
#[derive(Debug, Default)]
struct Written {
    /// Open while lines come: one that is idle holds no file.
    file: Option<File>,
    /// What comes next in it: it is written before anything else, so that the log stays whole after a full disk.
    behind: Vec<u8>,
    /// The first line, as long as it is not there.
    head: Vec<u8>,
    /// Lines that were appended.
    lines: u64,
}

impl Written {
    /// The file, which is opened where it is not; a log that has begun is not begun anew where it was taken away.
    fn open(&mut self, path: &Path) -> std::io::Result<&mut File> {
        match &mut self.file {
            Some(file) => Ok(file),
            closed => {
                let begins = !self.head.is_empty();
                let file = File::options().append(true).create(begins).open(path)?;
                Ok(closed.insert(file))
            }
        }
    }

    /// Writes what is behind; tells how much of it the file took.
    fn catch_up(&mut self, path: &Path) -> (usize, std::io::Result<()>) {
        if self.behind.is_empty() {
            return (0, Ok(()));
        }
        if let Err(error) = self.open(path) {
            return (0, Err(error));
        }
        let Some(file) = &mut self.file else {
            return (0, Err(std::io::ErrorKind::NotFound.into()));
        };
        let mut taken = 0;
        let result = loop {
            if taken == self.behind.len() {
                break Ok(());
            }
            match file.write(&self.behind[taken..]) {
                Ok(0) => break Err(std::io::ErrorKind::WriteZero.into()),
                Ok(more) => taken += more,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.behind.drain(..taken);
        (taken, result)
    }
}

impl CallLog {
    /// A log that begins with this line, behind what its file may hold already. There is no file before `begin` or the
    /// first line of a call; its folders are created.
    pub(super) fn new(path: &Path, head: &Line) -> Result<Arc<Self>, ProxyError> {
        let log = Self {
            path: path.to_owned(),
            written: Mutex::default(),
            sync_scheduled: AtomicBool::new(false),
        };
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| log.failed(error))?;
        }
        let head = log.text(head)?;
        log.lock().head = head;
        Ok(Arc::new(log))
    }

    /// Writes the first line.
    pub(super) fn begin(self: &Arc<Self>) -> Result<(), ProxyError> {
        self.write(&[], false)
    }

    /// Appends a line, and sees to it that it reaches the disk soon. Where that fails, an end is written with the next
    /// line or `sync`; of what else the file took nothing, nothing is: its call is not made. Needs a tokio runtime.
    pub(super) fn append(self: &Arc<Self>, line: &Line) -> Result<(), ProxyError> {
        self.write(&self.text(line)?, matches!(line, Line::End(_)))
    }

    fn write(self: &Arc<Self>, text: &[u8], is_kept: bool) -> Result<(), ProxyError> {
        let mut written = self.lock();
        let written = &mut *written;
        let before = written.behind.len();
        written.behind.extend_from_slice(&written.head);
        written.behind.extend_from_slice(text);
        let (taken, result) = written.catch_up(&self.path);
        if result.is_err() && taken <= before && !is_kept {
            written.behind.truncate(before - taken);
        } else {
            written.head.clear();
        }
        result.map_err(|source| self.failed(source))?;
        written.lines += 1;
        if !self.sync_scheduled.swap(true, Ordering::AcqRel) {
            let log = Arc::clone(self);
            tokio::spawn(async move {
                tokio::time::sleep(SYNC_DELAY).await;
                log.sync_scheduled.store(false, Ordering::Release);
                if let Err(error) = log.durable().await {
                    tracing::error!(%error, "call log not durable");
                }
            });
        }
        Ok(())
    }

    /// Waits until everything written is on disk, without a thread for each log that waits.
    pub(super) async fn durable(self: Arc<Self>) -> Result<(), ProxyError> {
        // It is never closed.
        let _turn = AT_THE_DISK.acquire().await;
        let log = Arc::clone(&self);
        let synced = tokio::task::spawn_blocking(move || log.sync()).await;
        synced.unwrap_or_else(|error| Err(self.failed(std::io::Error::other(error))))
    }

    /// Waits until everything written is on disk. Where nothing has come in the meantime, the file is closed.
    fn sync(&self) -> Result<(), ProxyError> {
        let (file, lines) = {
            let mut written = self.lock();
            let caught_up = written.catch_up(&self.path).1;
            caught_up.map_err(|source| self.failed(source))?;
            match &written.file {
                // Whoever closed it had waited for the disk.
                None => return Ok(()),
                Some(file) => (file.try_clone(), written.lines),
            }
        };
        file.and_then(|file| file.sync_data())
            .map_err(|source| self.failed(source))?;
        let mut written = self.lock();
        if written.lines == lines && written.behind.is_empty() {
            written.file = None;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn text(&self, line: &Line) -> Result<Vec<u8>, ProxyError> {
        let mut text = serde_json::to_vec(line).map_err(|error| self.failed(error.into()))?;
        text.push(b'\n');
        Ok(text)
    }

    fn failed(&self, source: std::io::Error) -> ProxyError {
        ProxyError::CallLog {
            path: self.path.clone(),
            source,
        }
    }
}
