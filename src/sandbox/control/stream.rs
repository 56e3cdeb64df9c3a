//! A tree of files as a stream, and back. Both ends distrust what they meet.
//!
//! The sender follows no symbolic link below the top; the receiver opens every component of every path
//! without following links, so that no entry can land outside its target, whatever links are there or
//! come along in the stream. Devices, sockets and fifos are left out.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat, readlinkat};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, symlinkat, unlinkat};

const DIRECTORY: u8 = b'd';
const FILE: u8 = b'f';
const LINK: u8 = b'l';
const END: u8 = b'e';
const FAILED: u8 = b'x';
/// Deepest folder that is walked.
const DEPTH: usize = 200;
/// Longest path or message in a header.
const TEXT: u32 = 64 * 1024;

fn other(message: String) -> io::Error {
    io::Error::other(message)
}

pub(in crate::sandbox) fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Names in a folder, sorted, without `.` and `..`.
pub(in crate::sandbox) fn names(dir: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let again = openat(
        dir,
        ".",
        OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )?;
    let mut names = Vec::new();
    for entry in Dir::from_fd(again)?.iter() {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    names.sort();
    Ok(names)
}

/// Opens a folder by name without following a link.
pub(in crate::sandbox) fn open_dir(parent: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn open_file(parent: BorrowedFd<'_>, name: &OsStr) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn header(out: &mut impl Write, entry: u8, mode: u32, size: u64, text: &[u8]) -> io::Result<()> {
    out.write_all(&[entry])?;
    out.write_all(&mode.to_le_bytes())?;
    out.write_all(&size.to_le_bytes())?;
    out.write_all(&(text.len() as u32).to_le_bytes())?;
    out.write_all(text)
}

/// Sends the file or folder open as `top`, or the reason why it could not be read to its end.
pub(in crate::sandbox) fn send(top: io::Result<OwnedFd>, out: &mut impl Write) -> io::Result<()> {
    let sent = top.and_then(|top| {
        let stat = fstat(&top)?;
        match kind(&stat) {
            SFlag::S_IFDIR => send_dir(top.as_fd(), Path::new(""), &stat, 0, out),
            SFlag::S_IFREG => send_file(File::from(top), Path::new(""), &stat, out),
            _ => Err(other("neither a file nor a folder".to_owned())),
        }
    });
    match sent {
        Ok(()) => header(out, END, 0, 0, b"")?,
        Err(error) => failed(&error, out)?,
    }
    out.flush()
}

/// Sends those of the entries that are files or links, with the folders above them: each path is opened component by
/// component, so that none leads through a link. What is no such path or is not there is left out.
pub(in crate::sandbox) fn send_entries(
    top: io::Result<OwnedFd>,
    entries: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    let sent = top.and_then(|top| {
        header(out, DIRECTORY, 0o755, 0, b"")?;
        let mut made = BTreeSet::new();
        for entry in entries {
            send_entry(top.as_fd(), Path::new(entry), &mut made, out)?;
        }
        Ok(())
    });
    match sent {
        Ok(()) => header(out, END, 0, 0, b"")?,
        Err(error) => failed(&error, out)?,
    }
    out.flush()
}

fn send_entry(top: BorrowedFd<'_>, path: &Path, made: &mut BTreeSet<PathBuf>, out: &mut impl Write) -> io::Result<()> {
    let Ok((at, name)) = walk(top, path) else { return Ok(()) };
    let Ok(stat) = fstatat(&at, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
        return Ok(());
    };
    if !matches!(kind(&stat), SFlag::S_IFREG | SFlag::S_IFLNK) {
        return Ok(());
    }
    let above: Vec<&Path> = path
        .ancestors()
        .skip(1)
        .filter(|path| !path.as_os_str().is_empty())
        .collect();
    for folder in above.into_iter().rev() {
        if made.insert(folder.to_owned()) {
            header(out, DIRECTORY, 0o755, 0, folder.as_os_str().as_bytes())?;
        }
    }
    send_below(at.as_fd(), &name, path, &stat, out)
}

/// Says that this end failed, with the error's number.
pub(in crate::sandbox) fn failed(error: &io::Error, out: &mut impl Write) -> io::Result<()> {
    header(
        out,
        FAILED,
        error.raw_os_error().unwrap_or(0) as u32,
        0,
        error.to_string().as_bytes(),
    )?;
    out.flush()
}

/// Says that this end is done.
pub(in crate::sandbox) fn finished(out: &mut impl Write) -> io::Result<()> {
    header(out, END, 0, 0, b"")?;
    out.flush()
}

/// How the other end fared: reads what `finished` or `failed` wrote.
pub(in crate::sandbox) fn outcome(input: &mut impl Read) -> io::Result<()> {
    match read_header(input)? {
        (END, ..) => Ok(()),
        (FAILED, number, _, text) => Err(failure(number, &text)),
        (entry, ..) => Err(other(format!("an entry of kind {entry} where the outcome belongs"))),
    }
}

fn failure(number: u32, text: &[u8]) -> io::Error {
    if number == 0 {
        other(String::from_utf8_lossy(text).into_owned())
    } else {
        io::Error::from_raw_os_error(number as i32)
    }
}

fn send_file(file: File, path: &Path, stat: &FileStat, out: &mut impl Write) -> io::Result<()> {
    let size = stat.st_size as u64;
    header(out, FILE, stat.st_mode & 0o7777, size, path.as_os_str().as_bytes())?;
    // A file that shrinks meanwhile is padded, one that grows is cut: the header's promise holds.
    let copied = io::copy(&mut file.take(size), out)?;
    io::copy(&mut io::repeat(0).take(size - copied), out)?;
    Ok(())
}

fn send_dir(dir: BorrowedFd<'_>, path: &Path, stat: &FileStat, depth: usize, out: &mut impl Write) -> io::Result<()> {
    if depth > DEPTH {
        return Err(other(format!(
            "folders are nested more than {DEPTH} deep at `{}`",
            path.display()
        )));
    }
    header(out, DIRECTORY, stat.st_mode & 0o7777, 0, path.as_os_str().as_bytes())?;
    for name in names(dir)? {
        let below = path.join(&name);
        let stat = fstatat(dir, name.as_os_str(), AtFlags::AT_SYMLINK_NOFOLLOW)?;
        match kind(&stat) {
            SFlag::S_IFDIR => send_dir(open_dir(dir, &name)?.as_fd(), &below, &stat, depth + 1, out)?,
            _ => send_below(dir, &name, &below, &stat, out)?,
        }
    }
    Ok(())
}

/// Sends a file or link by its name in `dir`; devices, sockets and fifos are left out.
fn send_below(dir: BorrowedFd<'_>, name: &OsStr, path: &Path, stat: &FileStat, out: &mut impl Write) -> io::Result<()> {
    match kind(stat) {
        SFlag::S_IFREG => {
            let file = open_file(dir, name)?;
            let stat = fstat(&file)?;
            if kind(&stat) == SFlag::S_IFREG {
                send_file(File::from(file), path, &stat, out)?;
            }
        }
        SFlag::S_IFLNK => {
            let target = readlinkat(dir, name)?;
            let mut text = path.as_os_str().as_bytes().to_vec();
            text.push(0);
            text.extend_from_slice(target.as_bytes());
            header(out, LINK, 0, 0, &text)?;
        }
        _ => {}
    }
    Ok(())
}

/// Where a tree goes, and what of it is taken.
pub(in crate::sandbox) struct Target<'a> {
    /// Opened by the caller, who knows that it is the right folder.
    pub(in crate::sandbox) parent: BorrowedFd<'a>,
    /// Name of the file or folder in it.
    pub(in crate::sandbox) name: OsString,
    /// A folder already there into which the content of a folder goes.
    pub(in crate::sandbox) folder: Option<OwnedFd>,
    /// Whether links that lead out of the tree are left out.
    pub(in crate::sandbox) contained: bool,
    /// Bytes and entries beyond which the stream is refused.
    pub(in crate::sandbox) limit: u64,
}

/// What came.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::sandbox) struct Received {
    /// Links left out because they lead elsewhere.
    pub(in crate::sandbox) links_left_out: usize,
}

