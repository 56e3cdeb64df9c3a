//! One line a step, in each of the files that people and tools read: metrics.jsonl, train.log, events.

use std::io::Write as _;
use std::path::Path;

use fs_err as fs;

use super::rewind::rewind;
use super::{EventWriter, RunDir, RunDirError};
use crate::metrics::StepMetrics;

/// Appends the metrics of steps to metrics.jsonl, train.log and, if asked for, TensorBoard events.
pub struct StepLog {
    metrics: fs::File,
    log: fs::File,
    events: Option<EventWriter>,
}

impl StepLog {
    /// Opens the logs of a run whose last complete checkpoint is that of step `last`.
    ///
    /// Lines of later steps, of which nothing survives, move to `metrics.jsonl.voided` and
    /// `train.log.voided`, and TensorBoard is told to forget them: the logs hold each step of the
    /// surviving history once. Give `None` for a run that starts from nothing. Returns how many steps moved.
    pub fn open(run: &RunDir, last: Option<u64>, tensorboard: bool) -> Result<(Self, usize), RunDirError> {
        let step_of_json = |line: &str| StepMetrics::from_json_line(line).ok().map(|metrics| metrics.step);
        let moved = if let Some(last) = last {
            rewind(&run.train_log(), last, step_of_log_line)?;
            rewind(&run.metrics(), last, step_of_json)?
        } else {
            // A first start that was killed before its first checkpoint leaves steps, too; step 0 is the
            // validation before training, which is run again as well.
            rewind_all(&run.train_log())?;
            rewind_all(&run.metrics())?
        };
        let append = |path: &Path| fs::OpenOptions::new().create(true).append(true).open(path);
        let events = tensorboard
            .then(|| EventWriter::create(&run.events(), last.map_or(0, |last| last + 1)))
            .transpose()?;
        Ok((
            Self {
                metrics: append(&run.metrics())?,
                log: append(&run.train_log())?,
                events,
            },
            moved,
        ))
    }

    /// Appends a step to all files, durably.
    pub fn append(&mut self, metrics: &StepMetrics) -> Result<(), RunDirError> {
        self.metrics
            .write_all(format!("{}\n", metrics.to_json_line()).as_bytes())?;
        self.log.write_all(format!("{}\n", metrics.to_log_line()).as_bytes())?;
        if let Some(events) = &mut self.events {
            events.scalars(metrics)?;
        }
        self.metrics.sync_data()?;
        self.log.sync_data()?;
        Ok(())
    }
}

fn step_of_log_line(line: &str) -> Option<u64> {
    line.strip_prefix("step:")?.split(' ').next()?.parse().ok()
}

fn rewind_all(path: &Path) -> Result<usize, RunDirError> {
    rewind(path, 0, |_| Some(u64::MAX))
}

/// The steps of metrics.jsonl; a torn last line, which a crash leaves, is left out.
pub fn read_metrics(path: &Path) -> Result<Vec<StepMetrics>, RunDirError> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let mut steps = Vec::new();
    for (at, line) in text.split_inclusive('\n').enumerate() {
        match StepMetrics::from_json_line(line) {
            Ok(metrics) => steps.push(metrics),
            Err(_) if !line.ends_with('\n') => {}
            Err(error) => {
                let reason = format!("line {}: {error}", at + 1);
                return Err(RunDirError::Damaged {
                    path: path.to_owned(),
                    reason,
                });
            }
        }
    }
    Ok(steps)
}
