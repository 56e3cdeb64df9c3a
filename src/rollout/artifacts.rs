//! What a task wants kept of the environment: gathered by its `collect` commands, copied below the trial's `artifacts/`.
//!
//! As in Harbor: best effort, with a manifest of every attempt; `/logs/artifacts` is always among them; an entry
//! without a destination keeps its own path; of two that would overlap the first is kept.

use std::io::Write as _;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::run_dir::RunDirError;
use crate::sandbox::{ExecRequest, Sandbox, SandboxError};
use crate::task::{Artifact, CollectStep, Seconds, UserName, write_atomically};

/// Always collected.
const CONVENTION: &str = "/logs/artifacts";
const MANIFEST: &str = "manifest.json";
/// Time for a `collect` command where it names none.
const COLLECT: Duration = Duration::from_mins(1);
/// Bytes of one artifact.
const LIMIT: u64 = 1 << 30;
/// Containers beside the agent's exist in compose files only.
const MAIN: &str = "main";

/// A line of the manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    source: String,
    destination: String,
    #[serde(rename = "type")]
    kind: &'static str,
    status: &'static str,
    service: Option<String>,
    exclude: Vec<String>,
}

/// Runs the commands that gather what is to be kept. One that fails is warned of.
pub(super) async fn gather(sandbox: &dyn Sandbox, steps: &[CollectStep]) {
    for step in steps {
        let mut request = ExecRequest::shell(&step.command);
        request.user = step.user.as_ref().map(UserName::to_string);
        request.timeout = step.timeout_sec.map_or(COLLECT, Seconds::duration);
        let reason = match sandbox.exec(request).await {
            Ok(ran) if ran.exit_code == 0 => continue,
            Ok(ran) => format!("exit code {}: {}", ran.exit_code, ran.output.trim()),
            Err(error) => error.to_string(),
        };
        tracing::warn!(command = step.command, reason, "a collect command failed");
    }
}

fn wanted(artifacts: &[Artifact]) -> Vec<Artifact> {
    let main = |artifact: &Artifact| artifact.service.as_deref().is_none_or(|service| service == MAIN);
    let mut all = artifacts.to_vec();
    if !all
        .iter()
        .any(|artifact| main(artifact) && artifact.source.trim_end_matches('/') == CONVENTION)
    {
        let convention = Artifact {
            source: CONVENTION.to_owned(),
            destination: None,
            exclude: Vec::new(),
            service: None,
        };
        all.insert(0, convention);
    }
    all
}

/// A path below the folder of artifacts, whatever it says.
fn below(path: &str) -> PathBuf {
    Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// Where an artifact's source lies inside; a relative one is below the working folder.
fn inside(source: &str, workdir: &str) -> String {
    if source.starts_with('/') {
        source.to_owned()
    } else {
        format!("{}/{source}", workdir.trim_end_matches('/'))
    }
}

/// Copies the artifacts to the host folder `to` and writes the manifest.
///
/// # Errors
/// Where the host's folder cannot be written. An artifact that is not there is a line of the manifest.
pub(super) async fn collect(
    sandbox: &dyn Sandbox,
    artifacts: &[Artifact],
    workdir: &str,
    to: &Path,
) -> Result<Vec<Entry>, RunDirError> {
    let mut entries = Vec::new();
    let mut claimed: Vec<PathBuf> = Vec::new();
    for artifact in wanted(artifacts) {
        let relative = below(artifact.destination.as_deref().unwrap_or(&artifact.source));
        let overlaps = claimed
            .iter()
            .any(|other| other.starts_with(&relative) || relative.starts_with(other));
        let reserved = relative.as_os_str().is_empty() || relative == Path::new(MANIFEST);
        let elsewhere = artifact.service.as_deref().is_some_and(|service| service != MAIN);
        let target = to.join(&relative);
        let status = if overlaps || reserved {
            "skipped"
        } else if elsewhere {
            "failed"
        } else {
            claimed.push(relative.clone());
            one(sandbox, &artifact, workdir, &target).await
        };
        // What was not looked for is told by its name; what is not there is no folder.
        let is_folder = if overlaps || reserved {
            Path::new(&artifact.source).extension().is_none()
        } else {
            target.is_dir() || status == "empty"
        };
        entries.push(Entry {
            destination: format!("artifacts/{}", relative.display()),
            kind: if is_folder { "directory" } else { "file" },
            status,
            service: artifact.service,
            exclude: if is_folder { artifact.exclude } else { Vec::new() },
            source: artifact.source,
        });
    }
    if entries.iter().any(|entry| entry.status != "empty") || !artifacts.is_empty() {
        let path = to.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&entries).map_err(|error| RunDirError::Damaged {
            path: path.clone(),
            reason: error.to_string(),
        })?;
        write_atomically(&path, |file| Ok::<_, RunDirError>(file.write_all(&text)?))?;
    }
    Ok(entries)
}

