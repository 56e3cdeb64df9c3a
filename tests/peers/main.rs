//! Against what users have: real libraries and agents. `tests/run` installs what these tests need.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod quickstart;
mod shards;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The Python that `tests/run` made, with the packages of requirements.txt.
fn python() -> PathBuf {
    let made = std::env::var_os("LEGO_PEERS_PYTHON").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    let python = made
        .or_else(|| cache.map(|cache| cache.join("lego/python/bin/python")))
        .unwrap();
    assert!(
        python.is_file(),
        "{} is not there: `tests/run` makes it; `tests/run --quick` does without these tests",
        python.display()
    );
    python
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
