//! Durable files: synced before they are named, and their folder after.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use super::error::{CheckpointError, io_error};
use crate::prompt::TOKENIZER_FILES;

/// Writes and syncs a file.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let mut file = fs_err::File::create(path).map_err(io_error("create", path))?;
    file.write_all(bytes).map_err(io_error("write", path))?;
    file.sync_all().map_err(io_error("sync", path))
}

/// Makes renames within a folder durable.
pub(super) fn sync_folder(folder: &Path) -> Result<(), CheckpointError> {
    let file = fs_err::File::open(folder).map_err(io_error("open", folder))?;
    file.sync_all().map_err(io_error("sync", folder))
}

/// Copies the tokenizer's files, synced.
pub(super) fn copy_tokenizer(from: &Path, to: &Path) -> Result<(), CheckpointError> {
    for name in TOKENIZER_FILES {
        let source = from.join(name);
        if source.is_file() {
            let bytes = fs_err::read(&source).map_err(io_error("read", &source))?;
            write_synced(&to.join(name), &bytes)?;
        }
    }
    Ok(())
}

/// Size of each file in a folder and in the folders in it, by its path from there.
pub(super) fn sizes(folder: &Path) -> Result<BTreeMap<String, u64>, CheckpointError> {
    let mut sizes = BTreeMap::new();
    for entry in fs_err::read_dir(folder).map_err(io_error("list", folder))? {
        let entry = entry.map_err(io_error("list", folder))?;
        let metadata = entry.metadata().map_err(io_error("read", &entry.path()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if metadata.is_dir() {
            let inner = self::sizes(&entry.path())?;
            sizes.extend(inner.into_iter().map(|(inner, size)| (format!("{name}/{inner}"), size)));
        } else {
            sizes.insert(name, metadata.len());
        }
    }
    Ok(sizes)
}

/// Removes a file, a link or a folder, if it is there.
pub(super) fn remove(path: &Path) -> Result<(), CheckpointError> {
    let is_folder = match fs_err::symlink_metadata(path) {
        Ok(metadata) => metadata.is_dir(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(io_error("read", path)(source)),
    };
    if is_folder {
        fs_err::remove_dir_all(path)
    } else {
        fs_err::remove_file(path)
    }
    .map_err(io_error("remove", path))
}
