//! Takes a log of steps back to a checkpoint: later lines move aside, so that each step stands once.

use std::io::Write as _;
use std::path::Path;

use fs_err as fs;

use super::RunDirError;
use crate::task::write_atomically;

/// Moves the lines of steps after `last` from `path` to `<path>.voided`; a torn last line counts as one.
///
/// `step_of` gives the step of a line, `None` for a line that is torn. A torn line before the last is an
/// error: something else than a crash has damaged the file. Returns how many lines moved.
pub(super) fn rewind(path: &Path, last: u64, step_of: impl Fn(&str) -> Option<u64>) -> Result<usize, RunDirError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (mut kept, mut voided) = (String::new(), String::new());
    let mut moved = 0;
    for (at, line) in lines.iter().enumerate() {
        let whole = line.ends_with('\n');
        match step_of(line.trim_end()).filter(|_| whole) {
            Some(step) if step <= last => kept.push_str(line),
            None if whole && at + 1 < lines.len() => {
                let reason = format!(
                    "line {} is damaged; move the file away to go on without its history",
                    at + 1
                );
                return Err(RunDirError::Damaged {
                    path: path.to_owned(),
                    reason,
                });
            }
            _ => {
                moved += 1;
                voided.push_str(line.trim_end());
                voided.push('\n');
            }
        }
    }
    if moved > 0 {
        let mut name = path.as_os_str().to_owned();
        name.push(".voided");
        let mut aside = fs::OpenOptions::new().create(true).append(true).open(name)?;
        aside.write_all(voided.as_bytes())?;
        aside.sync_all()?;
        write_atomically(path, |file| Ok::<_, RunDirError>(file.write_all(kept.as_bytes())?))?;
    }
    Ok(moved)
}
