//! Files in and out, seen from inside: paths resolve below a base, so that no link leads past it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, BufWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, fchmod, mkdirat};

use super::root;
use crate::sandbox::control::stream::{self, Target};
use crate::sandbox::control::wire;
use crate::sandbox::tree;

/// Where a tree goes or comes from: `path` is resolved as if `base` were the root.
pub(super) struct Place {
    pub(super) base: PathBuf,
    pub(super) path: PathBuf,
}

fn beneath(base: &OwnedFd, path: &Path, flags: OFlag) -> nix::Result<OwnedFd> {
    let path = if path.as_os_str().is_empty() {
        Path::new(".")
    } else {
        path
    };
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    openat2(base, path, how)
}

impl Place {
    fn base(&self) -> nix::Result<OwnedFd> {
        open(
            &self.base,
            OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::empty(),
        )
    }

    /// Sends the tree here to `stream`.
    pub(super) fn send(&self, stream: OwnedFd) -> io::Result<()> {
        let top = self
            .base()
            .and_then(|base| beneath(&base, &self.path, OFlag::O_RDONLY | OFlag::O_NONBLOCK));
        stream::send(
            top.map_err(Into::into),
            &mut BufWriter::with_capacity(1 << 16, File::from(stream)),
        )
    }

    /// Sends entries of the folder here to `stream`.
    pub(super) fn send_entries(&self, entries: &[String], stream: OwnedFd) -> io::Result<()> {
        let top = self
            .base()
            .and_then(|base| beneath(&base, &self.path, OFlag::O_RDONLY | OFlag::O_DIRECTORY));
        stream::send_entries(
            top.map_err(Into::into),
            entries,
            &mut BufWriter::with_capacity(1 << 16, File::from(stream)),
        )
    }

    /// Receives a tree from `stream`, and says on it how that went.
    pub(super) fn receive(&self, stream: OwnedFd) -> io::Result<()> {
        let mut input = BufReader::with_capacity(1 << 16, File::from(stream.try_clone()?));
        let mut output = File::from(stream);
        match self.take(&mut input) {
            Ok(()) => stream::finished(&mut output),
            Err(error) => stream::failed(&error, &mut output),
        }
    }

    fn take(&self, input: &mut impl io::Read) -> io::Result<()> {
        let base = self.base()?;
        let folder = beneath(&base, &self.path, OFlag::O_RDONLY | OFlag::O_DIRECTORY).ok();
        let name = self.path.file_name().unwrap_or(OsStr::new(".")).to_owned();
        let parent = self.parents(&base)?;
        let target = Target {
            parent: parent.as_fd(),
            name,
            folder,
            contained: false,
            limit: u64::MAX,
        };
        stream::receive(input, target).map(drop)
    }

    /// The folder above, made where it is missing.
    fn parents(&self, base: &OwnedFd) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut at = beneath(base, Path::new(""), flags)?;
        let mut so_far = PathBuf::new();
        for part in self.path.parent().into_iter().flat_map(Path::components) {
            let Component::Normal(name) = part else { continue };
            so_far.push(name);
            at = match beneath(base, &so_far, flags) {
                Ok(next) => next,
                Err(nix::Error::ENOENT) => {
                    mkdirat(&at, name, Mode::from_bits_truncate(0o755))?;
                    beneath(base, &so_far, flags)?
                }
                Err(error) => return Err(error.into()),
            };
        }
        Ok(at)
    }
}

/// Makes `path` an empty folder that nothing inside has touched.
///
/// In namespaces: a fresh mount, on a mount point that cannot be moved. Else: emptied, and
/// anything but a folder replaced.
pub(super) fn reset(setup: &wire::Setup, path: &Path) -> Result<(), String> {
    let fail = |error: &dyn std::fmt::Display| format!("`{}` could not be emptied: {error}", path.display());
    if setup.mode == wire::Mode::Namespaces {
        return root::fresh(path, root::memory_files(setup)).map_err(|error| fail(&error));
    }
    let again = || -> io::Result<()> {
        let mut parent = OwnedFd::from(File::open(&setup.scratch)?);
        let mut parts = path.components().filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        });
        let mut name = parts.next().ok_or(io::ErrorKind::InvalidInput)?;
        for next in parts {
            parent = stream::open_dir(parent.as_fd(), name)?;
            name = next;
        }
        tree::empty(parent.as_fd(), name)?;
        if setup.mode == wire::Mode::Container && path.starts_with("/logs") {
            // The tests may run as another user than the init. Whatever else could write here has been ended.
            let folder = stream::open_dir(parent.as_fd(), name)?;
            fchmod(&folder, Mode::from_bits_truncate(0o777))?;
        }
        Ok(())
    };
    again().map_err(|error| fail(&error))
}