/// Receives what `send` wrote.
///
/// # Errors
/// The sender's failure with its number, a path that is not a plain relative one, more than the limit.
pub(in crate::sandbox) fn receive(input: &mut impl Read, target: Target<'_>) -> io::Result<Received> {
    let mut received = Received::default();
    let Target {
        parent,
        name,
        mut folder,
        contained,
        mut limit,
    } = target;
    loop {
        let (entry, mode, size, text) = read_header(input)?;
        limit = limit
            .checked_sub(size + 256)
            .ok_or_else(|| io::Error::new(io::ErrorKind::FileTooLarge, "more bytes than are taken"))?;
        match entry {
            END => return Ok(received),
            FAILED => return Err(failure(mode, &text)),
            DIRECTORY if text.is_empty() => {
                if folder.is_none() {
                    folder = Some(make_dir(parent, &name, mode)?);
                }
            }
            FILE if text.is_empty() => write_file(parent, &name, mode, size, input)?,
            _ => {
                let top = folder
                    .as_ref()
                    .ok_or_else(|| other("an entry before its folder".to_owned()))?;
                let (path, link) = split(entry, &text);
                let (at, leaf) = walk(top.as_fd(), &path)?;
                match entry {
                    DIRECTORY => drop(make_dir(at.as_fd(), &leaf, mode)?),
                    FILE => write_file(at.as_fd(), &leaf, mode, size, input)?,
                    LINK if contained && !stays_inside(&path, &link) => received.links_left_out += 1,
                    LINK => {
                        remove(at.as_fd(), &leaf)?;
                        symlinkat(link.as_path(), &at, leaf.as_os_str())?;
                    }
                    _ => return Err(other(format!("an entry of unknown kind {entry}"))),
                }
            }
        }
    }
}