async fn one(sandbox: &dyn Sandbox, artifact: &Artifact, workdir: &str, target: &Path) -> &'static str {
    let source = inside(&artifact.source, workdir);
    match sandbox.download_within(&source, target, LIMIT).await {
        Ok(()) => {
            if target.is_dir() {
                let patterns: Vec<&str> = artifact.exclude.iter().map(String::as_str).collect();
                let excluded = exclude(target, target, &patterns);
                if excluded.is_err() {
                    return "failed";
                }
                if artifact.source.trim_end_matches('/') == CONVENTION && is_empty(target) {
                    let _ = fs_err::remove_dir(target);
                    return "empty";
                }
            }
            "ok"
        }
        Err(error) => {
            if !matches!(error, SandboxError::NotFound { .. }) {
                tracing::warn!(source, %error, "an artifact was not copied");
            }
            "failed"
        }
    }
}

fn is_empty(folder: &Path) -> bool {
    fs_err::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none())
}

/// Removes what a pattern names: by its own name, or by its path below the folder.
fn exclude(top: &Path, folder: &Path, patterns: &[&str]) -> std::io::Result<()> {
    if patterns.is_empty() {
        return Ok(());
    }
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let relative = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
        let is_folder = entry.file_type()?.is_dir();
        let hit = patterns.iter().any(|pattern| {
            let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
            matches(pattern, &name) || matches(pattern, &relative)
        });
        match (hit, is_folder) {
            (true, true) => fs_err::remove_dir_all(&path)?,
            (true, false) => fs_err::remove_file(&path)?,
            (false, true) => exclude(top, &path, patterns)?,
            (false, false) => {}
        }
    }
    Ok(())
}

/// A shell's pattern of `*` and `?`; as for tar, `*` crosses folders.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.chars().next() {
        None => text.is_empty(),
        Some('*') => text
            .char_indices()
            .map(|(at, _)| at)
            .chain([text.len()])
            .any(|at| matches(&pattern[1..], &text[at..])),
        Some('?') => text
            .chars()
            .next()
            .is_some_and(|c| matches(&pattern[1..], &text[c.len_utf8()..])),
        Some(c) => text
            .strip_prefix(c)
            .is_some_and(|rest| matches(&pattern[c.len_utf8()..], rest)),
    }
}

/// Puts what was collected into another sandbox, each at its original path.
///
/// # Errors
/// Where it cannot be moved.
pub(super) async fn carry(entries: &[Entry], from: &Path, to: &dyn Sandbox, workdir: &str) -> Result<(), SandboxError> {
    for entry in entries.iter().filter(|entry| entry.status == "ok") {
        let host = from.join(entry.destination.strip_prefix("artifacts/").unwrap_or_default());
        to.upload(&host, &inside(&entry.source, workdir)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_paths() {
        assert!(matches("*.log", "a.log") && matches("a/*", "a/b/c") && matches("?x", "ax"));
        assert!(!matches("*.log", "a.txt") && !matches("x", "xy"));
        assert_eq!(below("/var/../log/x"), Path::new("var/log/x"));
        assert_eq!(below("../../etc"), Path::new("etc"));
        assert_eq!(wanted(&[]).len(), 1);
    }

    #[test]
    fn what_is_excluded_goes() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["keep.txt", "a.log", "sub/b.log", "cache/c"] {
            let path = folder.path().join(file);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, "x").unwrap();
        }
        exclude(folder.path(), folder.path(), &["*.log", "cache/"]).unwrap();
        let left = |name: &str| folder.path().join(name).exists();
        assert!(left("keep.txt") && left("sub") && !left("a.log") && !left("sub/b.log") && !left("cache"));
    }
}
