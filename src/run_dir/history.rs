//! The metrics of a run as columns, read as the file grows: metrics.jsonl, or any log with `step:N - key:value` lines.
//!
//! Memory is that of the values (12 bytes each); the file goes through in bounded pieces and is never held whole.

use std::collections::HashMap;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::RunDirError;
use super::metrics_line::{LogLine, json_line};

/// Bytes read at a time.
const PIECE: usize = 1 << 20;
/// A longer line than this is no line of metrics.
const LONGEST_LINE: usize = 16 << 20;

/// Values of one metric: which row, and what.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Column {
    rows: Vec<u32>,
    values: Vec<f64>,
}

impl Column {
    /// Row numbers and values, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, f64)> {
        self.rows
            .iter()
            .map(|row| *row as usize)
            .zip(self.values.iter().copied())
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The newest value.
    pub fn last(&self) -> Option<f64> {
        self.values.last().copied()
    }

    fn cut(&mut self, rows: usize) {
        let keep = self.rows.partition_point(|row| (*row as usize) < rows);
        self.rows.truncate(keep);
        self.values.truncate(keep);
    }
}

/// The metrics of a run, one row a step.
#[derive(Debug, Clone, Default)]
pub struct History {
    path: PathBuf,
    /// Which file it was, and how much of it is read.
    inode: u64,
    offset: u64,
    torn: Vec<u8>,
    skipping: bool,
    steps: Vec<u64>,
    times: Vec<f64>,
    names: Vec<String>,
    columns: Vec<Column>,
    by_name: HashMap<String, usize>,
    attempt_row: usize,
    attempts: u32,
    damaged: usize,
    first_damage: Option<String>,
    lines: u64,
    revision: u64,
}

