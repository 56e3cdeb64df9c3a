//! The repository holds itself to its own rules: ranks, tidiness, generated files, examples.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

#[path = "repo/examples.rs"]
mod examples;
#[path = "repo/generated.rs"]
mod generated;
#[path = "repo/ranks.rs"]
mod ranks;
#[path = "repo/schema.rs"]
mod schema;
#[path = "repo/tidy.rs"]
mod tidy;

use std::path::{Path, PathBuf};

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("commands/ lies in the root")
        .to_owned()
}

/// Every file below a folder of the root with this ending, in order; there must be some.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let found = files_if_any(folder, ending);
    assert!(
        !found.is_empty(),
        "{folder} holds no *{ending}: these tests look in the wrong place"
    );
    found
}

/// The same where there may be none.
fn files_if_any(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root().join(folder)];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A path as people write it.
fn shown(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}
