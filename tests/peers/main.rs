//! Against what users have: real libraries and agents. `tests/run` installs what these tests need.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod agents;
mod browser;
mod bucket;
mod docker;
mod harbor;
mod hub;
mod kubernetes;
mod plugin;
mod prepare;
#[path = "../pipeline/process.rs"]
mod process;
mod quickstart;
mod shards;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder of what `tests/run` installed.
fn peers(name: &str) -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let made = std::env::var_os("LEGO_PEERS").map(PathBuf::from);
    let folder = made
        .or_else(|| cache.map(|cache| cache.join("lego/peers")))
        .unwrap()
        .join(name);
    assert!(
        folder.join("installed").is_file(),
        "{} is not there: `tests/run` makes it; `tests/run --quick` does without these tests",
        folder.display()
    );
    folder
}

/// The Python with the packages of pip/readers.txt.
fn python() -> PathBuf {
    peers("pip/readers").join("bin/python")
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Runs a command to its end and hands over what it wrote.
fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {:?}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    output
}
