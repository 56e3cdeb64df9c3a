//! What a container needs to run our init, whatever its image holds: the executable, its loader, its libraries.
//!
//! They are mounted read-only below one folder, and the loader is named on the command line: an image without any
//! library, or with another C library, runs it too. An engine of this machine mounts the very files; elsewhere they go
//! there packed, or lie in an image of their own.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::sandbox::{INIT_COMMAND, SandboxError};

/// Folder inside that holds them.
pub(super) const INSIDE: &str = "/.lego";
/// Time for the loader's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Files of this machine and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runtime {
    /// Host path and path inside.
    pub(super) files: Vec<(PathBuf, String)>,
    /// The beginning of the executable's command line inside.
    program: Vec<String>,
}

impl Runtime {
    /// Command line of the init inside, or of what else the executable is there, by these arguments.
    pub(super) fn command(&self, arguments: &[&str]) -> Vec<String> {
        let mut command = self.program.clone();
        command.push(INIT_COMMAND.to_owned());
        command.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        command
    }

    /// The files as a compressed archive, by their paths below [`INSIDE`].
    pub(super) fn pack(&self) -> io::Result<Vec<u8>> {
        let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        let mut archive = tar::Builder::new(packed);
        for (from, to) in &self.files {
            let bytes = loaded(fs_err::read(from)?);
            let mut header = tar::Header::new_ustar();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o755);
            header.set_mtime(1);
            archive.append_data(&mut header, below(to), bytes.as_slice())?;
        }
        archive.into_inner()?.finish()
    }
}

/// A path below [`INSIDE`], relative to it.
fn below(inside: &str) -> &str {
    inside.strip_prefix(INSIDE).unwrap_or(inside).trim_start_matches('/')
}

/// What of an executable of 64 bits is ever loaded: behind that lie names and lines for debuggers, often most of it.
/// Anything else stays as it is.
fn loaded(mut bytes: Vec<u8>) -> Vec<u8> {
    let number = |at: usize, length: usize| -> Option<u64> {
        let field = bytes.get(at..at + length)?;
        Some(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let end = || {
        // ELF, 64 bits, little-endian.
        bytes.starts_with(b"\x7fELF\x02\x01").then_some(())?;
        let (table, size, count) = (
            number(32, 8)? as usize,
            number(54, 2)? as usize,
            number(56, 2)? as usize,
        );
        let mut end = table + size * count;
        for at in (0..count).map(|at| table + at * size) {
            end = end.max(number(at + 8, 8)?.checked_add(number(at + 32, 8)?)? as usize);
        }
        (end <= bytes.len()).then_some(end)
    };
    if let Some(end) = end() {
        bytes.truncate(end);
        // Where the table of sections was, and how many.
        bytes[40..48].fill(0);
        bytes[60..64].fill(0);
    }
    bytes
}

/// Copies this very executable and what it needs to a folder, under the names that they have below [`INSIDE`].
pub(super) fn unpack(folder: &Path) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime
        .block_on(find(Path::new("/proc/self/exe")))
        .map_err(io::Error::other)?;
    for (from, to) in &found.files {
        let to = folder.join(below(to));
        fs_err::create_dir_all(to.parent().unwrap_or(folder))?;
        io::copy(&mut File::open(from)?.take(u64::MAX), &mut fs_err::File::create(&to)?)?;
        fs_err::set_permissions(&to, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Asks the executable's loader what it needs.
pub(super) async fn find(exe: &Path) -> Result<Runtime, SandboxError> {
    let failed = |reason: String| SandboxError::Engine {
        what: "the sandbox's init cannot be prepared",
        reason: format!("{}: {reason}", exe.display()),
    };
    let exe = fs_err::canonicalize(exe).map_err(|error| failed(error.to_string()))?;
    // The loader prints what it would load, and runs nothing. A static executable has none, and gets a command
    // that does nothing.
    let asked = Command::new(&exe)
        .arg("--version")
        .env("LD_TRACE_LOADED_OBJECTS", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(ANSWER, asked)
        .await
        .map_err(|_| failed(format!("its loader did not answer within {ANSWER:?}")))?
        .map_err(|error| failed(error.to_string()))?;
    Ok(parse(&exe, &String::from_utf8_lossy(&output.stdout)))
}

fn parse(exe: &Path, loaded: &str) -> Runtime {
    let mut files = vec![(exe.to_owned(), format!("{INSIDE}/lego"))];
    let mut program = Vec::new();
    for line in loaded.lines().map(str::trim) {
        let path = match line.split_once(" => ") {
            Some((_, rest)) => rest,
            None => line,
        };
        let Some((path, address)) = path.rsplit_once(" (0x") else {
            continue;
        };
        let (path, Some(name)) = (Path::new(path), Path::new(path).file_name()) else {
            continue;
        };
        // The kernel's own part has no file.
        if !path.is_absolute() || !address.ends_with(')') {
            continue;
        }
        let name = name.to_string_lossy();
        if line.contains(" => ") {
            files.push((path.to_owned(), format!("{INSIDE}/lib/{name}")));
        } else {
            files.push((path.to_owned(), format!("{INSIDE}/{name}")));
            program = [&format!("{INSIDE}/{name}"), "--library-path", &format!("{INSIDE}/lib")]
                .map(str::to_owned)
                .to_vec();
        }
    }
    program.push(format!("{INSIDE}/lego"));
    Runtime { files, program }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loader_and_every_library_are_found() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f1)\n";
        let found = parse(Path::new("/bin/lego"), text);
        let files: Vec<(&str, &str)> = found
            .files
            .iter()
            .map(|(host, inside)| (host.to_str().unwrap(), inside.as_str()))
            .collect();
        assert_eq!(
            files,
            [
                ("/bin/lego", "/.lego/lego"),
                ("/lib/x86_64-linux-gnu/libc.so.6", "/.lego/lib/libc.so.6"),
                ("/lib64/ld-linux-x86-64.so.2", "/.lego/ld-linux-x86-64.so.2"),
            ]
        );
        assert_eq!(
            found.command(&["/.lego/init.sock"]).join(" "),
            "/.lego/ld-linux-x86-64.so.2 --library-path /.lego/lib /.lego/lego __sandbox-init /.lego/init.sock"
        );
        let found = parse(Path::new("/bin/lego"), "lego 0.1.0\n");
        assert_eq!(
            found.command(&["/.lego/init.sock"]).join(" "),
            "/.lego/lego __sandbox-init /.lego/init.sock"
        );
        assert_eq!(found.files.len(), 1);
    }

    #[test]
    fn what_is_packed_still_runs() {
        let folder = tempfile::tempdir().unwrap();
        let own = std::env::current_exe().unwrap();
        let whole = fs_err::read(&own).unwrap();
        let part = loaded(whole.clone());
        assert!(part.len() < whole.len(), "a test's executable has names for debuggers");
        assert_eq!(loaded(b"#!/bin/sh\n".to_vec()), b"#!/bin/sh\n");
        let copy = folder.path().join("copy");
        fs_err::write(&copy, part).unwrap();
        fs_err::set_permissions(&copy, std::fs::Permissions::from_mode(0o755)).unwrap();
        let listed = std::process::Command::new(&copy).arg("--list").output().unwrap();
        assert!(
            String::from_utf8_lossy(&listed.stdout).contains("what_is_packed_still_runs"),
            "{listed:?}"
        );

        let runtime = parse(&own, "");
        let packed = runtime.pack().unwrap();
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(packed.as_slice()));
        let names: Vec<PathBuf> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().into())
            .collect();
        assert_eq!(names, [PathBuf::from("lego")]);
    }
}
