//! Who owns a sandbox's host folder, and removing what a killed owner left.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use super::tree;

const LABEL: &str = "owner.json";

/// The label of a sandbox's folder. A process is known by its number and its start time together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    host: String,
    boot: String,
    pid: u32,
    start: u64,
}

impl Owner {
    /// This process.
    pub(super) fn here(name: &str, labels: &BTreeMap<String, String>) -> io::Result<Self> {
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

    /// Writes the label before anything else is in the folder.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        fs_err::write(folder.join(LABEL), serde_json::to_vec(self)?)
    }

    /// Whether the owner is certainly gone. Another machine's is left alone: pids mean nothing across machines.
    fn is_dead(&self) -> bool {
        self.host == host() && (self.boot != boot() || start_of(self.pid).ok() != Some(self.start))
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

/// Removes the folders below `root` whose owner is dead; gives their paths.
pub(super) fn reap(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    for (path, _) in labelled(root)?.into_iter().filter(|(_, owner)| owner.is_dead()) {
        remove(&path)?;
        removed.push(path);
    }
    Ok(removed)
}

/// Folders below `root` that are this process's own.
pub(super) fn own(root: &Path) -> io::Result<Vec<PathBuf>> {
    let here = Owner::here("", &BTreeMap::new())?;
    let mine = |owner: &Owner| {
        (&owner.host, &owner.boot, owner.pid, owner.start) == (&here.host, &here.boot, here.pid, here.start)
    };
    Ok(labelled(root)?
        .into_iter()
        .filter(|(_, owner)| mine(owner))
        .map(|(path, _)| path)
        .collect())
}

/// Removes a sandbox's folder, its label last: who is killed on the way leaves a folder that `reap` still knows.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
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
            fs_err::create_dir(root.path().join(name)).unwrap();
            owner.write(&root.path().join(name)).unwrap();
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
}
