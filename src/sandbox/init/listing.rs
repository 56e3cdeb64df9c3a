//! What lies below a folder, told without the help of any program inside.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag, open, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use sha2::{Digest, Sha256};

use crate::sandbox::control::listing::{CONTENT, Entry, MOST};
use crate::sandbox::control::stream::{kind, names, open_dir};

/// Writes the entries below `path` as JSON: a map from path to [`Entry`], or a text that says what failed.
pub(super) fn write(path: &Path, stream: OwnedFd) -> io::Result<()> {
    let mut found = BTreeMap::new();
    let walked = open(
        path,
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
    .map_err(io::Error::from)
    .and_then(|top| walk(top.as_fd(), "", &mut { CONTENT }, &mut found));
    let mut out = BufWriter::new(File::from(stream));
    match walked {
        Ok(()) => serde_json::to_writer(&mut out, &found)?,
        Err(error) => serde_json::to_writer(&mut out, &error.to_string())?,
    }
    out.flush()
}

fn walk(dir: BorrowedFd<'_>, above: &str, readable: &mut u64, found: &mut BTreeMap<String, Entry>) -> io::Result<()> {
    for name in names(dir)? {
        let path = format!("{above}{}", name.to_string_lossy());
        let stat = match fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
            // It went while we looked.
            Err(nix::Error::ENOENT) => continue,
            stat => stat?,
        };
        if found.len() >= MOST {
            return Err(io::Error::other(format!("more than {MOST} files")));
        }
        if kind(&stat) == SFlag::S_IFDIR {
            walk(open_dir(dir, &name)?.as_fd(), &format!("{path}/"), readable, found)?;
        } else {
            let entry = Entry {
                mode: stat.st_mode,
                size: stat.st_size,
                changed: (stat.st_ctime, stat.st_ctime_nsec),
                digest: digest(dir, &name, &stat, readable),
            };
            found.insert(path, entry);
        }
    }
    Ok(())
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
