//! What lies below a folder, told without the help of any program inside.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::SystemTime;

use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};
use sha2::{Digest, Sha256};

use crate::sandbox::control::listing::{CONTENT, Entry, MOST};
use crate::sandbox::control::stream::{kind, names, open_dir};

/// The time now, in the form of `ctime`.
pub(super) fn now() -> (i64, i64) {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    (now.as_secs() as i64, i64::from(now.subsec_nanos()))
}

/// Writes the entries below `path` as JSON: a map from path to [`Entry`], or a text that says what failed. With `since`
/// only those that changed after it, whose content is not read.
pub(super) fn write(path: &Path, since: Option<(i64, i64)>, stream: OwnedFd) -> io::Result<()> {
    let mut found = BTreeMap::new();
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let walked = match open(path, flags, Mode::empty()) {
        // The agent removed the folder, or put something else in its place: nothing is left of what was there.
        Err(nix::Error::ENOENT | nix::Error::ENOTDIR | nix::Error::ELOOP) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(top) => fstat(&top).map_err(io::Error::from).and_then(|stat| {
            let mut walk = Walk {
                device: stat.st_dev,
                readable: if since.is_some() { 0 } else { CONTENT },
                since,
                found: &mut found,
            };
            walk.below(top.as_fd(), "")
        }),
    };
    let mut out = BufWriter::new(File::from(stream));
    match walked {
        Ok(()) => serde_json::to_writer(&mut out, &found)?,
        Err(error) => serde_json::to_writer(&mut out, &error.to_string())?,
    }
    out.flush()
}

struct Walk<'a> {
    /// Other file systems are no part of the folder.
    device: libc::dev_t,
    /// Bytes of content that may still be read.
    readable: u64,
    since: Option<(i64, i64)>,
    found: &'a mut BTreeMap<String, Entry>,
}

impl Walk<'_> {
    fn below(&mut self, dir: BorrowedFd<'_>, above: &str) -> io::Result<()> {
        for name in names(dir)? {
            let path = format!("{above}{}", name.to_string_lossy());
            let stat = match fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                // It went while we looked.
                Err(nix::Error::ENOENT) => continue,
                stat => stat?,
            };
            // Some layered file systems give files the numbers of their layers, and only folders their own.
            let is_folder = kind(&stat) == SFlag::S_IFDIR;
            if stat.st_dev != self.device && (is_folder || self.since.is_none()) {
                continue;
            }
            if self.found.len() >= MOST {
                return Err(io::Error::other(format!("more than {MOST} files")));
            }
            if is_folder {
                self.below(open_dir(dir, &name)?.as_fd(), &format!("{path}/"))?;
            } else if self
                .since
                .is_none_or(|since| since < (stat.st_ctime, stat.st_ctime_nsec))
            {
                let entry = Entry {
                    mode: stat.st_mode,
                    size: stat.st_size,
                    changed: (stat.st_ctime, stat.st_ctime_nsec),
                    digest: digest(dir, &name, &stat, &mut self.readable),
                };
                self.found.insert(path, entry);
            }
        }
        Ok(())
    }
}

/// Of a file's content or a link's target; `None` where it is not read.
fn digest(dir: BorrowedFd<'_>, name: &OsStr, stat: &FileStat, readable: &mut u64) -> Option<[u8; 16]> {
    let mut digest = Sha256::new();
    match kind(stat) {
        SFlag::S_IFLNK => digest.update(readlinkat(dir, name).ok()?.as_encoded_bytes()),
        SFlag::S_IFREG => {
            let size = u64::try_from(stat.st_size).ok()?;
            *readable = readable.checked_sub(size)?;
            let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
            let mut file = File::from(openat(dir, name, flags, Mode::empty()).ok()?).take(size);
            let mut piece = vec![0; 64 * 1024];
            loop {
                match file.read(&mut piece).ok()? {
                    0 => break,
                    n => digest.update(&piece[..n]),
                }
            }
        }
        _ => return None,
    }
    digest.finalize()[..16].try_into().ok()
}