impl History {
    /// Nothing read yet.
    pub fn of(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            ..Self::default()
        }
    }

    /// Reads text that is in memory.
    pub fn parse(name: &str, text: &str) -> Self {
        let mut history = Self::of(name);
        history.take(text.as_bytes());
        history.end_of_text();
        history
    }

    /// Reads what was added since; all of it again where the file was replaced. True if anything changed. A file that
    /// is not there yet is empty.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn refresh(&mut self) -> Result<bool, RunDirError> {
        let mut file = match fs::File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let had = !self.steps.is_empty();
                self.reset();
                return Ok(had);
            }
            Err(error) => return Err(error.into()),
        };
        let about = file.metadata()?;
        let mut changed = false;
        if about.ino() != self.inode || about.len() < self.offset {
            changed = !self.steps.is_empty();
            self.reset();
            self.inode = about.ino();
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut piece = vec![0; PIECE.min((about.len() - self.offset) as usize + 1)];
        loop {
            let got = file.read(&mut piece)?;
            if got == 0 {
                break;
            }
            changed = true;
            self.offset += got as u64;
            self.take(&piece[..got]);
        }
        if changed {
            self.revision += 1;
        }
        Ok(changed)
    }

    fn reset(&mut self) {
        *self = Self {
            path: std::mem::take(&mut self.path),
            revision: self.revision + 1,
            ..Self::default()
        };
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            let (head, rest) = bytes.split_at(end);
            bytes = &rest[1..];
            if std::mem::take(&mut self.skipping) {
                self.torn.clear();
                continue;
            }
            if self.torn.is_empty() {
                self.line(&String::from_utf8_lossy(head));
            } else {
                let mut line = std::mem::take(&mut self.torn);
                line.extend_from_slice(head);
                self.line(&String::from_utf8_lossy(&line));
            }
        }
        if self.torn.len() + bytes.len() > LONGEST_LINE {
            self.skipping = true;
            self.torn = Vec::new();
        } else if !self.skipping {
            self.torn.extend_from_slice(bytes);
        }
    }

    fn end_of_text(&mut self) {
        if !self.torn.is_empty() {
            self.take(b"\n");
        }
    }

    fn line(&mut self, line: &str) {
        self.lines += 1;
        let line = line.trim();
        if line.starts_with('{') {
            match json_line(line) {
                Ok(line) => {
                    let seconds = line.seconds();
                    let row = self.row(line.step, seconds);
                    for (name, value) in line.values {
                        self.set(row, &name, value);
                    }
                }
                Err(reason) => self.note_damage(&reason),
            }
        } else if let Some(line) = LogLine::of(line) {
            let row = self.row(line.step, f64::NAN);
            line.each(|name, value| self.set(row, name, value));
        }
    }

    fn note_damage(&mut self, reason: &str) {
        self.damaged += 1;
        if self.first_damage.is_none() {
            self.first_damage = Some(format!("line {}: {reason}", self.lines));
        }
    }

    /// The row of a step. One that was there begins a new attempt: later rows of the old one go.
    fn row(&mut self, step: u64, time: f64) -> usize {
        if let Some(last) = self.steps.last() {
            if step == *last && (time.is_nan() || self.times[self.times.len() - 1].is_nan()) {
                // Logs that write several lines for a step.
                return self.steps.len() - 1;
            }
            if step <= *last {
                let keep = self.steps.partition_point(|known| *known < step);
                self.steps.truncate(keep);
                self.times.truncate(keep);
                self.columns.iter_mut().for_each(|column| column.cut(keep));
                self.attempt_row = keep;
                self.attempts += 1;
            }
        }
        self.steps.push(step);
        self.times.push(time);
        self.steps.len() - 1
    }

    fn set(&mut self, row: usize, name: &str, value: f64) {
        let at = if let Some(at) = self.by_name.get(name) {
            *at
        } else {
            self.by_name.insert(name.to_owned(), self.names.len());
            self.names.push(name.to_owned());
            self.columns.push(Column::default());
            self.names.len() - 1
        };
        let column = &mut self.columns[at];
        if column.rows.last() == Some(&(row as u32)) {
            if let Some(last) = column.values.last_mut() {
                *last = value;
            }
        } else {
            column.rows.push(row as u32);
            column.values.push(value);
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The step of each row, rising.
    pub fn steps(&self) -> &[u64] {
        &self.steps
    }

    /// When each row was written, in seconds since 1970; NaN in logs that do not say.
    pub fn times(&self) -> &[f64] {
        &self.times
    }

    /// Names, in the order in which they appeared.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The values of a metric.
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.by_name.get(name).map(|at| &self.columns[*at])
    }

    /// The first row of the newest attempt: 0 unless a step was written twice.
    pub fn attempt_row(&self) -> usize {
        self.attempt_row
    }

    /// How often the log went back to an earlier step.
    pub fn restarts(&self) -> u32 {
        self.attempts
    }

    /// Lines that are no metrics though they look like it, and where the first one is.
    pub fn damage(&self) -> Option<(usize, &str)> {
        self.first_damage.as_deref().map(|first| (self.damaged, first))
    }

    /// Changes whenever what was read changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn values(history: &History, name: &str) -> Vec<(usize, f64)> {
        history
            .column(name)
            .map(|column| column.iter().collect())
            .unwrap_or_default()
    }

    #[test]
    fn a_file_is_read_as_it_grows_and_again_when_it_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("metrics.jsonl");
        let mut history = History::of(&path);
        assert!(!history.refresh().unwrap());
        let line = |step: u64, value: f64| {
            format!("{{\"v\":1,\"step\":{step},\"time\":\"1970-01-01T00:00:0{step}Z\",\"a/b\":{value},\"c\":null}}\n")
        };
        let mut file = std::fs::File::create(&path).unwrap();
        write!(file, "{}{}", line(1, 0.5), &line(2, 0.75)[..30]).unwrap();
        assert!(history.refresh().unwrap());
        assert_eq!(history.steps(), [1], "a torn line waits");
        write!(file, "{}", &line(2, 0.75)[30..]).unwrap();
        history.refresh().unwrap();
        assert!(!history.refresh().unwrap(), "nothing new");
        assert_eq!(history.steps(), [1, 2]);
        assert_eq!(history.times(), [1.0, 2.0]);
        assert_eq!(values(&history, "a/b"), [(0, 0.5), (1, 0.75)]);
        assert!(history.column("c").unwrap().last().unwrap().is_nan());
        std::fs::write(folder.path().join("new"), line(1, 9.0)).unwrap();
        std::fs::rename(folder.path().join("new"), &path).unwrap();
        assert!(history.refresh().unwrap());
        assert_eq!(values(&history, "a/b"), [(0, 9.0)]);
    }

    #[test]
    fn logs_of_others_are_read_around_what_else_is_in_them() {
        let text = "INFO start\n(TaskRunner pid=7) step:1 - critic/score/mean:0.25 - actor/lr:np.float64(1e-06)\nnoise\n\
                    \u{1b}[36mstep:2 - critic/score/mean:0.5 - x:oops - time:at 12\u{1b}[0m\nstep:1 - critic/score/mean:0.75";
        let history = History::parse("log", text);
        assert_eq!(history.steps(), [1]);
        assert_eq!(values(&history, "critic/score/mean"), [(0, 0.75)], "the newest attempt");
        assert_eq!((history.attempt_row(), history.restarts()), (0, 1));
        assert!(history.column("x").is_none());
        assert!(history.damage().is_none());
    }
}
