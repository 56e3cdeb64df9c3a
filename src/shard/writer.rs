//! Writes episodes as shards: streamed into a temporary file, durable once `flush` or `push` returns its path.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;

use super::row::{encode, schema};
use super::{ShardError, ShardMeta, episode_rows, verify_row};
use crate::task::sync_folder;
use crate::trajectory::Episode;

/// When a file is closed although its step goes on.
#[derive(Debug, Clone, Copy)]
pub struct WriterOptions {
    /// A file is closed once it holds about so many bytes.
    pub target_bytes: usize,
    /// A file is due once its first row has waited so long.
    pub flush_after: Duration,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            target_bytes: 128 << 20,
            flush_after: Duration::from_mins(1),
        }
    }
}

/// Encoded bytes after which a row group is closed, which bounds the writer's memory.
const ROW_GROUP_BYTES: usize = 32 << 20;

struct OpenShard {
    writer: ArrowWriter<std::fs::File>,
    temporary: PathBuf,
    path: PathBuf,
    since: Instant,
    episodes: usize,
}

/// Writes episodes below `root`, as `<root>/<step>/part-<writer>-<seq>.parquet`.
///
/// Rows are durable, and may be acknowledged, once the path of their file was returned; rows of files that
/// are still open are lost with the process. One live writer a name and root.
pub struct ShardWriter {
    root: PathBuf,
    name: String,
    meta: ShardMeta,
    options: WriterOptions,
    open: BTreeMap<i32, OpenShard>,
    next: HashMap<i32, u32>,
}

