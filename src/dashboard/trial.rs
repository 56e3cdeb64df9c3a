//! One trial in full: what it was told, what it did, what the verifier said, and its files. Paths come from the run's
//! own records and listings, never from an address.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::redact::{redact, redact_json};
use super::run::Run;
use super::trials::Trial;

/// Bytes of a file that are shown.
const MOST_TEXT: usize = 256 << 10;
/// Bytes of a transcript that are read.
const MOST_TRANSCRIPT: u64 = 16 << 20;
/// Files that are listed.
const MOST_FILES: usize = 200;

/// The trial's folder, where it is still there.
pub(super) fn folder(run: &Run, trial: &Trial) -> Option<PathBuf> {
    let folder = run.dir()?.trial(u64::from(trial.step), trial.validation, &trial.name);
    folder.is_dir().then_some(folder)
}

/// A trial by its number.
pub(super) fn detail(run: &Run, index: usize) -> Option<Value> {
    let (trial, neighbours) = run.with_trials(|trials| {
        let trial = trials.list.get(index)?.clone();
        let group: Vec<Value> = trials
            .list
            .iter()
            .enumerate()
            .filter(|(_, other)| other.task == trial.task && other.step == trial.step && other.validation == trial.validation)
            .map(|(at, other)| json!({"i": at, "reward": super::series::number(f64::from(other.reward)), "outcome": &*other.outcome}))
            .take(64)
            .collect();
        Some((trial, group))
    })?;
    let mut value = json!({"trial": trial.to_json(index), "group": neighbours});
    let Some(folder) = folder(run, &trial) else {
        value["missing"] = json!("the trial's folder is gone: only what the shards keep is shown");
        return Some(value);
    };
    for (key, file) in [("trajectory", "trajectory.json"), ("result", "result.json")] {
        match read_json(&folder.join(file)) {
            Ok(Some(mut found)) => {
                redact_json(&mut found);
                value[key] = found;
            }
            Ok(None) => {}
            Err(error) => value["trouble"] = json!(format!("{file}: {error}")),
        }
    }
    let verifier = [
        "test-stdout.txt",
        "test-stderr.txt",
        "reward.txt",
        "reward.json",
        "report.json",
    ];
    let texts: Vec<Value> = verifier
        .iter()
        .filter_map(|name| Some(json!({"name": name, "text": text(&folder.join("verifier").join(name)).ok()?})))
        .collect();
    value["verifier"] = json!(texts);
    let files: Vec<Value> = files(&folder)
        .iter()
        .enumerate()
        .map(|(at, (name, size))| json!({"n": at, "name": name, "size": size}))
        .collect();
    value["files"] = json!(files);
    value["folder"] = json!(folder);
    Some(value)
}

/// One of the trial's files, by its place in the list.
pub(super) fn file(run: &Run, index: usize, number: usize) -> Option<Value> {
    let trial = run.with_trials(|trials| trials.list.get(index).cloned())?;
    let folder = folder(run, &trial)?;
    let (name, size) = files(&folder).into_iter().nth(number)?;
    let text = text(&folder.join(&name)).unwrap_or_else(|error| error.to_string());
    Some(json!({"name": name, "size": size, "text": text}))
}

fn read_json(path: &Path) -> Result<Option<Value>, String> {
    let Ok(about) = std::fs::symlink_metadata(path) else {
        return Ok(None);
    };
    if !about.is_file() || about.len() > MOST_TRANSCRIPT {
        return Err(format!("{} bytes are more than the page shows", about.len()));
    }
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| error.to_string())
}

/// The beginning and the end of a file. No link is followed: the agent wrote what is here.
fn text(path: &Path) -> std::io::Result<String> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let about = std::fs::symlink_metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("no plain file"));
    }
    let mut file = std::fs::File::open(path)?;
    let mut bytes = Vec::new();
    if about.len() as usize <= MOST_TEXT {
        file.take(MOST_TEXT as u64).read_to_end(&mut bytes)?;
        return Ok(redact(&String::from_utf8_lossy(&bytes)));
    }
    let half = (MOST_TEXT / 2) as u64;
    (&mut file).take(half).read_to_end(&mut bytes)?;
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(about.len() - half))?;
    file.take(half).read_to_end(&mut end)?;
    let left = about.len() - 2 * half;
    Ok(redact(&format!(
        "{}\n… {left} bytes left out …\n{}",
        String::from_utf8_lossy(&bytes),
        String::from_utf8_lossy(&end)
    )))
}

fn files(folder: &Path) -> Vec<(String, u64)> {
    let (mut found, mut folders) = (Vec::new(), vec![(folder.to_owned(), 0)]);
    while let Some((at, depth)) = folders.pop() {
        for entry in std::fs::read_dir(&at).into_iter().flatten().flatten() {
            let Ok(about) = std::fs::symlink_metadata(entry.path()) else {
                continue;
            };
            if about.is_dir() && depth < 4 {
                folders.push((entry.path(), depth + 1));
            } else if about.is_file()
                && let Ok(name) = entry.path().strip_prefix(folder)
            {
                found.push((name.to_string_lossy().into_owned(), about.len()));
            }
            if found.len() >= MOST_FILES {
                break;
            }
        }
    }
    found.sort();
    found
}
