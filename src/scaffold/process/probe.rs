//! Is the agent there, and which version? Asked once a run, in a sandbox of its own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Adapter;
use crate::config::ScaffoldSection;
use crate::sandbox::{ExecRequest, PATH, Sandbox};
use crate::scaffold::ScaffoldError;

/// Where a mounted folder may hold programs.
const PLACES: [&str; 4] = ["bin", "node_modules/.bin", ".bin", ""];
/// Time for an agent to tell its version; the first start of some is slow.
const PATIENCE: Duration = Duration::from_mins(2);
/// Exit code of a shell where a program is not there.
const NOT_FOUND: i32 = 127;
/// Said before the name of a program that the agent starts and that is not there.
const NEEDS: &str = "needs ";
/// Said before the name of the program that the agent's first line names and that is not there.
const RUN_BY: &str = "run by ";
/// Finds the program, what it needs and what its first line names; then asks it, where there is something to ask.
const QUESTION: &str = r#"
found=$(command -v -- "$0") || exit 127
for other in NEEDS; do command -v "$other" >/dev/null || { echo "needs $other"; exit 127; }; done
run_by() {
    if [ "${1##*/}" = env ]; then
        shift
        while :; do case $1 in -*|*=*) shift ;; *) break ;; esac; done
    fi
    [ -z "$1" ] || command -v -- "$1" >/dev/null || { echo "run by $1"; exit 127; }
}
first=$(head -c 256 -- "$found" 2>/dev/null | head -n 1 | tr -d '\\000')
case $first in '#!'*) set -f; run_by ${first#??}; set +f ;; esac
[ $# = 0 ] || exec "$0" "$@"
"#;
/// Tells the version of a Python package; the exit code is that of a program that is not there where it is not.
const PACKAGE_VERSION: &str = "import sys\n\
    from importlib import metadata\n\
    try: print(metadata.version(sys.argv[1]))\n\
    except metadata.PackageNotFoundError: sys.exit(127)";

/// The agent's PATH inside: mounted folders come first.
pub(super) fn path(section: &ScaffoldSection) -> String {
    let mounted = section.runtime_mount.iter().flat_map(|folder| {
        PLACES.map(|place| folder.join(place).to_string_lossy().trim_end_matches('/').to_owned() + ":")
    });
    mounted.collect::<String>() + PATH
}

/// The version of the agent that the sandbox holds.
///
/// # Errors
/// Where it is not there, does not run, or is another version than `scaffold.version`.
pub(super) async fn version(
    adapter: &dyn Adapter,
    section: &ScaffoldSection,
    sandbox: &dyn Sandbox,
) -> Result<String, ScaffoldError> {
    let wrong = |reason: String| ScaffoldError::Setup {
        agent: adapter.name().to_owned(),
        reason,
    };
    let program = adapter.program();
    let output = sandbox.exec(question(adapter, section)).await?;
    if output.exit_code == NOT_FOUND {
        let said = output.output.trim();
        let told = if let Some(other) = said.strip_prefix(NEEDS) {
            format!(
                "there is no `{other}` in the sandbox, which `{}` starts; install it",
                adapter.name()
            )
        } else if let Some(other) = said.strip_prefix(RUN_BY) {
            let path = path(section);
            format!(
                "`{program}` is in the sandbox, and `{other}`, by which its first line says that it is run, is not (PATH \
                 {path}); install it, or mount its folder too (`runtime_mount` below `[scaffold]`)"
            )
        } else {
            missing(adapter, section)
        };
        return Err(wrong(told));
    }
    let said = output.output.trim();
    if output.exit_code != 0 {
        return Err(wrong(format!(
            "`{program}` does not run in the sandbox (exit code {}): {said}",
            output.exit_code
        )));
    }
    let found = first_version(said).unwrap_or_default().to_owned();
    match &section.version {
        Some(wanted) if *wanted != found => Err(wrong(format!(
            "scaffold.version asks for {wanted}, and the sandbox holds {}; install that version or change the key",
            if found.is_empty() {
                "a program that tells none"
            } else {
                &found
            }
        ))),
        _ => Ok(found),
    }
}

/// Asks for the program, what it needs and its version.
fn question(adapter: &dyn Adapter, section: &ScaffoldSection) -> ExecRequest {
    let needs = adapter.also_needs().join(" ");
    let mut request = ExecRequest::shell(QUESTION.replace("NEEDS", &needs));
    request.argv.push(adapter.program().to_owned());
    if let Some(package) = adapter.package() {
        let words = ["-c", PACKAGE_VERSION, package.name];
        request.argv.extend(words.map(str::to_owned));
    } else {
        let words = adapter.version_args().unwrap_or_default();
        request.argv.extend(words.iter().map(|word| (*word).to_owned()));
    }
    request.env.insert("PATH".to_owned(), path(section));
    request.env.extend(section.env.clone());
    request.timeout = PATIENCE;
    request
}

/// The same message without a sandbox: its PATH leads to this machine's own folders.
pub(super) fn missing_here(adapter: &dyn Adapter, section: &ScaffoldSection) -> Option<String> {
    let program = adapter.program();
    let there = if let Some(package) = adapter.package() {
        is_installed(section, package.folder)
    } else if program.contains('/') {
        Path::new(program).is_file()
    } else {
        on_path(&std::env::split_paths(&path(section)).collect::<Vec<_>>(), program).is_some()
    };
    (!there).then(|| missing(adapter, section))
}

/// Whether a Python that the agent would find holds this folder.
fn is_installed(section: &ScaffoldSection, folder: &str) -> bool {
    let system = ["/usr/local", "/usr"].map(PathBuf::from);
    let libraries = section
        .runtime_mount
        .iter()
        .chain(&system)
        .map(|prefix| prefix.join("lib"));
    let pythons = libraries
        .filter_map(|library| std::fs::read_dir(library).ok())
        .flatten()
        .flatten();
    pythons
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .flat_map(|entry| ["site-packages", "dist-packages"].map(|place| entry.path().join(place).join(folder)))
        .any(|found| found.is_dir())
}

/// What a person can do about a program that is not inside.
fn missing(adapter: &dyn Adapter, section: &ScaffoldSection) -> String {
    let program = adapter.program();
    if let Some(package) = adapter.package() {
        return format!(
            "there is no Python package `{}` in the sandbox (`{program}` of PATH {}). Install it ({}), and write the \
             environment's folder as `runtime_mount` below `[scaffold]`, and that of the Python it was made from unless \
             that is below /usr",
            package.name,
            path(section),
            adapter.install()
        );
    }
    let mut text = format!("there is no `{program}` in the sandbox (PATH {})", path(section));
    let here =
        std::env::var_os("PATH").and_then(|path| on_path(&std::env::split_paths(&path).collect::<Vec<_>>(), program));
    match here {
        Some(found) => {
            let folder = found.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
            text += &format!(
                ". This machine has {}, which a sandbox does not see: write `runtime_mount = [\"{}\"]` below `[scaffold]`",
                found.display(),
                folder.display()
            );
        }
        None => {
            text += &format!(
                ". Install it ({}), and write its folder as `runtime_mount` below `[scaffold]` unless it is below /usr",
                adapter.install()
            );
        }
    }
    text
}

fn on_path(folders: &[PathBuf], program: &str) -> Option<PathBuf> {
    folders
        .iter()
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// The first word that looks like `1.2` or `1.2.3`, whatever stands around it.
fn first_version(text: &str) -> Option<&str> {
    text.split_whitespace()
        .map(|word| {
            word.trim_matches(|c: char| !c.is_ascii_alphanumeric())
                .trim_start_matches('v')
        })
        .find(|word| {
            let mut parts = word.split('.');
            let number = |part: Option<&str>| part.is_some_and(|part| part.starts_with(|c: char| c.is_ascii_digit()));
            number(parts.next()) && number(parts.next())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_agents_print() {
        for (said, expected) in [
            ("2.1.197 (Claude Code)", Some("2.1.197")),
            ("codex-cli 0.171.0", Some("0.171.0")),
            ("1.18.33", Some("1.18.33")),
            (
                "This is mini-swe-agent version 2.4.6.\nCheck the v2 migration guide",
                Some("2.4.6"),
            ),
            ("hello", None),
        ] {
            assert_eq!(first_version(said), expected, "{said}");
        }
    }

    /// The shell's part, asked on this machine.
    #[test]
    fn what_runs_an_agent_is_looked_for_too() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let asked = |first_line: &str| {
            let agent = folder.path().join("agent");
            std::fs::write(&agent, format!("{first_line}\necho 1.2.3\n")).unwrap();
            std::fs::set_permissions(&agent, std::fs::Permissions::from_mode(0o755)).unwrap();
            let mut sh = std::process::Command::new("sh");
            sh.args(["-c", &QUESTION.replace("NEEDS", ""), "agent", "--version"]);
            let path = std::env::join_paths([folder.path(), Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
            let output = sh.env("PATH", path).output().unwrap();
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
            (output.status.code(), String::from_utf8(output.stdout).unwrap())
        };
        let found = (Some(0), "1.2.3\n".to_owned());
        for first_line in [
            "#!/bin/sh",
            "#! /bin/sh -e",
            "#!/usr/bin/env sh",
            "#!/usr/bin/env -S sh -e",
            "",
        ] {
            assert_eq!(asked(first_line), found, "{first_line}");
        }
        for (first_line, other) in [
            ("#!/usr/bin/env no-such-node", "no-such-node"),
            ("#!/usr/bin/env -S A=1 no-such-node --flag", "no-such-node"),
            ("#!/opt/no-such/bin/python3 -s", "/opt/no-such/bin/python3"),
        ] {
            assert_eq!(asked(first_line), (Some(NOT_FOUND), format!("{RUN_BY}{other}\n")));
        }
    }

    #[test]
    fn mounted_folders_come_first() {
        let section = ScaffoldSection {
            runtime_mount: vec!["/opt/agents".into()],
            ..ScaffoldSection::default()
        };
        let path = path(&section);
        assert!(
            path.starts_with("/opt/agents/bin:/opt/agents/node_modules/.bin:/opt/agents/.bin:/opt/agents:/usr"),
            "{path}"
        );
    }
}
