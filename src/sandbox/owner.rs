//! Who owns a sandbox's host folder, and removing what a killed owner left.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::tree;

const LABEL: &str = "owner.json";

/// A folder that has no label yet: its name tells whose it is, `.making-<boot>_<pid>_<start>_<host>_<name>`.
const MAKING: &str = ".making-";

/// Another machine, or this one before it was started anew, may have made a folder; after so long it has a label or
/// never will.
const MADE: Duration = Duration::from_hours(1);

/// The label of a sandbox's folder. A process is known by its number and its start time together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::sandbox) struct Owner {
    pub(in crate::sandbox) name: String,
    pub(in crate::sandbox) labels: BTreeMap<String, String>,
    host: String,
    boot: String,
    pid: u32,
    start: u64,
}

impl Owner {
    /// This process.
    pub(in crate::sandbox) fn here(name: &str, labels: &BTreeMap<String, String>) -> io::Result<Self> {
        let pid = std::process::id();
        Ok(Self {
            name: name.to_owned(),
            labels: labels.clone(),
            host: host(),
            boot: boot(),
            pid,
            start: start_of(pid)?,
        })
    }

    /// Whether it is this process.
    pub(in crate::sandbox) fn is_here(&self) -> bool {
        self.pid == std::process::id()
            && self.host == host()
            && self.boot == boot()
            && start_of(self.pid).ok() == Some(self.start)
    }

    /// Makes the folder `root/name` with this label in it. It has its name only once the label is whole, so that who is
    /// killed on the way leaves a folder that `reap` knows.
    pub(in crate::sandbox) fn make_folder(&self, root: &Path, name: &str) -> io::Result<PathBuf> {
        let Self {
            boot, pid, start, host, ..
        } = self;
        let making = root.join(format!("{MAKING}{boot}_{pid}_{start}_{host}_{name}"));
        let folder = root.join(name);
        let made = tree::make(&making, 0o755, None)
            .and_then(|()| self.write(&making))
            .and_then(|()| fs_err::rename(&making, &folder));
        if made.is_err() {
            // A second fault on the way out would hide the first; `reap` tries again.
            let _ = fs_err::remove_dir_all(&making);
        }
        made.map(|()| folder)
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        fs_err::write(folder.join(LABEL), serde_json::to_vec(self)?)
    }

    /// Whether the owner is certainly gone. Another machine's is left alone: pids mean nothing across machines.
    pub(in crate::sandbox) fn is_dead(&self) -> bool {
        self.host == host() && (self.boot != boot() || start_of(self.pid).ok() != Some(self.start))
    }
}

/// Removes a sandbox's folder; what cannot be removed is left to `reap` and said.
pub(in crate::sandbox) fn discard(folder: &Path) {
    if let Err(error) = remove(folder) {
        tracing::warn!(path = %folder.display(), %error, "a sandbox's folder could not be removed");
    }
}

fn host() -> String {
    nix::unistd::gethostname()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn boot() -> String {
    fs_err::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Clock ticks from boot to the start of a process.
fn start_of(pid: u32) -> io::Result<u64> {
    let stat = fs_err::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').map(|(_, back)| back.split_whitespace());
    let start = fields
        .and_then(|mut fields| fields.nth(19))
        .and_then(|field| field.parse().ok());
    start.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat is not as expected"),
        )
    })
}

/// Folders below `root` with a readable label. One without is not ours to judge.
fn labelled(root: &Path) -> io::Result<Vec<(PathBuf, Owner)>> {
    let entries = match fs_err::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let label = fs_err::read(path.join(LABEL)).ok();
        if let Some(owner) = label.and_then(|label| serde_json::from_slice(&label).ok()) {
            found.push((path, owner));
        }
    }
    found.sort_by(|a: &(PathBuf, Owner), b| a.0.cmp(&b.0));
    Ok(found)
}

