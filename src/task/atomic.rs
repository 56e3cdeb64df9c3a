//! How every file of ours is put in place: temporary name in the same folder, fsync, rename, fsync of the folder.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use fs_err as fs;

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Removes a temporary file unless it was renamed into place.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Best effort: the write has failed already, and that is the error that is reported.
            let _ = fs::remove_file(path);
        }
    }
}

/// A name beside `path` that readers of the folder overlook, unique in this process and among processes.
fn beside(path: &Path) -> PathBuf {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    let number = COUNTER.fetch_add(1, Ordering::Relaxed);
    path.with_file_name(format!(".{name}.{}-{number}.tmp", std::process::id()))
}

/// Writes a file so that a reader, also after a crash, finds the old content or the whole new one.
///
/// `fill` writes the content. Parent folders are created. On an error nothing is left behind.
pub fn write_atomically<E: From<io::Error>>(
    path: &Path,
    fill: impl FnOnce(&mut fs::File) -> Result<(), E>,
) -> Result<(), E> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut temporary = Temporary(Some(beside(path)));
    let Some(name) = temporary.0.clone() else { return Ok(()) };
    let mut file = fs::File::create(&name)?;
    fill(&mut file)?;
    file.flush()?;
    file.sync_all()?;
    drop(file);
    fs::rename(&name, path)?;
    temporary.0 = None;
    sync_folder(folder)?;
    Ok(())
}

/// Makes the names in a folder durable.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_content_and_no_other_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/file.txt");
        write_atomically(&path, |file| file.write_all(b"old")).unwrap();
        let failed = write_atomically(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("disk on fire"))
        });
        assert_eq!(failed.unwrap_err().to_string(), "disk on fire");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(fs::read_dir(dir.path().join("sub")).unwrap().count(), 1);
    }
}
