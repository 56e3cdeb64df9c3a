//! Host folders of a sandbox: copied in, compared with their source, removed whatever is in them.
//!
//! After an agent had them these folders are hostile: they are walked by descriptor, links never followed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::fcntl::{AtFlags, OFlag, openat, readlinkat, renameat};
use nix::sys::stat::{FchmodatFlags, FileStat, Mode, SFlag, fchmod, fchmodat, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, symlinkat, unlinkat};

use super::control::stream::{kind, names, open_dir};

/// Folders nested deeper than this are no longer walked one inside the other.
const DEPTH: usize = 100;

/// Who owns a copy; `None` leaves it to the copier.
pub(in crate::sandbox) type Owner = Option<(Uid, Gid)>;

/// Total bytes and entries below `folder`, up to the first excess of either limit.
pub(in crate::sandbox) fn is_larger(folder: &Path, bytes: u64, entries: usize) -> io::Result<bool> {
    fn walk(dir: BorrowedFd<'_>, left: &mut (u64, usize)) -> io::Result<bool> {
        for name in names(dir)? {
            let stat = fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
            let size = stat.st_size as u64;
            if size > left.0 || left.1 == 0 {
                return Ok(true);
            }
            *left = (left.0 - size, left.1 - 1);
            if kind(&stat) == SFlag::S_IFDIR && walk(open_dir(dir, &name)?.as_fd(), left)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
    walk(File::open(folder)?.as_fd(), &mut (bytes, entries))
}

/// Copies the content of `from` into the existing folder `to`; modes are kept, devices are left out.
pub(in crate::sandbox) fn copy(from: &Path, to: &Path, owner: Owner) -> io::Result<()> {
    copy_dir(File::open(from)?.as_fd(), File::open(to)?.as_fd(), owner)
}

fn copy_dir(from: BorrowedFd<'_>, to: BorrowedFd<'_>, owner: Owner) -> io::Result<()> {
    for name in names(from)? {
        let name = name.as_os_str();
        let stat = fstatat(from, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        let mode = Mode::from_bits_truncate(stat.st_mode & 0o7777);
        match kind(&stat) {
            SFlag::S_IFDIR => {
                mkdirat(to, name, Mode::from_bits_truncate(0o700))?;
                let made = open_dir(to, name)?;
                copy_dir(open_dir(from, name)?.as_fd(), made.as_fd(), owner)?;
                fchmod(&made, mode)?;
            }
            SFlag::S_IFREG => {
                let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let input = openat(from, name, flags | OFlag::O_RDONLY, Mode::empty())?;
                let flags = flags | OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
                let output = openat(to, name, flags, Mode::from_bits_truncate(0o600))?;
                // Shares blocks where the file system can.
                io::copy(&mut File::from(input), &mut File::from(output.try_clone()?))?;
                fchmod(&output, mode)?;
            }
            SFlag::S_IFLNK => symlinkat(readlinkat(from, name)?.as_os_str(), to, name)?,
            _ => continue,
        }
        if let Some((uid, gid)) = owner {
            fchownat(to, name, Some(uid), Some(gid), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        }
    }
    Ok(())
}

/// Makes a folder with this mode and owner.
pub(in crate::sandbox) fn make(path: &Path, mode: u32, owner: Owner) -> io::Result<()> {
    fs_err::create_dir(path)?;
    let dir = File::open(path)?;
    fchmod(&dir, Mode::from_bits_truncate(mode))?;
    if let Some((uid, gid)) = owner {
        fchown(&dir, Some(uid), Some(gid))?;
    }
    Ok(())
}

/// Removes an entry and all below it, opening folders that were closed to us. What is missing is fine.
///
/// However deep folders are nested, descriptors and stack stay bounded: deep ones are moved up first.
pub(in crate::sandbox) fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let mut lifted = Lifted { parent, next: 0 };
    remove_below(parent, name, 0, &mut lifted)?;
    let mut done = 0;
    while done < lifted.next {
        remove_below(parent, &Lifted::name(done), 0, &mut lifted)?;
        done += 1;
    }
    Ok(())
}

/// Makes an entry an empty folder of mode 755. A folder stays the same one; anything else is replaced, not followed.
pub(in crate::sandbox) fn empty(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    let mode = Mode::from_bits_truncate(0o755);
    if fstatat(parent, name, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok_and(|stat| kind(&stat) == SFlag::S_IFDIR) {
        let dir = open_closed(parent, name)?;
        fchmod(&dir, mode)?;
        for below in names(dir.as_fd())? {
            remove(dir.as_fd(), &below)?;
        }
        return Ok(());
    }
    remove(parent, name)?;
    Ok(mkdirat(parent, name, mode)?)
}

/// Opens a folder that may have been closed to its owner.
fn open_closed(parent: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    open_dir(parent, name).or_else(|error| {
        if error != nix::Error::EACCES {
            return Err(error);
        }
        fchmodat(parent, name, Mode::S_IRWXU, FchmodatFlags::FollowSymlink)?;
        open_dir(parent, name)
    })
}

/// Folders moved out of the depth, beside what is removed.
struct Lifted<'a> {
    parent: BorrowedFd<'a>,
    next: usize,
}

impl Lifted<'_> {
    fn name(number: usize) -> OsString {
        format!(".removing-{}-{number}", std::process::id()).into()
    }
}

fn remove_below(parent: BorrowedFd<'_>, name: &OsStr, depth: usize, lifted: &mut Lifted<'_>) -> io::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(nix::Error::ENOENT) => return Ok(()),
        Err(nix::Error::EISDIR | nix::Error::EPERM) => {}
        Err(error) => return Err(error.into()),
    }
    let dir = open_closed(parent, name)?;
    // Another user's folder stays as it is: its content may still be removable.
    let _ = fchmod(&dir, Mode::S_IRWXU);
    if depth >= DEPTH {
        renameat(parent, name, lifted.parent, Lifted::name(lifted.next).as_os_str())?;
        lifted.next += 1;
        return Ok(());
    }
    for below in names(dir.as_fd())? {
        remove_below(dir.as_fd(), &below, depth + 1, lifted)?;
    }
    match unlinkat(parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Paths of files and links that were added, changed or removed in `now`, against `before`; sorted.
pub(in crate::sandbox) fn compare(before: &Path, now: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let (before, now) = (File::open(before)?, File::open(now)?);
    compare_dirs(
        Some(before.as_fd()),
        Some(now.as_fd()),
        Path::new(""),
        false,
        &mut found,
    )?;
    found.sort();
    Ok(found)
}

/// The same for the upper folder of an overlay: what it lacks is unchanged, a whiteout is removed.
pub(in crate::sandbox) fn compare_overlay(lower: &Path, upper: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let (lower, upper) = (File::open(lower)?, File::open(upper)?);
    compare_dirs(
        Some(lower.as_fd()),
        Some(upper.as_fd()),
        Path::new(""),
        true,
        &mut found,
    )?;
    found.sort();
    Ok(found)
}

fn compare_dirs(
    before: Option<BorrowedFd<'_>>,
    now: Option<BorrowedFd<'_>>,
    path: &Path,
    overlay: bool,
    found: &mut Vec<String>,
) -> io::Result<()> {
    // A folder that was removed and made again hides all that was below it.
    let overlay = overlay && now.is_some_and(|now| !super::sys::is_opaque(now));
    let list = |dir: Option<BorrowedFd<'_>>| dir.map_or(Ok(Vec::new()), names);
    let mut all: Vec<OsString> = list(before)?;
    all.extend(list(now)?);
    all.sort();
    all.dedup();
    for name in all {
        let below: PathBuf = path.join(&name);
        let (old, mut new) = (Entry::at(before, &name), Entry::at(now, &name));
        if overlay && new.0.is_none() {
            continue;
        }
        if overlay && new.kind() == Some(SFlag::S_IFCHR) {
            // A whiteout.
            new.0 = None;
        }
        let (old_dir, new_dir) = (old.folder(before, &name)?, new.folder(now, &name)?);
        if !old.same_leaf(&new, before, now, &name)? {
            found.push(below.to_string_lossy().into_owned());
        }
        let deep = below.components().count() > DEPTH;
        if deep && (old_dir.is_some() || new_dir.is_some()) {
            // The folder itself stands for all below it.
            found.push(below.to_string_lossy().into_owned());
        } else if old_dir.is_some() || new_dir.is_some() {
            let (old, new) = (old_dir.as_ref().map(AsFd::as_fd), new_dir.as_ref().map(AsFd::as_fd));
            compare_dirs(old, new, &below, overlay, found)?;
        }
    }
    Ok(())
}

struct Entry(Option<FileStat>);

impl Entry {
    fn at(dir: Option<BorrowedFd<'_>>, name: &OsStr) -> Self {
        Self(dir.and_then(|dir| fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW).ok()))
    }

    fn kind(&self) -> Option<SFlag> {
        self.0.as_ref().map(kind)
    }

    fn folder(&self, dir: Option<BorrowedFd<'_>>, name: &OsStr) -> io::Result<Option<OwnedFd>> {
        match (self.kind(), dir) {
            (Some(SFlag::S_IFDIR), Some(dir)) => match open_dir(dir, name) {
                Ok(fd) => Ok(Some(fd)),
                // Closed by the agent: its content counts as removed, which the caller sees.
                Err(nix::Error::EACCES) => Ok(None),
                Err(error) => Err(error.into()),
            },
            _ => Ok(None),
        }
    }

    /// Whether both are the same file or link, or both are folders or absent.
    fn same_leaf(
        &self,
        new: &Self,
        before: Option<BorrowedFd<'_>>,
        now: Option<BorrowedFd<'_>>,
        name: &OsStr,
    ) -> io::Result<bool> {
        let leaf = |kind: Option<SFlag>| kind.filter(|kind| *kind != SFlag::S_IFDIR);
        if leaf(self.kind()) != leaf(new.kind()) {
            return Ok(false);
        }
        let (Some(old), Some(new), Some(before), Some(now)) = (&self.0, &new.0, before, now) else {
            return Ok(true);
        };
        match kind(old) {
            SFlag::S_IFLNK => Ok(readlinkat(before, name)? == readlinkat(now, name)?),
            SFlag::S_IFREG if old.st_size != new.st_size || old.st_mode & 0o777 != new.st_mode & 0o777 => Ok(false),
            SFlag::S_IFREG => same_bytes(before, now, name),
            _ => Ok(true),
        }
    }
}

fn same_bytes(before: BorrowedFd<'_>, now: BorrowedFd<'_>, name: &OsStr) -> io::Result<bool> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let (Ok(old), Ok(new)) = (
        openat(before, name, flags, Mode::empty()),
        openat(now, name, flags, Mode::empty()),
    ) else {
        return Ok(false);
    };
    if kind(&fstat(&new)?) != SFlag::S_IFREG {
        return Ok(false);
    }
    let (mut old, mut new) = (File::from(old), File::from(new));
    let (mut a, mut b) = (vec![0; 64 * 1024], vec![0; 64 * 1024]);
    loop {
        let n = old.read(&mut a)?;
        if n == 0 {
            return Ok(new.read(&mut b)? == 0);
        }
        if new.read_exact(&mut b[..n]).is_err() || a[..n] != b[..n] {
            return Ok(false);
        }
    }
}

#[cfg(test)]
#[path = "tree_tests.rs"]
mod tests;
