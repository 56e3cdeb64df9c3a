//! The ledger file: append, fsync; a torn last line is what a crash leaves, and counts as never written.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::entry::VERSION;
use super::{LedgerEntry, LedgerError, LedgerKind, LedgerView};
use crate::trajectory::EpisodeId;

/// A ledger, open for appending. One process a ledger: the run's lock sees to that.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: fs::File,
    length: u64,
    next_seq: u64,
    view: LedgerView,
}

impl Ledger {
    /// Opens a ledger, or starts one; a torn last line is cut off.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let (entries, length) = read(path)?;
        let view = replay(path, &entries)?;
        let file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        if file.metadata()?.len() > length {
            file.file().set_len(length)?;
            file.sync_all()?;
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            length,
            next_seq: entries.len() as u64,
            view,
        })
    }

    /// The entries of a ledger, without opening it for writing; none where there is no file.
    pub fn read(path: &Path) -> Result<Vec<LedgerEntry>, LedgerError> {
        Ok(read(path)?.0)
    }

    /// What the entries of a ledger come to, without opening it for writing.
    pub fn read_view(path: &Path) -> Result<LedgerView, LedgerError> {
        replay(path, &read(path)?.0)
    }

    /// What the entries come to so far.
    pub fn view(&self) -> &LedgerView {
        &self.view
    }

    /// Position of the next entry.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Records that `update` takes these episodes. It counts once the checkpoint that holds the update is complete.
    pub fn consume(&mut self, update: u64, episodes: &[EpisodeId]) -> Result<(), LedgerError> {
        self.append(LedgerKind::Consumed, update, episodes.to_vec(), None)
    }

    /// Records that these episodes are left out for good.
    pub fn drop_episodes(&mut self, update: u64, episodes: &[EpisodeId], reason: &str) -> Result<(), LedgerError> {
        self.append(LedgerKind::Dropped, update, episodes.to_vec(), Some(reason.to_owned()))
    }

    /// Voids what updates after `update`, the last that the checkpoint holds, have consumed or dropped; returns
    /// those episodes, which are available again. Appends nothing where there is nothing to void.
    pub fn void_after(&mut self, update: u64) -> Result<Vec<EpisodeId>, LedgerError> {
        let episodes = self.view.settled_after(update);
        if !episodes.is_empty() {
            let reason = format!("resumed from the checkpoint of update {update}");
            self.append(LedgerKind::Void, update, episodes.clone(), Some(reason))?;
        }
        Ok(episodes)
    }

    fn append(
        &mut self,
        kind: LedgerKind,
        update: u64,
        episode_ids: Vec<EpisodeId>,
        reason: Option<String>,
    ) -> Result<(), LedgerError> {
        let entry = LedgerEntry {
            v: VERSION,
            seq: self.next_seq,
            kind,
            update,
            episode_ids,
            reason,
        };
        let mut seen = std::collections::HashSet::new();
        let repeated = entry.episode_ids.iter().find(|id| !seen.insert(*id));
        if let Some(episode) = repeated {
            let fate = "given twice in one entry".to_owned();
            return Err(LedgerError::Twice {
                path: self.path.clone(),
                episode: episode.0.clone(),
                fate,
            });
        }
        if let Some((episode, fate)) = self.view.conflict(&entry) {
            let (episode, fate) = (episode.0.clone(), fate.to_string());
            return Err(LedgerError::Twice {
                path: self.path.clone(),
                episode,
                fate,
            });
        }
        let mut line = serde_json::to_string(&entry).map_err(std::io::Error::from)?;
        line.push('\n');
        let written = self
            .file
            .write_all(line.as_bytes())
            .and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            // Half a line before the next one would damage the ledger.
            self.file.file().set_len(self.length)?;
            return Err(error.into());
        }
        self.length += line.len() as u64;
        self.next_seq += 1;
        self.view.apply(&entry);
        Ok(())
    }
}

/// The whole lines of a ledger, and their length in bytes.
fn read(path: &Path) -> Result<(Vec<LedgerEntry>, u64), LedgerError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(error.into()),
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    let mut entries = Vec::new();
    for (at, line) in bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate() {
        let damaged = |reason: String| LedgerError::Damaged {
            path: path.to_owned(),
            line: at + 1,
            reason,
        };
        let entry: LedgerEntry =
            serde_json::from_slice(line).map_err(|error| damaged(format!("not a ledger entry: {error}")))?;
        if entry.v != VERSION {
            return Err(damaged(format!(
                "written with version {}, this release reads {VERSION}",
                entry.v
            )));
        }
        if entry.seq != at as u64 {
            return Err(damaged(format!(
                "expected seq {at}, found {}; entries are missing or out of order",
                entry.seq
            )));
        }
        entries.push(entry);
    }
    Ok((entries, whole as u64))
}

fn replay(path: &Path, entries: &[LedgerEntry]) -> Result<LedgerView, LedgerError> {
    let mut view = LedgerView::default();
    for (at, entry) in entries.iter().enumerate() {
        if let Some((episode, fate)) = view.conflict(entry) {
            let reason = format!("episode {episode} was {fate} already");
            return Err(LedgerError::Damaged {
                path: path.to_owned(),
                line: at + 1,
                reason,
            });
        }
        view.apply(entry);
    }
    Ok(view)
}
