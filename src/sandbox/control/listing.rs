//! What lay below a folder at one moment, and what changed since.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;

use serde::{Deserialize, Serialize};

/// Most files that are compared.
pub(in crate::sandbox) const MOST: usize = 500_000;
/// Bytes of one file's line, about.
const LINE: u64 = 4200;

/// Bytes of content that are read for one listing; of what lies beyond, only its times are compared.
pub(in crate::sandbox) const CONTENT: u64 = 512 << 20;

/// A file or link.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::sandbox) struct Entry {
    pub(in crate::sandbox) mode: u32,
    pub(in crate::sandbox) size: i64,
    /// Seconds and nanoseconds of `ctime`, which nothing inside can set back.
    pub(in crate::sandbox) changed: (i64, i64),
    /// Of its content, where that was read: a file that was moved away and back is the same one.
    pub(in crate::sandbox) digest: Option<[u8; 16]>,
}

impl Entry {
    fn is_same(&self, other: &Self) -> bool {
        let content = self.digest.is_some() && self.digest == other.digest;
        (self.mode, self.size) == (other.mode, other.size) && (content || self.changed == other.changed)
    }
}

/// Paths relative to the folder.
pub(in crate::sandbox) type Listing = BTreeMap<String, Entry>;

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Listing(Listing),
    Failed(String),
}

/// Reads what the init's `listing` writes.
pub(in crate::sandbox) fn read(stream: UnixStream) -> io::Result<Listing> {
    let mut text = Vec::new();
    File::from(std::os::fd::OwnedFd::from(stream))
        .take(MOST as u64 * LINE)
        .read_to_end(&mut text)?;
    match serde_json::from_slice(&text)? {
        Answer::Listing(listing) => Ok(listing),
        Answer::Failed(reason) => Err(io::Error::other(reason)),
    }
}

/// Paths that were added, changed or removed, sorted.
pub(in crate::sandbox) fn changes(before: &Listing, now: &Listing) -> Vec<String> {
    let gone = before.keys().filter(|path| !now.contains_key(*path));
    let new = now
        .iter()
        .filter(|(path, entry)| !before.get(*path).is_some_and(|then| then.is_same(entry)));
    let mut paths: Vec<String> = gone.chain(new.map(|(path, _)| path)).cloned().collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_changed_or_removed_is_named() {
        let entry = |size, at| Entry {
            mode: 0o100_644,
            size,
            changed: (at, 0),
            digest: (size > 5).then_some([7; 16]),
        };
        let listing = |entries: &[(&str, i64, i64)]| -> Listing {
            let entries = entries.iter();
            entries
                .map(|(path, size, at)| ((*path).to_owned(), entry(*size, *at)))
                .collect()
        };
        let before = listing(&[
            ("a", 1, 5),
            ("gone", 1, 5),
            ("same", 2, 5),
            ("touched", 3, 5),
            ("moved", 6, 5),
        ]);
        let now = listing(&[
            ("a", 2, 9),
            ("new/b", 1, 9),
            ("same", 2, 5),
            ("touched", 3, 6),
            ("moved", 6, 9),
        ]);
        assert_eq!(changes(&before, &now), ["a", "gone", "new/b", "touched"]);
        assert!(changes(&now, &now).is_empty());
    }
}
