//! Which runs there are below some folders: ours, and logs of others; and what was passed over, with the reason.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::run_dir::RunDir;

/// How deep folders are looked into.
const DEEPEST: usize = 3;
/// Entries that are looked at in all; more are passed over, and told.
const MOST_ENTRIES: usize = 50_000;
/// Bytes of a log in which its first `step:` line must be.
const HEAD: u64 = 4 << 20;
/// Files that may be logs with steps.
const LOGS: [&str; 4] = ["log", "txt", "out", "jsonl"];

/// Where a run's metrics come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A run directory of ours.
    Ours,
    /// A log of another system.
    Log,
}

/// A run that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// For addresses: its name and a short hash of its place.
    pub(super) id: String,
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) kind: Kind,
}

/// Something that was passed over.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// The file or folder.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

/// What is below some folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Finds {
    pub(super) runs: Vec<Found>,
    pub(super) skipped: Vec<Skipped>,
}

pub(super) fn find(roots: &[PathBuf]) -> Finds {
    let mut finds = Finds::default();
    let mut left = MOST_ENTRIES;
    for root in roots {
        let root = std::path::absolute(root).unwrap_or_else(|_| root.clone());
        look(&root, 0, &mut left, &mut finds);
    }
    finds.runs.sort_by(|one, other| one.path.cmp(&other.path));
    finds.runs.dedup_by(|one, other| one.path == other.path);
    finds
}

fn look(path: &Path, depth: usize, left: &mut usize, finds: &mut Finds) {
    let mut skip = |reason: String| {
        finds.skipped.push(Skipped {
            path: path.to_owned(),
            reason,
        });
    };
    if *left == 0 {
        return;
    }
    *left -= 1;
    if *left == 0 {
        skip(format!(
            "more than {MOST_ENTRIES} entries: what comes after this one was not looked at; name a smaller folder"
        ));
        return;
    }
    if path.is_file() {
        match log(path, depth == 0) {
            Ok(true) => finds.runs.push(found(path, Kind::Log)),
            Ok(false) if depth == 0 => skip("no line `step:N - key:value` in it".to_owned()),
            Ok(false) => {}
            Err(error) => skip(error.to_string()),
        }
        return;
    }
    if RunDir::open(path).is_ok() {
        finds.runs.push(found(path, Kind::Ours));
        return;
    }
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) => return skip(error.to_string()),
    };
    if depth == DEEPEST {
        return;
    }
    let mut entries: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    for entry in entries {
        let hidden = entry
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        // Links of folders may lead in circles.
        let linked = entry.is_symlink() && entry.is_dir();
        if !hidden && !linked {
            look(&entry, depth + 1, left, finds);
        }
    }
}

/// Whether a file is a log with steps; one that was named may have any ending.
fn log(path: &Path, named: bool) -> std::io::Result<bool> {
    let ending = path
        .extension()
        .map(|ending| ending.to_string_lossy().into_owned())
        .unwrap_or_default();
    if !named && !LOGS.contains(&ending.as_str()) {
        return Ok(false);
    }
    let mut head = Vec::new();
    std::fs::File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    let text = String::from_utf8_lossy(&head);
    Ok(!crate::run_dir::History::parse("", &text).steps().is_empty())
}

pub(super) fn found(path: &Path, kind: Kind) -> Found {
    let stem = if kind == Kind::Log {
        path.file_stem()
    } else {
        path.file_name()
    };
    let name = stem.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let hash = Sha256::digest(path.as_os_str().as_encoded_bytes());
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_') {
                c
            } else {
                '-'
            }
        })
        .take(48)
        .collect();
    Found {
        id: format!("{plain}-{:02x}{:02x}{:02x}", hash[0], hash[1], hash[2]),
        name,
        path: path.to_owned(),
        kind,
    }
}
