//! Which runs there are below a folder.

use std::path::{Path, PathBuf};

use fs_err as fs;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Phase, RunDir, RunDirError};

/// One run, as a list shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSummary {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub dir: PathBuf,
    /// What it is doing; a run whose process was killed is `interrupted`.
    pub state: Phase,
    /// Steps done.
    pub step: u64,
    /// Steps planned.
    pub steps: Option<u64>,
    /// When its state was last written.
    #[schemars(with = "String")]
    pub updated_at: Timestamp,
}

/// The runs in `root` (itself, its folders, and theirs), newest first, and what looked like a run but cannot be read.
pub fn discover(root: &Path) -> Result<(Vec<RunSummary>, Vec<RunDirError>), RunDirError> {
    let (mut runs, mut damaged) = (Vec::new(), Vec::new());
    let mut folders = vec![(root.to_owned(), 0)];
    while let Some((folder, depth)) = folders.pop() {
        match RunDir::open(&folder) {
            Ok(run) => match summary(&run) {
                Ok(summary) => runs.push(summary),
                Err(error) => damaged.push(error),
            },
            Err(RunDirError::NotARun { .. }) if depth < 2 => {
                for entry in fs::read_dir(&folder)? {
                    let path = entry?.path();
                    if path.is_dir() {
                        folders.push((path, depth + 1));
                    }
                }
            }
            Err(RunDirError::NotARun { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    runs.sort_by(|left, right| {
        right
            .updated_at
            .cmp(&left.updated_at)
            .then_with(|| left.dir.cmp(&right.dir))
    });
    Ok((runs, damaged))
}

fn summary(run: &RunDir) -> Result<RunSummary, RunDirError> {
    let state = run.state()?;
    let killed = state.state == Phase::Running && run.holder()?.is_none();
    Ok(RunSummary {
        name: run.name(),
        dir: run.path().to_owned(),
        state: if killed { Phase::Interrupted } else { state.state },
        step: state.step,
        steps: state.steps,
        updated_at: state.time,
    })
}