/// Folders below `root` that their makers will never label.
fn abandoned(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs_err::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(maker) = name
            .strip_prefix(MAKING)
            .map(|rest| rest.rsplit_once('_').unwrap_or_default().0)
        else {
            continue;
        };
        let is_over = match maker.splitn(4, '_').collect::<Vec<_>>().as_slice() {
            [of_boot, pid, start, of_host] if *of_boot == boot() && *of_host == host() => {
                let started = pid.parse().ok().and_then(|pid| start_of(pid).ok());
                started.is_none_or(|started| started.to_string() != *start)
            }
            // It may be gone already, labelled by its maker.
            _ => entry
                .metadata()
                .and_then(|metadata| metadata.modified())
                .is_ok_and(|then| then.elapsed().is_ok_and(|age| age > MADE)),
        };
        if is_over {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// Removes the folders below `root` whose owner is dead; gives their paths.
pub(in crate::sandbox) fn reap(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = abandoned(root)?;
    let named = labelled(root)?;
    removed.extend(
        named
            .into_iter()
            .filter(|(_, owner)| owner.is_dead())
            .map(|(path, _)| path),
    );
    removed.sort();
    removed.dedup();
    removed.iter().try_for_each(|path| remove(path))?;
    Ok(removed)
}

/// Folders below `root` that are this process's own.
pub(in crate::sandbox) fn own(root: &Path) -> io::Result<Vec<PathBuf>> {
    Ok(labelled(root)?
        .into_iter()
        .filter(|(_, owner)| owner.is_here())
        .map(|(path, _)| path)
        .collect())
}

/// Removes a sandbox's folder, its label last: who is killed on the way leaves a folder that `reap` still knows.
pub(in crate::sandbox) fn remove(folder: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (folder.parent(), folder.file_name()) else {
        return Ok(());
    };
    // A folder that was closed to us is opened, and removed with its label, by what follows.
    if let (Ok(entries), Ok(dir)) = (fs_err::read_dir(folder), File::open(folder)) {
        for entry in entries {
            let name = entry?.file_name();
            if name != LABEL {
                tree::remove(dir.as_fd(), &name)?;
            }
        }
    }
    tree::remove(File::open(parent)?.as_fd(), name)
}

/// A name that a host may have.
pub(in crate::sandbox) fn host_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(48)
        .collect();
    let plain = plain.trim_matches('-');
    if plain.is_empty() {
        "sandbox".to_owned()
    } else {
        plain.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_dead_owners_folder_goes() {
        let root = tempfile::tempdir().unwrap();
        let mine = Owner::here("mine", &BTreeMap::new()).unwrap();
        let reused = Owner {
            start: mine.start + 1,
            ..mine.clone()
        };
        let rebooted = Owner {
            boot: "before".to_owned(),
            ..mine.clone()
        };
        let elsewhere = Owner {
            host: "another".to_owned(),
            start: 0,
            ..mine.clone()
        };
        for (name, owner) in [
            ("mine", &mine),
            ("reused", &reused),
            ("rebooted", &rebooted),
            ("elsewhere", &elsewhere),
        ] {
            owner.make_folder(root.path(), name).unwrap();
        }
        fs_err::create_dir(root.path().join("foreign")).unwrap();
        assert_eq!(own(root.path()).unwrap(), [root.path().join("mine")]);
        let removed = reap(root.path()).unwrap();
        assert_eq!(removed, [root.path().join("rebooted"), root.path().join("reused")]);
        assert!(reap(&root.path().join("missing")).unwrap().is_empty());
        for name in ["mine", "elsewhere", "foreign"] {
            assert!(root.path().join(name).exists(), "{name}");
        }
    }

    #[test]
    fn a_folder_without_its_label_goes_with_its_maker() {
        let root = tempfile::tempdir().unwrap();
        let mine = Owner::here("mine", &BTreeMap::new()).unwrap();
        let making = |owner: &Owner, boot: &str| {
            let name = format!("{MAKING}{boot}_{}_{}_{}_task-1", owner.pid, owner.start, owner.host);
            fs_err::create_dir(root.path().join(&name)).unwrap();
            root.path().join(name)
        };
        let dead = Owner {
            start: mine.start + 1,
            ..mine.clone()
        };
        let (own, left) = (making(&mine, &mine.boot), making(&dead, &mine.boot));
        // Half a label, as a kill leaves it.
        fs_err::write(left.join(LABEL), "{\"na").unwrap();
        let (fresh, old) = (making(&mine, "elsewhere"), making(&dead, "elsewhere"));
        let then = std::time::SystemTime::now() - 2 * MADE;
        File::open(&old).unwrap().set_modified(then).unwrap();
        let mut gone = vec![left, old];
        gone.sort();
        assert_eq!(reap(root.path()).unwrap(), gone);
        assert!(own.exists() && fresh.exists() && gone.iter().all(|path| !path.exists()));
        assert!(mine.make_folder(root.path(), "task-2").unwrap().join(LABEL).is_file());
    }
}