impl ShardWriter {
    /// A writer that has not written yet; `name` must be ASCII letters, digits, `_` or `-`.
    pub fn new(root: &Path, name: &str, meta: ShardMeta, options: WriterOptions) -> Result<Self, ShardError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || !name.chars().all(fits) {
            let reason = format!("writer name `{name}` must be ASCII letters, digits, `_` or `-`");
            return Err(ShardError::Write {
                path: root.to_owned(),
                reason,
            });
        }
        fs::create_dir_all(root)?;
        let (root, name) = (root.to_owned(), name.to_owned());
        Ok(Self {
            root,
            name,
            meta,
            options,
            open: BTreeMap::new(),
            next: HashMap::new(),
        })
    }

    /// Adds an episode, after a check of its rows; returns the files that this completed.
    pub fn push(&mut self, episode: &Episode) -> Result<Vec<PathBuf>, ShardError> {
        let rows = episode_rows(episode);
        rows.iter().try_for_each(verify_row)?;
        let batch = encode(&rows).map_err(|error| self.failed(&self.root, &error))?;
        if !self.open.contains_key(&episode.step) {
            let shard = self.start(episode.step)?;
            self.open.insert(episode.step, shard);
        }
        let mut full = false;
        if let Some(shard) = self.open.get_mut(&episode.step) {
            let failed = |error: parquet::errors::ParquetError| ShardError::Write {
                path: shard.path.clone(),
                reason: error.to_string(),
            };
            shard.writer.write(&batch).map_err(failed)?;
            shard.episodes += 1;
            if shard.writer.in_progress_size() >= ROW_GROUP_BYTES {
                shard.writer.flush().map_err(failed)?;
            }
            full = shard.writer.bytes_written() + shard.writer.in_progress_size() >= self.options.target_bytes;
        }
        if full {
            Ok(self.flush_step(episode.step)?.into_iter().collect())
        } else {
            self.flush_due()
        }
    }

    /// Adds an episode and closes all files: it is durable once this returns. Where that fails, nothing of what was not
    /// durable stays, and the same episode may be given again.
    pub fn push_durable(&mut self, episode: &Episode) -> Result<Vec<PathBuf>, ShardError> {
        let written = self.push(episode).and_then(|mut paths| {
            paths.extend(self.flush()?);
            Ok(paths)
        });
        if written.is_err() {
            self.discard();
        }
        written
    }

    /// Closes the files whose first row has waited for `flush_after`. Call it now and then.
    pub fn flush_due(&mut self) -> Result<Vec<PathBuf>, ShardError> {
        let due = self
            .open
            .iter()
            .filter(|(_, shard)| shard.since.elapsed() >= self.options.flush_after);
        let steps: Vec<i32> = due.map(|(step, _)| *step).collect();
        steps
            .into_iter()
            .filter_map(|step| self.flush_step(step).transpose())
            .collect()
    }

    /// Closes the file of a step, if one is open; at the latest when the step ends.
    pub fn flush_step(&mut self, step: i32) -> Result<Option<PathBuf>, ShardError> {
        self.open.remove(&step).map(finish).transpose()
    }

    /// Closes all files.
    pub fn flush(&mut self) -> Result<Vec<PathBuf>, ShardError> {
        std::mem::take(&mut self.open).into_values().map(finish).collect()
    }

    /// Episodes that are not durable yet.
    pub fn pending(&self) -> usize {
        self.open.values().map(|shard| shard.episodes).sum()
    }

    /// Gives up what is not durable.
    fn discard(&mut self) {
        for shard in std::mem::take(&mut self.open).into_values() {
            // Not acknowledged, so nobody counts on it.
            let _ = fs::remove_file(&shard.temporary);
        }
    }

    #[expect(clippy::unused_self, reason = "reads as the other errors of the writer")]
    fn failed(&self, path: &Path, error: &dyn std::fmt::Display) -> ShardError {
        ShardError::Write {
            path: path.to_owned(),
            reason: error.to_string(),
        }
    }

    fn start(&mut self, step: i32) -> Result<OpenShard, ShardError> {
        let folder = self.root.join(format!("{step:06}"));
        fs::create_dir_all(&folder)?;
        let seq = match self.next.get(&step) {
            Some(seq) => *seq,
            None => self.survey(&folder)?,
        };
        self.next.insert(step, seq + 1);
        let name = format!("part-{}-{seq:06}.parquet", self.name);
        let (path, temporary) = (folder.join(&name), folder.join(format!(".{name}.tmp")));
        let file = fs::File::create(&temporary)?.into_parts().0;
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_key_value_metadata(Some(self.meta.to_key_values()))
            .build();
        let writer =
            ArrowWriter::try_new(file, schema(), Some(properties)).map_err(|error| self.failed(&path, &error))?;
        Ok(OpenShard {
            writer,
            temporary,
            path,
            since: Instant::now(),
            episodes: 0,
        })
    }

    /// The first free number in a folder; removes what a killed writer of this name left behind.
    fn survey(&self, folder: &Path) -> Result<u32, ShardError> {
        let (done, left) = (format!("part-{}-", self.name), format!(".part-{}-", self.name));
        let mut next = 0;
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(&left) {
                fs::remove_file(entry.path())?;
            } else if let Some(number) = name.strip_prefix(&done).and_then(|rest| rest.strip_suffix(".parquet")) {
                next = next.max(number.parse::<u32>().map_or(0, |number| number + 1));
            }
        }
        Ok(next)
    }
}

/// Makes a file durable. One that could not be is removed: its rows may be written again.
fn finish(shard: OpenShard) -> Result<PathBuf, ShardError> {
    let (temporary, path) = (shard.temporary.clone(), shard.path.clone());
    let finished = made_durable(shard);
    if finished.is_err() {
        for left in [temporary, path] {
            if left.is_file() {
                let _ = fs::remove_file(left);
            }
        }
    }
    finished
}

fn made_durable(shard: OpenShard) -> Result<PathBuf, ShardError> {
    let OpenShard {
        writer,
        temporary,
        path,
        ..
    } = shard;
    let failed = |error: parquet::errors::ParquetError| ShardError::Write {
        path: path.clone(),
        reason: error.to_string(),
    };
    let file = writer.into_inner().map_err(failed)?;
    file.sync_all().map_err(|source| ShardError::Write {
        path: path.clone(),
        reason: source.to_string(),
    })?;
    fs::rename(&temporary, &path)?;
    if let Some(folder) = path.parent() {
        sync_folder(folder)?;
        // The step's own folder may be new.
        folder.parent().map_or(Ok(()), sync_folder)?;
    }
    Ok(path)
}

impl Drop for ShardWriter {
    fn drop(&mut self) {
        self.discard();
    }
}
