//! What lies below a folder, told without the help of any program inside.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use nix::fcntl::{AtFlags, OFlag, open};
use nix::sys::stat::{Mode, SFlag, fstatat};

use crate::sandbox::control::listing::{Entry, MOST};
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
    .and_then(|top| walk(top.as_fd(), "", &mut found));
    let mut out = BufWriter::new(File::from(stream));
    match walked {
        Ok(()) => serde_json::to_writer(&mut out, &found)?,
        Err(error) => serde_json::to_writer(&mut out, &error.to_string())?,
    }
    out.flush()
}

fn walk(dir: BorrowedFd<'_>, above: &str, found: &mut BTreeMap<String, Entry>) -> io::Result<()> {
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
            walk(open_dir(dir, &name)?.as_fd(), &format!("{path}/"), found)?;
        } else {
            let entry = Entry {
                mode: stat.st_mode,
                size: stat.st_size,
                changed: (stat.st_ctime, stat.st_ctime_nsec),
            };
            found.insert(path, entry);
        }
    }
    Ok(())
}
