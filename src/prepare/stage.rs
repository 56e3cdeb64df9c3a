//! Puts task folders in place, many at a time: written to a hidden folder, made durable together, renamed.

use std::path::{Path, PathBuf};

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;

use super::PrepareError;
use crate::task::sync_folder;

/// Folders that are made durable together.
const BATCH: usize = 1000;

/// One file of a folder.
pub(super) struct StagedFile {
    pub(super) path: String,
    pub(super) content: String,
    pub(super) executable: bool,
}

/// Writes folders below `out`, whole or not at all.
pub(super) struct Stage {
    out: PathBuf,
    hidden: PathBuf,
    waiting: Vec<String>,
}

impl Stage {
    /// Begins; removes what a killed process left behind.
    pub(super) fn new(out: &Path) -> Result<Self, PrepareError> {
        fs::create_dir_all(out)?;
        for entry in fs::read_dir(out)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name
                .strip_prefix(".prepare-")
                .and_then(|rest| rest.strip_suffix(".tmp"));
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let hidden = out.join(format!(".prepare-{}.tmp", std::process::id()));
        if hidden.exists() {
            fs::remove_dir_all(&hidden)?;
        }
        fs::create_dir_all(&hidden)?;
        Ok(Self {
            out: out.to_owned(),
            hidden,
            waiting: Vec::new(),
        })
    }

    /// Writes a folder; `folders` are made even where they hold no file.
    pub(super) fn add(&mut self, name: &str, folders: &[&str], files: &[StagedFile]) -> Result<(), PrepareError> {
        let root = self.hidden.join(name);
        fs::create_dir(&root)?;
        for folder in folders {
            fs::create_dir_all(root.join(folder))?;
        }
        for file in files {
            let path = root.join(&file.path);
            let mut options = fs::OpenOptions::new();
            options
                .write(true)
                .create_new(true)
                .mode(if file.executable { 0o755 } else { 0o644 });
            let mut open = options.open(&path);
            if matches!(&open, Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
                path.parent().map_or(Ok(()), fs::create_dir_all)?;
                open = options.open(&path);
            }
            std::io::Write::write_all(&mut open?, file.content.as_bytes())?;
        }
        self.waiting.push(name.to_owned());
        if self.waiting.len() >= BATCH {
            self.place()
        } else {
            Ok(())
        }
    }

    /// Makes what waits durable, and renames it into place over what is there.
    fn place(&mut self) -> Result<(), PrepareError> {
        // One sync of the file system costs less than one a file.
        let folder = fs::File::open(&self.hidden)?;
        nix::unistd::syncfs(folder.file()).map_err(std::io::Error::from)?;
        for name in self.waiting.drain(..) {
            let target = self.out.join(&name);
            if target.exists() {
                // A folder cannot be renamed over one with content.
                fs::rename(&target, self.hidden.join(format!("{name}.replaced")))?;
            }
            fs::rename(self.hidden.join(&name), &target)?;
        }
        sync_folder(&self.out)?;
        Ok(())
    }

    /// Ends: everything is in place and durable.
    pub(super) fn finish(mut self) -> Result<(), PrepareError> {
        self.place()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        // Whatever is left in it was not asked to be kept.
        let _ = fs::remove_dir_all(&self.hidden);
    }
}
