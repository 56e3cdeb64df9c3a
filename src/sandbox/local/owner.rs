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

/// Removes the folders below `root` whose owner is dead; gives their paths.
///
/// A folder without a readable label is not ours to judge and stays.
pub(super) fn reap(root: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs_err::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let parent = File::open(root)?;
    let mut removed = Vec::new();
    for entry in entries {
        let entry = entry?;
        let Ok(label) = fs_err::read(entry.path().join(LABEL)) else {
            continue;
        };
        let Ok(owner) = serde_json::from_slice::<Owner>(&label) else {
            continue;
        };
        if owner.is_dead() {
            tree::remove(parent.as_fd(), &entry.file_name())?;
            removed.push(entry.path());
        }
    }
    removed.sort();
    Ok(removed)
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
        let removed = reap(root.path()).unwrap();
        assert_eq!(removed, [root.path().join("rebooted"), root.path().join("reused")]);
        assert!(reap(&root.path().join("missing")).unwrap().is_empty());
        for name in ["mine", "elsewhere", "foreign"] {
            assert!(root.path().join(name).exists(), "{name}");
        }
    }
}