fn split(entry: u8, text: &[u8]) -> (PathBuf, PathBuf) {
    let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    match text.iter().position(|byte| *byte == 0) {
        Some(at) if entry == LINK => (path(&text[..at]), path(&text[at + 1..])),
        _ => (path(text), PathBuf::new()),
    }
}

fn read_header(input: &mut impl Read) -> io::Result<(u8, u32, u64, Vec<u8>)> {
    let mut fixed = [0u8; 17];
    input.read_exact(&mut fixed)?;
    let word = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    let length = word(13);
    if length > TEXT {
        return Err(other(format!("a path of {length} bytes")));
    }
    let mut text = vec![0; length as usize];
    input.read_exact(&mut text)?;
    Ok((fixed[0], word(1), u64::from(word(5)) | (u64::from(word(9)) << 32), text))
}

/// The folder that holds `path`'s last component; no component is a link or `..`.
fn walk(top: BorrowedFd<'_>, path: &Path) -> io::Result<(OwnedFd, OsString)> {
    let mut at = top.try_clone_to_owned()?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { break };
        if parts.peek().is_none() {
            return Ok((at, name.to_owned()));
        }
        at = open_dir(at.as_fd(), name)?;
    }
    Err(other(format!("`{}` is not a plain relative path", path.display())))
}

fn make_dir(parent: BorrowedFd<'_>, name: &OsStr, mode: u32) -> io::Result<OwnedFd> {
    if let Ok(there) = open_dir(parent, name) {
        return Ok(there);
    }
    remove(parent, name)?;
    // Its content must be writable by us, whatever the original says.
    mkdirat(parent, name, Mode::from_bits_truncate(mode & 0o777 | 0o700))?;
    Ok(open_dir(parent, name)?)
}

fn remove(parent: BorrowedFd<'_>, name: &OsStr) -> io::Result<()> {
    match unlinkat(parent, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(nix::Error::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn write_file(parent: BorrowedFd<'_>, name: &OsStr, mode: u32, size: u64, input: &mut impl Read) -> io::Result<()> {
    remove(parent, name)?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(parent, name, flags, Mode::from_bits_truncate(0o600))?);
    if io::copy(&mut input.take(size), &mut file)? < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    fchmod(&file, Mode::from_bits_truncate(mode & 0o777))?;
    Ok(())
}

/// Whether a link at `path` with this target leads below the top: `..` only in front (the folders of
/// `path` are real ones), and no more of them than there are folders.
fn stays_inside(path: &Path, link: &Path) -> bool {
    let depth = path.components().count() - 1;
    let ups = link
        .components()
        .take_while(|part| *part == Component::ParentDir)
        .count();
    ups <= depth
        && link
            .components()
            .skip(ups)
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

#[cfg(test)]
#[path = "stream_tests.rs"]
mod tests;
