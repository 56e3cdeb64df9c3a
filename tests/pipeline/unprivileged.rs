//! The main command as a user who may do nothing special, on files that belong to another.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

use super::{SMALL, quickstart, succeeded};

const NOBODY: u32 = 65534;

/// Copies a file, or a folder with what is in it, so that everybody can read it.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        std::fs::create_dir_all(to).unwrap();
        for entry in std::fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        std::fs::copy(from, to).unwrap();
    }
    open(to);
}

fn open(path: &Path) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_user_without_privileges_trains() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let (program, example, runs) = (
        folder.path().join("lego"),
        folder.path().join("quickstart"),
        folder.path().join("runs"),
    );
    copy(Path::new(env!("CARGO_BIN_EXE_lego")), &program);
    copy(quickstart().parent().unwrap(), &example);
    std::fs::create_dir(&runs).unwrap();
    let mut command = Command::new(&program);
    command
        .arg("train")
        .arg(example.join("run.toml"))
        .args(["--steps", "2", "--set"])
        .arg(format!("run.dir={}", runs.display()))
        .current_dir(&runs)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
    for value in SMALL {
        command.args(["--set", value]);
    }
    // The user of these tests, unless that is root.
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        chown(&runs, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    succeeded(&command.output().unwrap());
    assert!(runs.join("quickstart/checkpoints/latest/model.safetensors").is_file());
}
