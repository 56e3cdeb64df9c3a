//! What a container needs to run our init, whatever its image holds: the executable, its loader, its libraries.
//!
//! They are mounted read-only below one folder, and the loader is named on the command line: an image without any
//! library, or with another C library, runs it too.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::sandbox::{INIT_COMMAND, SandboxError};

/// Folder inside that holds them.
pub(super) const INSIDE: &str = "/.lego";
/// Socket inside at which the host waits.
pub(super) const SOCKET: &str = "/.lego/init.sock";
/// Time for the loader's answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Files of this machine and where they go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Runtime {
    /// Host path and path inside.
    pub(super) files: Vec<(PathBuf, String)>,
    /// The init's command line inside.
    pub(super) command: Vec<String>,
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
    let mut command = Vec::new();
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
            command = [&format!("{INSIDE}/{name}"), "--library-path", &format!("{INSIDE}/lib")]
                .map(str::to_owned)
                .to_vec();
        }
    }
    command.extend([&format!("{INSIDE}/lego"), INIT_COMMAND, SOCKET].map(str::to_owned));
    Runtime { files, command }
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
            found.command.join(" "),
            "/.lego/ld-linux-x86-64.so.2 --library-path /.lego/lib /.lego/lego __sandbox-init /.lego/init.sock"
        );
        let found = parse(Path::new("/bin/lego"), "lego 0.1.0\n");
        assert_eq!(found.command.join(" "), "/.lego/lego __sandbox-init /.lego/init.sock");
        assert_eq!(found.files.len(), 1);
    }
}
