//! The reward files and the script that writes them, as the Harbor task format has them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::Value;

use super::VerifierError;

const JSON: &str = "reward.json";
const TEXT: &str = "reward.txt";
/// Key of the scalar reward.
const SCALAR: &str = "reward";
/// Largest reward file.
const LIMIT: u64 = 64 * 1024;

/// The scalar, and every named reward.
pub type Rewards = (f64, BTreeMap<String, f64>);

/// The shell that a script's first line asks for, `sh` where it names none.
pub(super) fn shell(script: &Path) -> io::Result<String> {
    let mut first = Vec::new();
    BufReader::new(File::open(script)?)
        .take(256)
        .read_until(b'\n', &mut first)?;
    let first = String::from_utf8_lossy(&first);
    let mut words = first.strip_prefix("#!").unwrap_or_default().split_whitespace();
    let program = match words.next() {
        Some(env) if env.ends_with("/env") => words.next(),
        program => program,
    };
    let name = program.and_then(|path| path.rsplit('/').next());
    Ok(match name {
        Some("bash") => "bash".to_owned(),
        Some("sh" | "dash") | None => "sh".to_owned(),
        Some(other) => other.to_owned(),
    })
}

/// Reads reward.json, or reward.txt where it is not there.
pub(super) fn read(folder: &Path) -> Result<Rewards, VerifierError> {
    if let Some(text) = content(folder, JSON)? {
        return json(&text).map_err(|reason| VerifierError::Invalid { file: JSON, reason });
    }
    match content(folder, TEXT)? {
        Some(text) => plain(&text).map_err(|reason| VerifierError::Invalid { file: TEXT, reason }),
        None => Err(VerifierError::Missing { exit_code: 0 }),
    }
}

/// Whether both files are there and hold different rewards: one of them is not the tests' own.
pub(super) fn disagree(folder: &Path) -> bool {
    let reward = |file: &'static str, parse: fn(&str) -> Result<Rewards, String>| {
        let text = content(folder, file).ok()??;
        Some(parse(&text).ok()?.0)
    };
    match (reward(JSON, json), reward(TEXT, plain)) {
        (Some(one), Some(other)) => (one - other).abs() > 1e-9,
        _ => false,
    }
}

fn content(folder: &Path, file: &'static str) -> Result<Option<String>, VerifierError> {
    let invalid = |reason: String| VerifierError::Invalid { file, reason };
    // A link would be the sandbox's word on which host file is the reward; a fifo would never end.
    let opened = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(folder.join(file));
    let opened = match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|error| invalid(format!("not a readable file ({error})")))?,
    };
    if !opened.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(invalid("not a file".to_owned()));
    }
    let mut bytes = Vec::new();
    opened
        .take(LIMIT + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| invalid(error.to_string()))?;
    if bytes.len() as u64 > LIMIT {
        return Err(invalid(format!("larger than {LIMIT} bytes")));
    }
    String::from_utf8(bytes)
        .map(Some)
        .map_err(|_| invalid("not text".to_owned()))
}

fn finite(value: f64, what: &str) -> Result<f64, String> {
    // It is stored as f32: a number that only f64 can hold is no reward either.
    if value.is_finite() && (value as f32).is_finite() {
        Ok(value)
    } else {
        Err(format!("{what} is {value}, not a finite number"))
    }
}

fn plain(text: &str) -> Result<Rewards, String> {
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err("it is empty, expected one number".to_owned());
    }
    let shown: String = trimmed.chars().take(40).collect();
    let value = trimmed
        .parse::<f64>()
        .map_err(|_| format!("expected one number, found `{shown}`"))?;
    let value = finite(value, &format!("`{shown}`"))?;
    Ok((value, BTreeMap::from([(SCALAR.to_owned(), value)])))
}

fn json(text: &str) -> Result<Rewards, String> {
    if text.trim().is_empty() {
        return Err("it is empty, expected a number or an object of numbers".to_owned());
    }
    named(&serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?)
}

/// The scalar and all rewards of what reward.json holds.
///
/// # Errors
/// What is wrong with it.
pub fn named(value: &Value) -> Result<Rewards, String> {
    let number = |value: &Value, what: &str| match value.as_f64() {
        Some(number) => finite(number, what),
        None => Err(format!("{what} is `{value}`, not a number")),
    };
    match value {
        Value::Object(fields) => {
            let named = fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), number(value, &format!("`{key}`"))?)));
            let rewards = named.collect::<Result<BTreeMap<String, f64>, String>>()?;
            // One number is the reward whatever its name; among several none is chosen or averaged.
            let scalar = match (rewards.get(SCALAR), rewards.len()) {
                (Some(scalar), _) => *scalar,
                (None, 1) => rewards.values().copied().sum(),
                (None, n) => return Err(format!("{n} numbers and none of them is named `{SCALAR}`")),
            };
            Ok((scalar, rewards))
        }
        other => {
            let scalar = number(other, "the value")?;
            Ok((scalar, BTreeMap::from([(SCALAR.to_owned(), scalar)])))
        }
    }
}

/// Moves what was taken from the sandbox into the folder of logs, over an earlier attempt's.
pub(super) fn keep(taken: &Path, logs: &Path) -> io::Result<()> {
    for entry in fs_err::read_dir(taken)? {
        let entry = entry?;
        let target = logs.join(entry.file_name());
        match fs_err::symlink_metadata(&target) {
            Ok(meta) if meta.is_dir() => fs_err::remove_dir_all(&target)?,
            Ok(_) => fs_err::remove_file(&target)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        fs_err::rename(entry.path(), &target)?;
    }
    Ok(())
}
